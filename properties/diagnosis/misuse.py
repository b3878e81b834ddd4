"""What a kernel with a formula of its own did with an operand instead: tried, one after another.

Each way is claimed only if the formula, given the operand so, explains every element of c, on every
data that were tried: scales of powers of two alone fit one another too easily.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gemmproof.properties import values
from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.diagnosis.uses import Use, evaluate_as, list_pairs, list_uses
from gemmproof.properties.finding import Finding
from gemmproof.properties.observation import Observation
from gemmproof.properties.operand import WRITTEN
from gemmproof.reference.arithmetic import Array, round_to, widen
from gemmproof.reference.bounds import bound_rounding
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, Format

Ways = Callable[[Observation], Iterable[Use]]

PARTS = ("operand_cut", "k_block", "last_k_block")
# ways whose words have an index or strides, which smaller operands may not have
NUMBERED = ("operand_cut", "operand_strides")
FEWEST = 4  # elements of c; of fewer, some way explains whatever they are


def name_misuse(finding: Finding, observations: Sequence[Observation]) -> Finding:
    """The finding with the operand that was misread and how; as it is where no way explains it.

    `observations`: of cases with this fault; a way must explain all of them.
    """
    first = observations[0]
    unread, got = sorted(first.unread), widen(first.result)
    if unread and np.isnan(got).any() and not np.isnan(values.exact(first)).any():
        # what the formula does not read holds NaN, which nothing else here does
        message = f"{finding.message}: as if {unread[0]} were read"
        return replace(finding, fault="operand_read", message=message, operand=unread[0])
    if sum(observation.result.size for observation in observations) < FEWEST:
        return finding
    marks = [np.ones(one.result.shape, np.bool_) for one in observations]
    if (use := _find(observations, marks)) is not None:
        return _blame(finding, use, first)
    pairs = list(_list_fitting(observations, marks, list_pairs))
    # nothing tells which are to blame where several pairs explain it
    if len({(use.operand, use.other) for use in pairs}) == 1:
        return _blame(finding, pairs[0], first)
    both = ((one, _mark_wrong(finding, one)) for one in observations)
    partly = [(one, wrong) for one, wrong in both if FEWEST <= wrong.sum() < wrong.size]
    if partly and (finding.property, finding.case.fill) == (values.EXACT, "index"):
        use = _find(*zip(*partly, strict=True))
        # which part of c is concerned, the wrong elements say already
        if use is not None and use.fault not in PARTS:
            return _blame(finding, use, first, "where it is wrong, ")
    named = [_rounded_first(observation) for observation in observations]
    if named[0] is not None and len(set(named)) == 1:
        words = f"as if the result were rounded to {named[0]} first"
        return replace(finding, fault="rounded_twice", message=f"{finding.message}: {words}")
    # what is wrong on integers, too, is more than a rounding
    if all(observation.case.fill != "index" for observation in observations):
        for fmt in _list_narrower():
            if all(_loses_no_more(observation, fmt) for observation in observations):
                words = f"no more than values kept in {fmt.name} can lose"
                return replace(finding, fault="rounding", message=f"{finding.message}: {words}")
    if finding.got == "nan" and all(_are_finite(observation) for observation in observations):
        message = f"{finding.message}: NaN from finite operands"
        return replace(finding, fault="not_finite", message=message)
    return _name_block(finding, first)


def _blame(finding: Finding, use: Use, seen: Observation, where: str = "") -> Finding:
    """The finding with a use; `seen` is of a case of which the numbers in its words hold."""
    here, there = finding.case.sides, seen.case.sides
    note = ""
    if use.fault in NUMBERED and re.search(r"index \d|strides \(", use.words) and here != there:
        note = f" (seen at {' '.join(f'{axis}={n}' for axis, n in there.items())})"
    message = f"{finding.message}: {where}{use.words}{note}"
    return replace(finding, fault=use.fault, operand=use.operand, axis=use.axis, message=message)


def _mark_wrong(finding: Finding, observation: Observation) -> Array:
    bound = finding.property == values.BOUND
    return values.beyond_bound(observation) if bound else values.not_exact(observation)


def _find(observations: Sequence[Observation], marks: Sequence[Array]) -> Use | None:
    """The first use that explains the marked elements of every observation."""
    return next(_list_fitting(observations, marks, list_uses), None)


def _list_fitting(
    observations: Sequence[Observation], marks: Sequence[Array], ways: Ways
) -> Iterator[Use]:
    """The ways that explain the marked elements of every observation."""
    (first, *others), (mark, *more) = observations, marks
    for use in ways(first):
        if _explains(use, first, mark) and all(
            _explains_too(use, other, wrong, ways)
            for other, wrong in zip(others, more, strict=True)
        ):
            yield use


def _are_finite(observation: Observation) -> bool:
    given = (x for x in observation.operands.values() if x.use != WRITTEN)
    return all(np.isfinite(widen(stored_elements(x))).all() for x in given)


def _name_block(finding: Finding, observation: Observation) -> Finding:
    """The finding with the axis whose second block it takes to show, where it is a single one.

    A finding's case is the smallest that was found.
    """
    case, contract = finding.case, observation.kernel.contract
    found = []
    for i, axis in enumerate("MNK"):
        step, side = contract.sizes(axis).step, case.sides[axis]
        blocks = {tile[i] for tile in observation.tiles}
        found += [(axis, block, side) for block in blocks if side == block + step]
    if len(found) != 1:
        return finding
    axis, block, side = found[0]
    words = f"seen from {axis} = {side} on, where there is more than one block of {block}"
    return replace(finding, fault="later_block", axis=axis, message=f"{finding.message}: {words}")


def _list_narrower() -> list[Format]:
    """Formats of 16 bits, the finest first."""
    formats = [FORMATS[n] for n in FLOAT_OPERANDS if FORMATS[n].p < FORMATS["fp32"].p]
    return sorted((f for f in formats if f.stored is f and not f.is_fp8), key=lambda f: -f.p)


def _loses_no_more(observation: Observation, fmt: Format) -> bool:
    """Whether intermediate values of a narrower format explain the error of every element."""
    held = evaluate_as(observation, {}, between=fmt.name)
    if held is None:
        return False
    allowed = bound_rounding(held, observation.out, FORMATS["fp32"]).error
    with np.errstate(invalid="ignore"):
        near = np.abs(widen(observation.result) - held.exact) <= allowed
    return bool(near.all() and np.isfinite(allowed).all())


def _explains_too(use: Use, observation: Observation, marked: Array, ways: Ways) -> bool:
    same = (
        other
        for other in ways(observation)
        if (other.fault, other.operand, other.words) == (use.fault, use.operand, use.words)
    )
    return any(_explains(other, observation, marked, 0) for other in same)


def _explains(use: Use, observation: Observation, marked: Array, fewest: int = FEWEST) -> bool:
    """Whether every marked element of c is what it is then, within the bound.

    At least `fewest` of them have to say something, or all.

    A narrow result is off by more than the sum was, so a float must also be one to which something
    within the sum's own bound rounds: lo <= c <= hi, of the roundings of both ends.
    """
    held, out = use.make(), observation.out
    if held is None or held.exact.shape != observation.result.shape:
        return False
    got = widen(observation.result)
    allowed = bound_rounding(held, out, FORMATS["fp32"]).error
    with np.errstate(invalid="ignore"):
        near = np.abs(got - held.exact) <= allowed
    # what may overflow says nothing, nor does what came of lanes that nothing defines
    known = marked & np.isfinite(allowed)
    if any(fault.kind == "undefined_stored" for fault in observation.faults):
        known &= ~np.isnan(got)
    if not near[known].all() or known.sum() < min(marked.sum(), fewest):
        return False
    if fewest and np.array_equal(held.exact[known], values.exact(observation)[known]):
        return False  # nothing that is wrong would be
    if out.kind == "int":
        return True
    ends = (held.exact - held.error, held.exact + held.error)
    low, high = (widen(round_to(end, out)) for end in ends)
    return bool(((low <= got) & (got <= high))[known].all())


def _rounded_first(observation: Observation) -> str | None:
    """The finest format that the result was rounded to before it got its own.

    Judged where the formula's value is exact: there both roundings are known.
    """
    out, made = observation.out, values.evaluated(observation)
    if out.kind == "int":
        return None
    formats = [FORMATS[n] for n in FLOAT_OPERANDS if FORMATS[n].p < FORMATS["fp32"].p]
    for fmt in sorted((f for f in formats if f is not out), key=lambda f: -f.p):
        twice = widen(round_to(widen(round_to(made.value, fmt)), out))
        if np.array_equal(twice[made.exact], widen(observation.result)[made.exact]):
            return fmt.name if values.not_exact(observation).any() else None
    return None
