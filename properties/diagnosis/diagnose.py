"""Diagnosis of a wrong result: the hypothesis that gives it, or else where in c it is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.diagnosis.hypotheses import (
    Hypothesis,
    evaluate_as,
    list_hypotheses,
    list_pairs,
    list_roundings,
)
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values
from gemmproof.properties.kernel import WRITTEN
from gemmproof.properties.observation import ObservedCase
from gemmproof.reference.arithmetic import Array, round_to, widen, widen_nearest
from gemmproof.reference.bounds import bound_rounding
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, Format

Ways = Callable[[ObservedCase], Iterable[Hypothesis]]

PARTS = ("operand_cut", "k_block", "last_k_block")
# misuses whose text has an index or strides, which smaller operands may not have
NUMBERED = ("operand_cut", "operand_strides")
FEWEST = 4  # elements of c; for fewer, some misuse explains any values


def diagnose(finding: Finding, own: ObservedCase, shown: Sequence[ObservedCase]) -> Finding:
    """Return the finding with the fault that explains its values, or unchanged if none does.

    `own` is the observation of its case, `shown` are those of cases with this fault; a hypothesis
    must explain all of them.
    """
    first = shown[0]
    if finding.fault == "nan_lost":
        return finding  # its cause is known
    if exact_values.list_reorders(first):
        return finding  # elements in another order look like many other faults
    unused, got = sorted(first.unused_operands), widen_nearest(first.result)
    if unused and np.isnan(got).any() and not np.isnan(exact_values.exact(first)).any():
        # only an operand that the formula does not read holds NaN here
        message = f"{finding.message}: as if {unused[0]} were read"
        return replace(finding, fault="operand_read", message=message, operand=unused[0])
    if sum(observation.result.size for observation in shown) >= FEWEST:
        explained = _explain(finding, shown)
        if explained is not None:
            return explained
    values = widen_nearest(own.result)[exact_values.mark_wrong(own, finding.property)]
    if not np.isfinite(values).all() and all(map(_are_finite, (own, *shown))):
        value = "NaN" if np.isnan(values).any() else "Inf"
        message = f"{finding.message}: {value} from finite operands"
        return replace(finding, fault="not_finite", message=message)
    return _label_block(finding, first) if own.kernel.spec else _label_part(finding, own, first)


# -- hypotheses ----------------------------------------------------------------------------------
def _explain(finding: Finding, shown: Sequence[ObservedCase]) -> Finding | None:
    """Return the finding with the hypothesis that explains every observation, or None."""
    marks = [np.ones(observation.result.shape, np.bool_) for observation in shown]
    # a kernel that is right on integers reads the right elements, and all of them
    rounds = finding.property == exact_values.BOUND
    rounds &= all(observation.case.fill != "index" for observation in shown)
    # rows of ties are so alike that elements of another row explain a rounding too
    has_ties = all(observation.case.fill == "ties" for observation in shown)
    ways = [list_roundings] * (rounds or has_ties) + [list_hypotheses] * (not rounds)
    for way in ways:
        if (hypothesis := _find(shown, marks, way)) is not None:
            return _label(finding, hypothesis, shown[0])
    pairs = list(_iter_fitting(shown, marks, list_pairs))
    # ambiguous if several pairs explain it
    if len({(pair.operand, pair.other) for pair in pairs}) == 1:
        return _label(finding, pairs[0], shown[0])
    both = ((x, exact_values.mark_wrong(x, finding.property)) for x in shown)
    partly = [(x, wrong) for x, wrong in both if FEWEST <= wrong.sum() < wrong.size]
    if partly and (finding.property, finding.case.fill) == (exact_values.EXACT, "index"):
        wrongs = [wrong for _, wrong in partly]
        hypothesis = _find([x for x, _ in partly], wrongs, list_hypotheses)
        # of a formula, the wrong elements already show the part of c
        ambiguous = PARTS if shown[0].kernel.spec else ()
        if hypothesis is not None and hypothesis.fault not in ambiguous:
            return _label(finding, hypothesis, shown[0], "where it is wrong, ")
    # a result that is also wrong on integers is more than a rounding error
    if all(observation.case.fill != "index" for observation in shown):
        for kept, rule in (("values", "between"), ("sums", "accumulator")):
            for fmt in _list_narrower():
                if all(_loses_no_more(x, **{rule: fmt.name}) for x in shown):
                    text = f"no more than {kept} kept in {fmt.name} can lose"
                    return replace(finding, fault="rounding", message=f"{finding.message}: {text}")
    return None


def _find(
    observations: Sequence[ObservedCase], marks: Sequence[Array], ways: Ways
) -> Hypothesis | None:
    """Return the first hypothesis that explains the marked elements of every observation.

    If its text has a way, it names all that explain them.
    """
    first = next(_iter_fitting(observations, marks, ways), None)
    if first is None or not first.way:
        return first

    def list_same(observation: ObservedCase) -> Iterator[Hypothesis]:
        same = (first.fault, first.operand, first.text)
        return (x for x in ways(observation) if x.way and (x.fault, x.operand, x.text) == same)

    fitting = dict.fromkeys(x.way for x in _iter_fitting(observations, marks, list_same))
    return replace(first, text=first.text.format(" or ".join(fitting)))


def _label(
    finding: Finding, hypothesis: Hypothesis, seen: ObservedCase, where: str = ""
) -> Finding:
    """Label the finding with a hypothesis; `seen` is of the case that its numbers are from."""
    here, there = finding.case.sides, seen.case.sides
    numbers = re.search(r"index \d|strides \(", hypothesis.text)
    note = ""
    if hypothesis.fault in NUMBERED and numbers and here != there:
        note = f" (seen at {' '.join(f'{axis}={n}' for axis, n in there.items())})"
    message = f"{finding.message}: {where}{hypothesis.text}{note}"
    return replace(
        finding,
        fault=hypothesis.fault,
        operand=hypothesis.operand,
        axis=hypothesis.axis,
        message=message,
    )


def _iter_fitting(
    observations: Sequence[ObservedCase], marks: Sequence[Array], ways: Ways
) -> Iterator[Hypothesis]:
    """Yield the hypotheses that explain the marked elements of every observation."""
    (first, *others), (mark, *more) = observations, marks
    for hypothesis in ways(first):
        if _explains(hypothesis, first, mark) and all(
            _explains_too(hypothesis, other, wrong, ways)
            for other, wrong in zip(others, more, strict=True)
        ):
            yield hypothesis


def _explains_too(
    hypothesis: Hypothesis, observation: ObservedCase, marked: Array, ways: Ways
) -> bool:
    label = (hypothesis.fault, hypothesis.operand, hypothesis.text, hypothesis.way)
    same = (x for x in ways(observation) if (x.fault, x.operand, x.text, x.way) == label)
    return any(_explains(other, observation, marked, 0) for other in same)


def _explains(
    hypothesis: Hypothesis, observation: ObservedCase, marked: Array, fewest: int = FEWEST
) -> bool:
    """Return whether every marked element of c is, within the bound, the one of the hypothesis.

    At least `fewest` of them have to be conclusive, or all.

    A narrow result is off by more than the sum was, so a float must also be one to which something
    within the sum's own bound rounds: lo <= c <= hi, of the roundings of both ends.
    """
    c, out, between = hypothesis.evaluate(), observation.out, hypothesis.between
    if c is None or c.exact.shape != observation.result.shape:
        return False
    got, held = widen_nearest(observation.result), exact_values.held_by(observation)
    stored = c if between is None else bound_rounding(c, between, held)
    allowed = bound_rounding(stored, out, held).error
    with np.errstate(invalid="ignore"):
        near = np.abs(got - c.exact) <= allowed
    # elements that may overflow, or that come from undefined lanes, are inconclusive
    known = marked & np.isfinite(allowed)
    if any(fault.kind == "undefined_stored" for fault in observation.faults):
        known &= ~np.isnan(got)
    if not near[known].all() or known.sum() < min(marked.sum(), fewest):
        return False
    if fewest and not (_is_changed(observation, c.exact, between) & known).any():
        return False  # it would change no wrong element
    if out.kind == "int":
        return True
    ends = [c.exact - c.error, c.exact + c.error]
    if between is not None:
        ends = [widen(round_to(end, between)) for end in ends]
    low, high = (_store(end, out) for end in ends)
    return bool(((low <= got) & (got <= high))[known].all())


def _is_changed(observation: ObservedCase, exact: Array, between: Format | None) -> Array:
    """Mark the elements that a hypothesis makes other than the formula does."""
    own = exact_values.exact(observation)
    if between is None:
        return np.asarray(exact != own)
    first = widen(round_to(own.astype(np.float64), between))
    out = observation.out
    return np.asarray(_store(first, out) != _store(own.astype(np.float64), out))


def _store(x: Array, out: Format) -> Array:
    """Return numbers as a result of a format holds them."""
    return widen(round_to(x, out)) if out.kind == "float" else np.trunc(x)


# -- roundings -----------------------------------------------------------------------------------
def _list_narrower() -> list[Format]:
    """List the formats of 16 bits, the finest first."""
    formats = [FORMATS[n] for n in FLOAT_OPERANDS if FORMATS[n].p < FORMATS["fp32"].p]
    return sorted((f for f in formats if f.stored is f and not f.is_fp8), key=lambda f: -f.p)


def _loses_no_more(observation: ObservedCase, **rules: str) -> bool:
    """Return whether values of a narrower format explain every element's error."""
    evaluated = evaluate_as(observation, {}, **rules)
    if evaluated is None:
        return False
    allowed = bound_rounding(evaluated, observation.out, FORMATS["fp32"]).error
    with np.errstate(invalid="ignore"):
        near = np.abs(widen_nearest(observation.result) - evaluated.exact) <= allowed
    return bool(near.all() and np.isfinite(allowed).all())


# -- places --------------------------------------------------------------------------------------
def _are_finite(observation: ObservedCase) -> bool:
    operands = (x for x in observation.operands.values() if x.use != WRITTEN)
    return all(np.isfinite(widen(stored_elements(x))).all() for x in operands)


def _label_block(finding: Finding, observation: ObservedCase) -> Finding:
    """Label the finding with the axis whose second block it needs to show, if it is a single one.

    A finding's case is the smallest that was found.
    """
    case, contract = finding.case, observation.kernel.contract
    matches = []
    for i, axis in enumerate("MNK"):
        step, side = contract.sizes(axis).step, case.sides[axis]
        blocks = {tile[i] for tile in observation.tiles}
        matches += [(axis, block, side) for block in blocks if side == block + step]
    if len(matches) != 1:
        return finding
    axis, block, side = matches[0]
    text = f"seen from {axis} = {side} on, where there is more than one block of {block}"
    return replace(finding, fault="later_block", axis=axis, message=f"{finding.message}: {text}")


def _label_part(finding: Finding, own: ObservedCase, larger: ObservedCase) -> Finding:
    """Label the finding with the part of c that is wrong; one element fits too many parts."""
    seen = own if own.result.size > 1 else larger
    part = next(_list_parts(seen, exact_values.mark_wrong(seen, finding.property)), None)
    if part is None:
        return finding
    fault, text, axis = part
    note = "" if seen.case == own.case else f" (seen at M={seen.case.M} N={seen.case.N})"
    message = f"{finding.message}: {text}{note}"
    return replace(finding, fault=fault, operand="c", axis=axis, message=message)


def _list_parts(observation: ObservedCase, wrong: Array) -> Iterator[tuple[str, str, str | None]]:
    """Yield the parts of c with all wrong elements, as fault, text and axis.

    They are a batch, a tile edge, whole tiles, a row or a column.
    """
    M, N = observation.case.M, observation.case.N
    if observation.case.batch is not None:
        planes = np.asarray(wrong.reshape(wrong.shape[0], -1).any(axis=1))
        if not planes.all():
            first, last = _ends(planes)
            yield "batch", f"only in batch {_span(first, last)}", "batch"
        wrong = np.asarray(wrong.any(axis=0))
    rows, columns = np.asarray(wrong.any(axis=1)), np.asarray(wrong.any(axis=0))
    (top, bottom), (left, right) = _ends(rows), _ends(columns)
    tiles = observation.tiles
    block_m, block_n = (max((t[axis] for t in tiles), default=1) for axis in (0, 1))
    for axis, low, side, block in (("M", top, M, block_m), ("N", left, N, block_n)):
        edge = side // block * block
        if 0 < edge <= low and edge < side:
            name = "rows" if axis == "M" else "columns"
            text = f"all in {name} {_span(low, side - 1)}, in the last, partial tile along {axis}"
            yield "tile_edge", text, axis
    if wrong.all():
        if wrong.size > 1:
            yield "everywhere", "every element", None
        return
    if wrong.size > 1 and rows.sum() == 1 and M > 1:
        yield "row", f"all in row {top}", "M"
    if wrong.size > 1 and columns.sum() == 1 and N > 1:
        yield "column", f"all in column {left}", "N"
    tile_rows, tile_columns = np.arange(M) // block_m, np.arange(N) // block_n
    bad = {(int(tile_rows[i]), int(tile_columns[j])) for i, j in np.argwhere(wrong)}
    whole = sum(int((tile_rows == i).sum()) * int((tile_columns == j).sum()) for i, j in bad)
    if whole == int(wrong.sum()) and block_m * block_n > 1:
        text = f"{len(bad)} whole tile{'s' if len(bad) > 1 else ''}, first tile {min(bad)}"
        yield "whole_tile", text, None
    yield "scattered", f"in rows {_span(top, bottom)}, columns {_span(left, right)}", None


def _ends(flags: Array) -> tuple[int, int]:
    where = np.flatnonzero(flags)
    return int(where[0]), int(where[-1])


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"
