"""Hypotheses on a wrong result: each evaluates the kernel's formula on altered operands."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gemmproof.properties.cases.operands import AllocatedOperand, stored_elements, view_strided
from gemmproof.properties.contract import ROLES
from gemmproof.properties.judges import exact_values
from gemmproof.properties.kernel import WRITTEN
from gemmproof.properties.observation import ObservedCase, axes_of, axis_named, introduce
from gemmproof.reference.arithmetic import (
    Array,
    format_of,
    round_to,
    truncate_tf32,
    widen,
    widen_nearest,
)
from gemmproof.reference.bounds import Accumulated
from gemmproof.reference.formats import FLOAT_OPERANDS, FORMATS, Format

# -- elements of an operand ----------------------------------------------------------------------
MOST_CUTS = 16  # indices at which an operand may end too early, and blocks of k
# the nibbles of a word from which AWQ's kernels read its eight columns, one after the other
AWQ = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True, slots=True)
class Elements:
    """A possible replacement of an operand's elements: class, text, and misindexed axis, if any.

    `way` fills the braces of the text: several ways may give the same elements.
    """

    fault: str
    text: str
    used: Array
    axis: int | None = None
    way: str = ""


def list_elements(observation: ObservedCase, name: str, own: Array) -> Iterator[Elements]:
    """Yield every possible replacement of an operand's elements, the simplest first."""
    operand, declared = observation.operands[name], name in observation.kernel.tensors
    if name not in ROLES:
        yield from _list_numbers(observation, name, own)
    if own.dtype.kind in "iu" and declared:
        yield from _list_bits(own)
    # one row has no strides to exchange
    for way, other in _list_readings(operand) if own.ndim > 1 else ():
        yield Elements("operand_strides", "were read with {}", other, way=way)
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
    for text, other in _list_strided(operand) if declared and own.size else ():
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
    yield "operand_shifted", "were one behind, the first 0", index - 1
    yield "operand_shifted", "were one ahead, the last 0", np.where(index < last, index + 1, -1)
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


def _list_readings(operand: AllocatedOperand) -> Iterator[tuple[str, Array]]:
    """Yield the operand as other strides give it, if they stay in its parent."""
    view = operand.view
    _, rows, columns = view.shape
    plane, row, column = view.strides
    for text, strides in (
        ("its strides swapped", (plane, column, row)),
        ("row-major dense strides", (rows * columns, columns, 1)),
        ("column-major dense strides", (rows * columns, 1, rows)),
        ("a column stride of 1", (plane, row, 1)),
        ("a row stride of 1", (plane, 1, column)),
        ("a batch stride of 0", (0, row, column)),
        ("a batch stride of its rows", (rows * row, row, column)),
    ):
        last = sum((n - 1) * s for n, s in zip(view.shape, strides, strict=True))
        steps = [(s, t) for n, s, t in zip(view.shape, strides, view.strides, strict=True) if n > 1]
        if any(s != t for s, t in steps) and view.first + last < view.extent:
            other = view_strided(operand.parent, replace(view, strides=strides))
            yield text, np.ascontiguousarray(other).reshape(tuple(operand.tensor.shape))


def _list_strided(operand: AllocatedOperand) -> Iterator[tuple[str, Array]]:
    """Yield the operand as other strides give it, from its sides and its own strides, inside it.

    Of three axes either the first one's stride differs or those of the last two.
    """
    view, axes = operand.view, operand.tensor.dim()
    shape, own = view.shape[3 - axes :], view.strides[3 - axes :]
    within = sum((n - 1) * s for n, s in zip(shape, own, strict=True))
    steps = sorted({0, 1, *own[-2:], *shape})
    choices = [(*own[:-2], *last) for last in itertools.product(steps, repeat=min(axes, 2))]
    if axes == 3:
        areas = sorted({m * n for m in shape for n in shape} | set(steps))
        choices += [(area, *own[1:]) for area in areas]
    flat = operand.parent[view.first : view.first + within + 1]
    for strides in choices:
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if strides != own and 0 < reach <= within:
            places = (np.arange(n) * s for n, s in zip(shape, strides, strict=True))
            at = functools.reduce(np.add.outer, places)
            yield f"strides {strides} in place of {own}", np.ascontiguousarray(flat[at])


def _list_numbers(observation: ObservedCase, name: str, own: Array) -> Iterator[Elements]:
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
        inverse = tuple(np.argsort(AWQ).tolist())
        orders |= {
            f"read as {' '.join(map(str, AWQ))}, which is AWQ's order": AWQ,
            f"read as {' '.join(map(str, inverse))}, the inverse of AWQ's order": inverse,
        }
    wide = code.astype(np.uint64)
    for label, order in orders.items():
        reordered = np.zeros_like(wide)
        for to, of in enumerate(order):
            reordered |= ((wide >> np.uint64(4 * of)) & np.uint64(15)) << np.uint64(4 * to)
        used = reordered.astype(code.dtype).view(own.dtype)
        yield Elements("operand_nibbles", f"had the nibbles of its words {label}", used)


def list_blocks(observation: ObservedCase, *axes: int) -> list[int]:
    """List the sides of tiles along these axes of M, N, K, or candidates if no dot has one."""
    known = sorted({tile[axis] for tile in observation.tiles for axis in axes})
    return known or [2**i for i in range(3, 11)]


# -- hypotheses ----------------------------------------------------------------------------------
MOST_PAIRS = 256  # ways to misuse two operands at once that are tried
MOST_LINES = 16  # rows or columns of c for which the formula is evaluated one by one


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A possible cause of a wrong result: its class, its text, and the result that it gives.

    `evaluate` returns None if the formula cannot be evaluated so. `other` is the second operand of
    a misuse of two. `way` fills the braces of the text: several ways may give the same result.
    `between` is a format that the result is rounded to before its own.
    """

    fault: str
    text: str
    evaluate: Callable[[], Accumulated | None]
    operand: str = "c"
    axis: str | None = None
    other: str | None = None
    way: str = ""
    between: Format | None = None


def list_hypotheses(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield every hypothesis, on operands other than a and b first, and on one before two."""
    tensors = [name for name, x in observation.operands.items() if x.use != WRITTEN]
    further = [name for name in tensors if name not in ROLES]
    listed = {name: list(_list_misread(observation, name)) for name in tensors}
    yield from _list_values(observation)
    for name in further:
        yield from _list_uses_of(observation, name, listed[name])
    yield from _list_parts_of_k(observation)
    for name in ROLES:
        yield from _list_uses_of(observation, name, listed[name])
    for first, second in (*itertools.combinations(further, 2), tuple(ROLES)):
        for x, y in itertools.product(listed[first], listed[second]):
            # both are read at the same index
            if (x.fault, x.text, x.way) == (y.fault, y.text, y.way) and _is_one_index(x, y):
                (of_x, axis), (of_y, _) = (
                    _along(observation, n, z) for n, z in ((first, x), (second, y))
                )
                names = [introduce(observation, name) for name in (first, second)]
                text = f"as if {names[0]}{of_x} and {names[1]}{of_y} {x.text}"
                evaluate = _by(observation, {first: x.used, second: y.used})
                yield Hypothesis(x.fault, text, evaluate, first, axis, way=x.way)
    yield from _list_exchanged(observation, tensors)
    yield from _list_lanes_beyond_k(observation)
    yield from _list_results(observation)
    yield from list_roundings(observation)


def list_pairs(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield pairs of operands other than a and b, each forgotten or applied twice."""
    further = [n for n, x in observation.operands.items() if n not in ROLES and x.use != WRITTEN]
    simple = ("operand_forgotten", "operand_applied_twice")
    listed = {
        name: [x for x in _list_misread(observation, name) if x.fault in simple] for name in further
    }
    pairs = [
        (first, x, second, y)
        for first, second in itertools.combinations(further, 2)
        for x, y in itertools.product(listed[first], listed[second])
    ]
    for first, x, second, y in pairs if len(pairs) <= MOST_PAIRS else ():
        text = f"as if {first} {x.text} and {second} {y.text}"
        fault = x.fault if x.fault == y.fault else "operands_misused"
        evaluate = _by(observation, {first: x.used, second: y.used})
        yield Hypothesis(fault, text, evaluate, first, other=second)


def _list_exchanged(observation: ObservedCase, tensors: Sequence[str]) -> Iterator[Hypothesis]:
    """Yield two operands of one format and shape, each read in the other's place."""
    operands = observation.operands
    for first, second in itertools.combinations(tensors, 2):
        x, y = operands[first], operands[second]
        if (x.dtype, x.tensor.shape) == (y.dtype, y.tensor.shape):
            evaluate = _by(observation, {first: stored_elements(y), second: stored_elements(x)})
            name = first if first not in ROLES else second
            text = f"as if {first} and {second} were exchanged"
            yield Hypothesis("operand_exchanged", text, evaluate, name)


def _along(observation: ObservedCase, name: str, x: Elements) -> tuple[str, str | None]:
    """Return the text for the misindexed axis, and the product's axis."""
    if x.axis is None:
        return "", None
    label = axes_of(observation, name)[x.axis]
    return f" along {'axis ' if label.isdigit() else ''}{label}", axis_named(label)


def _list_values(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield other Python values: 1 or 0 as if forgotten, its square, its other options."""
    kernel = observation.kernel
    values = kernel.values_of(observation.case)
    for name, choice in kernel.choices.items():
        own, others = values[name], list(choice.values)
        if isinstance(own, int | float) and not isinstance(own, bool):
            others = [type(own)(1), type(own)(0), *others]
            twice = partial(evaluate_as, observation, {name: own * own})
            yield Hypothesis(
                "operand_applied_twice", f"as if {name} were applied twice", twice, name
            )
        for value in others:
            if repr(value) != repr(own):  # of any type, arrays too
                evaluate = partial(evaluate_as, observation, {name: value})
                text = f"as if {name} were {value!r}"
                yield Hypothesis("operand_forgotten", text, evaluate, name)


def _list_uses_of(
    observation: ObservedCase, name: str, listed: Sequence[Elements]
) -> Iterator[Hypothesis]:
    for x in listed:
        along, axis = _along(observation, name, x)
        text = f"as if {introduce(observation, name)} {x.text}{along}"
        yield Hypothesis(x.fault, text, _by(observation, {name: x.used}), name, axis, way=x.way)
    yield from _list_axes(observation, name)


def _is_one_index(x: Elements, y: Elements) -> bool:
    if x.axis is None or y.axis is None:
        return x.axis == y.axis and (x.fault == "operand_forgotten" or x.way != "")
    return bool(x.used.shape[x.axis] == y.used.shape[y.axis])


def _by(
    observation: ObservedCase, changed: Mapping[str, Array]
) -> Callable[[], Accumulated | None]:
    replaced = {}
    for name, used in changed.items():
        own = observation.operands[name].dtype
        # integers beyond their format are still integers
        kept = used.dtype == FORMATS[own].storage or used.dtype.kind in "iu"
        replaced[name] = (np.ascontiguousarray(used), own if kept else format_of(used.dtype).name)
    return partial(evaluate_as, observation, replaced)


def evaluate_as(
    observation: ObservedCase, changed: Mapping[str, Any], **rules: str
) -> Accumulated | None:
    """Evaluate the formula with these in place of some operands, or under other `rules`.

    None if it cannot be evaluated so.
    """
    try:
        c = exact_values.evaluate_with(observation, changed, **rules)[observation.part]
    except Exception:  # an invalid index, or a value that the formula rejects
        return None
    return Accumulated(c.value, c.bound)


def _list_misread(observation: ObservedCase, name: str) -> Iterator[Elements]:
    """Yield the possible replacements of an operand's elements that differ from them."""
    own = stored_elements(observation.operands[name])
    for x in list_elements(observation, name, own):
        if not np.array_equal(widen(x.used), widen(own)):
            yield x


def _list_axes(observation: ObservedCase, name: str) -> Iterator[Hypothesis]:
    """Yield an entry per row that is read by the columns, or the reverse; 0 beyond the last one."""
    own = stored_elements(observation.operands[name])
    declared = observation.kernel.tensors.get(name)
    if declared is None or declared.axes not in (("M",), ("N",)):
        return
    axis = -1 if declared.axes == ("M",) else -2
    lines = observation.case.N if axis == -1 else observation.case.M

    def evaluate() -> Accumulated | None:
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
        text = f"as if {name} were indexed by the {line} of c"
        yield Hypothesis("operand_transposed", text, evaluate, name)


def _list_parts_of_k(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield ranges of k that are left out or added twice: rows of b that are 0 or doubled."""
    K, along = observation.case.K, _find_k(observation, "b")
    if along is None:
        return
    own, fmt = stored_elements(observation.operands["b"]), observation.operands["b"].dtype
    if own.dtype.kind in "iu":
        twice = own.astype(np.int32) * 2
    else:
        twice = round_to(widen(own) * 2, FORMATS[fmt].stored)
    ranges = [(K - 1, K)]
    for block in list_blocks(observation, 2):
        last = (K - 1) // block * block
        ranges += [(last, K), (0, last), (0, block), (block, K)]
        starts = range(block, last, block)[-MOST_CUTS:]
        ranges += [(start, end) for start in starts for end in (start + block, K)]
    for start, end in dict.fromkeys(ranges):
        if not 0 <= start < min(end, K) or end > K:
            continue
        fault = "last_k_block" if end == K else "k_block"
        position = ", the last" if end == K else ", the first" if start == 0 else ""
        span = f"k {start} is" if end - start == 1 else f"k {start}..{end - 1} are"
        for other, verb in ((np.zeros_like(own), "left out"), (twice, "added twice")):
            used = own.astype(other.dtype)
            rows = (slice(None),) * along + (slice(start, end),)
            used[rows] = other[rows]
            text = f"{span} {verb}{position} of K={K}"
            yield Hypothesis(fault, text, _by(observation, {"b": used}), axis="K")


def _find_k(observation: ObservedCase, name: str) -> int | None:
    """Return the axis of a or b that is K, or None if it is not one of them."""
    declared = observation.kernel.tensors.get(name)
    axes = ROLES[name].axes if declared is None else declared.axes
    if "K" not in axes:
        return None
    return axes.index("K") - len(axes) + observation.operands[name].tensor.dim()


def _list_lanes_beyond_k(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield lanes from K to the end of a block that are added: ones in a, and one number in b."""
    along = {name: _find_k(observation, name) for name in ROLES}
    wrong = exact_values.not_exact(observation)
    off = widen_nearest(observation.result)[wrong] - exact_values.exact(observation)[wrong]
    if None in along.values() or not len(off) or not np.isfinite(off).all():
        return
    for lanes in sorted({-observation.case.K % n for n in list_blocks(observation, 2)} - {0}):
        products = {float(x) for x in np.rint(off / lanes)}
        # all are off by the same, or it is something else
        if len(products) > 1 or not any(products):
            continue
        (number,) = products
        changed = {}
        for name, value in zip(ROLES, (1.0, number), strict=True):
            own, axis = stored_elements(observation.operands[name]), along[name]
            shape = [lanes if i == axis else n for i, n in enumerate(own.shape)]
            more = np.full(shape, value).astype(own.dtype)
            changed[name] = np.concatenate((own, more), axis)
        text = (
            f"as if the {lanes} lanes from k = {observation.case.K} to the end of its block held"
            f" products of {number:g}"
        )
        yield Hypothesis("k_tail", text, _by(observation, changed), axis="K")


def _list_results(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield a result that is transposed, or whose integers wrapped around."""
    out, shape = observation.out, observation.result.shape
    base = partial(evaluate_as, observation, {})

    def transpose() -> Accumulated | None:
        c = base()
        return c and Accumulated(np.swapaxes(c.exact, -1, -2), np.swapaxes(c.error, -1, -2))

    def wrap() -> Accumulated | None:
        c = base()
        if c is None or c.error.any() or (c.exact % 1).any():
            return None
        return Accumulated(widen(c.exact.astype(np.int64).astype(out.storage)), c.error)

    if len(shape) > 1 and shape[-1] == shape[-2] > 1:
        yield Hypothesis("operand_transposed", "the result is transposed", transpose)
    if out.kind == "int":
        text = f"the exact result modulo 2**{8 * out.itemsize}, wrapped around"
        yield Hypothesis("wrapped", text, wrap)


def list_roundings(observation: ObservedCase) -> Iterator[Hypothesis]:
    """Yield operands rounded to fewer bits, and a result rounded to another format first."""
    finest_first = sorted((FORMATS[n] for n in FLOAT_OPERANDS), key=lambda f: (-f.p, f.emin))
    own = {name: stored_elements(observation.operands[name]) for name in ROLES}
    floats = {name: x for name, x in own.items() if x.dtype.kind not in "iu"}
    for fmt in finest_first:
        fewer = {name: widen(round_to(x, fmt)).astype(x.dtype) for name, x in floats.items()}
        if any((widen(x) != widen(own[name])).any() for name, x in fewer.items()):
            text, evaluate = "what operands rounded to {} give", _by(observation, fewer)
            yield Hypothesis("rounding", text, evaluate, way=fmt.name)
    if floats and all(x.dtype == np.float32 for x in floats.values()):
        cut = {name: truncate_tf32(x) for name, x in floats.items()}
        text = "what operands truncated to tf32 give"
        yield Hypothesis("rounding", text, _by(observation, cut))
    base = partial(evaluate_as, observation, {})
    for fmt in (f for f in finest_first if f.p < FORMATS["fp32"].p and f is not observation.out):
        text = "as if the result were rounded to {} first"
        yield Hypothesis("rounded_twice", text, base, way=fmt.name, between=fmt)
