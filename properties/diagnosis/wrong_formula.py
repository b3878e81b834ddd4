"""Diagnosis of a wrong result of a formula: the operand misused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.contract import ROLES
from gemmproof.properties.diagnosis.wrong_product import list_readings, list_strided
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values
from gemmproof.properties.kernel import WRITTEN
from gemmproof.properties.observation import Observation, axes_of, axis_named, introduce
from gemmproof.reference.arithmetic import Array, format_of, round_to, widen
from gemmproof.reference.bounds import Accumulated, bound_rounding
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, Format

# -- elements of an operand ----------------------------------------------------------------------
MOST_CUTS = 16  # indices at which an operand may end too early
# AWQ's order of the eight nibbles of a word
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class Elements:
    """A possible replacement of an operand's elements: class, text, and misindexed axis, if any."""

    fault: str
    text: str
    used: Array
    axis: int | None = None


def list_elements(observation: Observation, name: str, own: Array) -> Iterator[Elements]:
    """Yield every possible replacement of an operand's elements, the simplest first."""
    operand, declared = observation.operands[name], name in observation.kernel.tensors
    if name not in ROLES:
        yield from _list_numbers(observation, name, own)
    if own.dtype.kind in "iu" and declared:
        yield from _list_bits(own)
    # one row has no strides to exchange
    for text, other in list_readings(operand) if own.ndim > 1 else ():
        yield Elements("operand_strides", f"were read with {text}", other)
    if own.ndim >= 2 and own.shape[-1] == own.shape[-2]:
        yield Elements("operand_transposed", "were transposed", np.swapaxes(own, -1, -2))
    blocks = list_blocks(observation, 0, 1, 2)
    for axis in range(own.ndim):
        code, label = own.view(f"u{own.itemsize}"), axes_of(observation, name)[axis]
        for fault, text, index in _list_places(own.shape[axis], blocks):
            # for a matrix, along M or N, it is the same as missing rows or columns of c
            if fault == "operand_cut" and own.ndim > 1 and axis_named(label) != "K":
                continue
            used = np.take(code, index.clip(0), axis)
            kept = (index >= 0).reshape([-1 if d == axis else 1 for d in range(own.ndim)])
            used = np.where(kept, used, code.dtype.type(0)).view(own.dtype)
            yield Elements(fault, text, used, axis)
    for text, other in list_strided(operand) if declared and own.size else ():
        yield Elements("operand_strides", f"were read with {text}", other)


def _list_places(n: int, blocks: Sequence[int]) -> Iterator[tuple[str, str, Array]]:
    """Yield the indices that may have been read in place of n entries; -1 for a zero."""
    index, last = np.arange(n), n - 1
    if n < 2:
        return
    yield "operand_broadcast", "had the first entry everywhere", index * 0
    yield "operand_shifted", "were one behind", (index - 1) % n
    yield "operand_shifted", "were one ahead", (index + 1) % n
    yield "operand_shifted", "were one behind, the first twice", (index - 1).clip(0)
    yield "operand_shifted", "were one ahead, the last twice", (index + 1).clip(0, last)
    for size in (s for s in (2, 4, 8) if s < n):
        text = f"had the first of every {size} entries in place of them all"
        yield "operand_broadcast", text, index // size * size
    yield "operand_groups", "were read at half the index", index // 2
    yield "operand_groups", "were read at twice the index", (index * 2).clip(0, last)
    # a tile has a few groups of k
    for block in (b for b in sorted({2, 4, 8, *blocks}) if b < n):
        yield "operand_wrapped", f"were read at the index modulo {block}", index % block
    for first in range(max(1, n - MOST_CUTS), n):
        yield "operand_cut", f"were 0 from index {first} on", np.where(index < first, index, -1)


def _list_numbers(observation: Observation, name: str, own: Array) -> Iterator[Elements]:
    """Yield other numbers in place of a scale, a bias, a zero point."""
    fmt = FORMATS[observation.operands[name].dtype]
    # 127 is 1 in e8m0
    for value in (1, 0, 127) if fmt.name == "uint8" else (1, 0):
        yield Elements("operand_forgotten", f"were {value}", np.full_like(own, value))
    # in a format that loses nothing of the values that a kernel computes from them
    wide_dtype = np.float32 if fmt.kind == "float" else np.int32
    wide = own if fmt.itemsize >= 4 else own.astype(wide_dtype)
    with np.errstate(all="ignore"):
        yield Elements("operand_applied_twice", "were applied twice", wide * wide)
        for times, text in ((2, "twice"), (3, "three times"), (4, "four times")):
            added = (wide * times).astype(wide.dtype)
            yield Elements("operand_applied_twice", f"were added {text}", added)
        if fmt.kind == "float":
            yield Elements("operand_multiplied", "were halved", (wide / 2).astype(wide.dtype))
            yield Elements("operand_inverted", "were inverted", (1 / wide).astype(wide.dtype))
        else:
            yield Elements("operand_off_by_one", "were one less", wide - 1)
            yield Elements("operand_off_by_one", "were one more", wide + 1)
        yield Elements("operand_negated", "were negated", np.negative(wide))
    for other, operand in observation.operands.items():
        same = (operand.dtype, operand.tensor.shape) == (fmt.name, own.shape)
        if same and other != name:
            text = f"were {introduce(observation, other)}"
            yield Elements("operand_replaced", text, stored_elements(operand))


def _list_bits(own: Array) -> Iterator[Elements]:
    """Yield integers of the other signedness, or with their nibbles in another order."""
    bits = 8 * own.itemsize
    code = own.view(f"u{own.itemsize}")
    if bits < 32:
        other = code if own.dtype.kind == "i" else own.view(f"i{own.itemsize}")
        sign = "unsigned" if own.dtype.kind == "i" else "signed"
        yield Elements("operand_sign", f"were {sign}", other.astype(np.int32))
    orders = {"reversed": tuple(range(bits // 4))[::-1]}
    if bits // 4 == len(AWQ):
        orders |= {
            "in AWQ's order": AWQ,
            "taken as if they were in AWQ's order": tuple(np.argsort(AWQ).tolist()),
        }
    wide = code.astype(np.uint64)
    for label, order in orders.items():
        reordered = np.zeros_like(wide)
        for to, of in enumerate(order):
            reordered |= ((wide >> np.uint64(4 * of)) & np.uint64(15)) << np.uint64(4 * to)
        used = reordered.astype(code.dtype).view(own.dtype)
        yield Elements("operand_nibbles", f"had the nibbles of its words {label}", used)


def list_blocks(observation: Observation, *axes: int) -> list[int]:
    """List the sides of tiles along these axes of M, N, K, or candidates if no dot has one."""
    known = sorted({tile[axis] for tile in observation.tiles for axis in axes})
    return known or [2**i for i in range(3, 11)]


# -- uses of an operand --------------------------------------------------------------------------
MOST_PAIRS = 256  # ways to misuse two operands at once that are tried
MOST_LINES = 16  # rows or columns of c for which the formula is evaluated one by one


@dataclass(frozen=True, slots=True)
class Use:
    """A misuse of an operand: its class, its text, the operand, and the resulting c.

    `other` is the second operand of a misuse of two. `make` returns None if the formula cannot be
    evaluated so.
    """

    fault: str
    text: str
    make: Callable[[], Accumulated | None]
    operand: str
    axis: str | None = None
    other: str | None = None


def list_uses(observation: Observation) -> Iterator[Use]:
    """Yield every misuse, of operands other than a and b first, and of one operand before two."""
    tensors = [name for name, x in observation.operands.items() if x.use != WRITTEN]
    further = [name for name in tensors if name not in ROLES]
    listed = {name: list(_list_misread(observation, name)) for name in tensors}
    yield from _list_values(observation)
    for name in further:
        yield from _list_uses_of(observation, name, listed[name])
    yield from _list_parts_of_k(observation)
    for name in ROLES:
        yield from _list_uses_of(observation, name, listed[name])
    for first, second in combinations(further, 2):
        for x, y in product(listed[first], listed[second]):
            # both are read at the same index
            if (x.fault, x.text) == (y.fault, y.text) and _is_one_index(x, y):
                (of_x, axis), (of_y, _) = (
                    _along(observation, n, z) for n, z in ((first, x), (second, y))
                )
                text = f"as if {first}{of_x} and {second}{of_y} {x.text}"
                evaluate = _by(observation, {first: x.used, second: y.used})
                yield Use(x.fault, text, evaluate, first, axis)
    yield from _list_exchanged(observation, tensors)


def list_pairs(observation: Observation) -> Iterator[Use]:
    """Yield pairs of operands other than a and b, each forgotten or applied twice."""
    further = [n for n, x in observation.operands.items() if n not in ROLES and x.use != WRITTEN]
    simple = ("operand_forgotten", "operand_applied_twice")
    listed = {
        name: [x for x in _list_misread(observation, name) if x.fault in simple] for name in further
    }
    pairs = [
        (first, x, second, y)
        for first, second in combinations(further, 2)
        for x, y in product(listed[first], listed[second])
    ]
    for first, x, second, y in pairs if len(pairs) <= MOST_PAIRS else ():
        text = f"as if {first} {x.text} and {second} {y.text}"
        fault = x.fault if x.fault == y.fault else "operands_misused"
        evaluate = _by(observation, {first: x.used, second: y.used})
        yield Use(fault, text, evaluate, first, other=second)


def _list_exchanged(observation: Observation, tensors: Sequence[str]) -> Iterator[Use]:
    """Yield two operands of one format and shape, each read in the other's place."""
    operands = observation.operands
    for first, second in combinations(tensors, 2):
        x, y = operands[first], operands[second]
        if (x.dtype, x.tensor.shape) == (y.dtype, y.tensor.shape):
            evaluate = _by(observation, {first: stored_elements(y), second: stored_elements(x)})
            name = first if first not in ROLES else second
            text = f"as if {first} and {second} were exchanged"
            yield Use("operand_exchanged", text, evaluate, name)


def _along(observation: Observation, name: str, x: Elements) -> tuple[str, str | None]:
    """Return the text for the misindexed axis, and the product's axis."""
    if x.axis is None:
        return "", None
    label = axes_of(observation, name)[x.axis]
    return f" along {'axis ' if label.isdigit() else ''}{label}", axis_named(label)


def _list_values(observation: Observation) -> Iterator[Use]:
    """Yield other Python values: 1 or 0 as if forgotten, its square, its other options."""
    kernel = observation.kernel
    values = kernel.values_of(observation.case)
    for name, choice in kernel.choices.items():
        own, others = values[name], list(choice.values)
        if isinstance(own, int | float) and not isinstance(own, bool):
            others = [type(own)(1), type(own)(0), *others]
            twice = partial(evaluate_as, observation, {name: own * own})
            yield Use("operand_applied_twice", f"as if {name} were applied twice", twice, name)
        for value in others:
            if repr(value) != repr(own):  # of any type, arrays too
                evaluate = partial(evaluate_as, observation, {name: value})
                yield Use("operand_forgotten", f"as if {name} were {value!r}", evaluate, name)


def _list_uses_of(observation: Observation, name: str, listed: Sequence[Elements]) -> Iterator[Use]:
    for x in listed:
        along, axis = _along(observation, name, x)
        text = f"as if {introduce(observation, name)} {x.text}{along}"
        yield Use(x.fault, text, _by(observation, {name: x.used}), name, axis)
    yield from _list_axes(observation, name)


def _is_one_index(x: Elements, y: Elements) -> bool:
    if x.axis is None or y.axis is None:
        return x.axis == y.axis and x.fault == "operand_forgotten"
    return bool(x.used.shape[x.axis] == y.used.shape[y.axis])


def _by(observation: Observation, changed: Mapping[str, Array]) -> Callable[[], Accumulated | None]:
    replaced = {}
    for name, used in changed.items():
        own = observation.operands[name].dtype
        # integers beyond their format are still integers
        kept = used.dtype == FORMATS[own].storage or used.dtype.kind in "iu"
        replaced[name] = (np.ascontiguousarray(used), own if kept else format_of(used.dtype).name)
    return partial(evaluate_as, observation, replaced)


def evaluate_as(
    observation: Observation, changed: Mapping[str, Any], between: str = "fp32"
) -> Accumulated | None:
    """Evaluate the formula with these in place of some operands.

    `between`: the format of intermediate values. None if it cannot be evaluated so.
    """
    try:
        c = exact_values.evaluate_with(observation, changed, between)[observation.part]
    except Exception:  # an invalid index, or a value that the formula rejects
        return None
    return Accumulated(c.value, c.bound)


def _list_misread(observation: Observation, name: str) -> Iterator[Elements]:
    """Yield the possible replacements of an operand's elements that differ from them."""
    own = stored_elements(observation.operands[name])
    for x in list_elements(observation, name, own):
        if not np.array_equal(widen(x.used), widen(own)):
            yield x


def _list_axes(observation: Observation, name: str) -> Iterator[Use]:
    """Yield an entry per row that is read by the columns, or the reverse; 0 beyond the last one."""
    own = stored_elements(observation.operands[name])
    declared = observation.kernel.tensors.get(name)
    if declared is None or declared.axes not in (("M",), ("N",)):
        return
    axis = -1 if declared.axes == ("M",) else -2
    lines = observation.case.N if axis == -1 else observation.case.M

    def make() -> Accumulated | None:
        parts = []
        for i in range(lines):
            entry = own[i : i + 1] if i < len(own) else np.zeros(1, own.dtype)
            whole = _by(observation, {name: np.repeat(entry, len(own))})()
            # a result other than c, such as sums of rows, does not have these lines
            if whole is None or whole.exact.ndim < 2 or whole.exact.shape[axis] != lines:
                return None
            parts.append([np.take(x, [i], axis) for x in (whole.exact, whole.error)])
        exact, error = (np.concatenate(part, axis) for part in zip(*parts, strict=True))
        return Accumulated(exact, error)

    # with one row or column the other operands fit as well
    if len(own) > 1 and 1 < lines <= MOST_LINES:
        line = "columns" if axis == -1 else "rows"
        yield Use("operand_transposed", f"as if {name} were indexed by the {line} of c", make, name)


def _list_parts_of_k(observation: Observation) -> Iterator[Use]:
    """Yield omitted ranges of k: rows of b that are 0."""
    K, own = observation.case.K, stored_elements(observation.operands["b"])
    declared = observation.kernel.tensors.get("b")
    axes = ("K", "N") if declared is None else declared.axes
    if "K" not in axes:
        return
    along = axes.index("K") - len(axes) + own.ndim
    ranges = [(K - 1, K)]
    for block in list_blocks(observation, 2):
        last = (K - 1) // block * block
        ranges += [(last, K), (0, last), (0, block), (block, K)]
    for start, end in dict.fromkeys(ranges):
        if not 0 <= start < min(end, K) or end > K:
            continue
        used = own.copy()
        np.moveaxis(used, along, 0)[start:end] = 0
        span = f"k {start} is" if end - start == 1 else f"k {start}..{end - 1} are"
        fault, position = ("last_k_block", "last") if end == K else ("k_block", "first")
        evaluate = _by(observation, {"b": used})
        yield Use(fault, f"{span} left out, the {position} of K={K}", evaluate, "c", "K")


# -- diagnosis -----------------------------------------------------------------------------------
Ways = Callable[[Observation], Iterable[Use]]

PARTS = ("operand_cut", "k_block", "last_k_block")
# misuses whose text has an index or strides, which smaller operands may not have
NUMBERED = ("operand_cut", "operand_strides")
FEWEST = 4  # elements of c; for fewer, some misuse explains any values


def label_misuse(finding: Finding, observations: Sequence[Observation]) -> Finding:
    """Return the finding with the misread operand and its misuse, or unchanged if none explains it.

    `observations`: of cases with this fault; a misuse must explain all of them.
    """
    first = observations[0]
    unused, got = sorted(first.unused_operands), widen(first.result)
    if unused and np.isnan(got).any() and not np.isnan(exact_values.exact(first)).any():
        # only an operand that the formula does not read holds NaN here
        message = f"{finding.message}: as if {unused[0]} were read"
        return replace(finding, fault="operand_read", message=message, operand=unused[0])
    if sum(observation.result.size for observation in observations) < FEWEST:
        return finding
    marks = [np.ones(observation.result.shape, np.bool_) for observation in observations]
    if (use := _find(observations, marks)) is not None:
        return _label_use(finding, use, first)
    pairs = list(_list_fitting(observations, marks, list_pairs))
    # ambiguous if several pairs explain it
    if len({(use.operand, use.other) for use in pairs}) == 1:
        return _label_use(finding, pairs[0], first)
    both = ((observation, _mark_wrong(finding, observation)) for observation in observations)
    partly = [
        (observation, wrong) for observation, wrong in both if FEWEST <= wrong.sum() < wrong.size
    ]
    if partly and (finding.property, finding.case.fill) == (exact_values.EXACT, "index"):
        use = _find(*zip(*partly, strict=True))
        # the wrong elements already show the part of c
        if use is not None and use.fault not in PARTS:
            return _label_use(finding, use, first, "where it is wrong, ")
    named = [_rounded_first(observation) for observation in observations]
    if named[0] is not None and len(set(named)) == 1:
        text = f"as if the result were rounded to {named[0]} first"
        return replace(finding, fault="rounded_twice", message=f"{finding.message}: {text}")
    # a result that is also wrong on integers is more than a rounding error
    if all(observation.case.fill != "index" for observation in observations):
        for fmt in _list_narrower():
            if all(_loses_no_more(observation, fmt) for observation in observations):
                text = f"no more than values kept in {fmt.name} can lose"
                return replace(finding, fault="rounding", message=f"{finding.message}: {text}")
    if finding.got == "nan" and all(_are_finite(observation) for observation in observations):
        message = f"{finding.message}: NaN from finite operands"
        return replace(finding, fault="not_finite", message=message)
    return _label_block(finding, first)


def _label_use(finding: Finding, use: Use, seen: Observation, where: str = "") -> Finding:
    """Label the finding with a use; `seen` is of the case that the numbers in its text are from."""
    here, there = finding.case.sides, seen.case.sides
    note = ""
    if use.fault in NUMBERED and re.search(r"index \d|strides \(", use.text) and here != there:
        note = f" (seen at {' '.join(f'{axis}={n}' for axis, n in there.items())})"
    message = f"{finding.message}: {where}{use.text}{note}"
    return replace(finding, fault=use.fault, operand=use.operand, axis=use.axis, message=message)


def _mark_wrong(finding: Finding, observation: Observation) -> Array:
    bound = finding.property == exact_values.BOUND
    return exact_values.beyond_bound(observation) if bound else exact_values.not_exact(observation)


def _find(observations: Sequence[Observation], marks: Sequence[Array]) -> Use | None:
    """Return the first use that explains the marked elements of every observation."""
    return next(_list_fitting(observations, marks, list_uses), None)


def _list_fitting(
    observations: Sequence[Observation], marks: Sequence[Array], ways: Ways
) -> Iterator[Use]:
    """Yield the uses that explain the marked elements of every observation."""
    (first, *others), (mark, *more) = observations, marks
    for use in ways(first):
        if _explains(use, first, mark) and all(
            _explains_too(use, other, wrong, ways)
            for other, wrong in zip(others, more, strict=True)
        ):
            yield use


def _are_finite(observation: Observation) -> bool:
    operands = (x for x in observation.operands.values() if x.use != WRITTEN)
    return all(np.isfinite(widen(stored_elements(x))).all() for x in operands)


def _label_block(finding: Finding, observation: Observation) -> Finding:
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


def _list_narrower() -> list[Format]:
    """List the formats of 16 bits, the finest first."""
    formats = [FORMATS[n] for n in FLOAT_OPERANDS if FORMATS[n].p < FORMATS["fp32"].p]
    return sorted((f for f in formats if f.stored is f and not f.is_fp8), key=lambda f: -f.p)


def _loses_no_more(observation: Observation, fmt: Format) -> bool:
    """Return whether intermediate values of a narrower format explain every element's error."""
    evaluated = evaluate_as(observation, {}, between=fmt.name)
    if evaluated is None:
        return False
    allowed = bound_rounding(evaluated, observation.out, FORMATS["fp32"]).error
    with np.errstate(invalid="ignore"):
        near = np.abs(widen(observation.result) - evaluated.exact) <= allowed
    return bool(near.all() and np.isfinite(allowed).all())


def _explains_too(use: Use, observation: Observation, marked: Array, ways: Ways) -> bool:
    same = (
        other
        for other in ways(observation)
        if (other.fault, other.operand, other.text) == (use.fault, use.operand, use.text)
    )
    return any(_explains(other, observation, marked, 0) for other in same)


def _explains(use: Use, observation: Observation, marked: Array, fewest: int = FEWEST) -> bool:
    """Return whether every marked element of c is, within the bound, the one that the use gives.

    At least `fewest` of them have to be conclusive, or all.

    A narrow result is off by more than the sum was, so a float must also be one to which something
    within the sum's own bound rounds: lo <= c <= hi, of the roundings of both ends.
    """
    substituted, out = use.make(), observation.out
    if substituted is None or substituted.exact.shape != observation.result.shape:
        return False
    got = widen(observation.result)
    allowed = bound_rounding(substituted, out, FORMATS["fp32"]).error
    with np.errstate(invalid="ignore"):
        near = np.abs(got - substituted.exact) <= allowed
    # elements that may overflow, or that come from undefined lanes, are inconclusive
    known = marked & np.isfinite(allowed)
    if any(fault.kind == "undefined_stored" for fault in observation.faults):
        known &= ~np.isnan(got)
    if not near[known].all() or known.sum() < min(marked.sum(), fewest):
        return False
    if fewest and np.array_equal(substituted.exact[known], exact_values.exact(observation)[known]):
        return False  # it would change no wrong element
    if out.kind == "int":
        return True
    ends = (substituted.exact - substituted.error, substituted.exact + substituted.error)
    low, high = (widen(round_to(end, out)) for end in ends)
    return bool(((low <= got) & (got <= high))[known].all())


def _rounded_first(observation: Observation) -> str | None:
    """Return the finest format that the result was rounded to before its own.

    Judged where the formula's value is exact: there both roundings are known.
    """
    out, evaluated = observation.out, exact_values.evaluated(observation)
    if out.kind == "int":
        return None
    formats = [FORMATS[n] for n in FLOAT_OPERANDS if FORMATS[n].p < FORMATS["fp32"].p]
    for fmt in sorted((f for f in formats if f is not out), key=lambda f: -f.p):
        twice = widen(round_to(widen(round_to(evaluated.value, fmt)), out))
        if np.array_equal(twice[evaluated.exact], widen(observation.result)[evaluated.exact]):
            return fmt.name if exact_values.not_exact(observation).any() else None
    return None
