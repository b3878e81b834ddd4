"""What a kernel with a formula of its own may have used in an operand's place, or done with it.

Each way gives what c would be then: the formula of other elements, within its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from gemmproof.properties import values
from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.contract import ROLES
from gemmproof.properties.diagnosis.elements import Elements, list_blocks, list_elements
from gemmproof.properties.naming import axes_of, axis_named, introduce
from gemmproof.properties.observation import Observation
from gemmproof.properties.operand import WRITTEN
from gemmproof.reference.arithmetic import Array, format_of, widen
from gemmproof.reference.bounds import Accumulated
from gemmproof.reference.formats import FORMATS

MOST_PAIRS = 256  # ways to misuse two operands at once that are tried
MOST_LINES = 16  # rows or columns of c for which the formula is evaluated one by one


@dataclass(frozen=True, slots=True)
class Use:
    """A way to misuse an operand: its class, its words, whom it blames, and what c is then.

    `other` is the second operand of a way to misuse two. `make` gives None where the formula cannot
    be evaluated so.
    """

    fault: str
    words: str
    make: Callable[[], Accumulated | None]
    operand: str
    axis: str | None = None
    other: str | None = None


def list_uses(observation: Observation) -> Iterator[Use]:
    """Every way, those of the operands besides a and b first, and of one operand before two."""
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
            # an index that both are read at
            if (x.fault, x.words) == (y.fault, y.words) and _is_one_index(x, y):
                (of_x, axis), (of_y, _) = (
                    _along(observation, n, z) for n, z in ((first, x), (second, y))
                )
                words = f"as if {first}{of_x} and {second}{of_y} {x.words}"
                made = _by(observation, {first: x.used, second: y.used})
                yield Use(x.fault, words, made, first, axis)
    yield from _list_exchanged(observation, tensors)


def list_pairs(observation: Observation) -> Iterator[Use]:
    """Ways to forget, or to apply twice, two operands besides a and b at once."""
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
        words = f"as if {first} {x.words} and {second} {y.words}"
        fault = x.fault if x.fault == y.fault else "operands_misused"
        made = _by(observation, {first: x.used, second: y.used})
        yield Use(fault, words, made, first, other=second)


def _list_exchanged(observation: Observation, tensors: Sequence[str]) -> Iterator[Use]:
    """Two operands of one format and shape, each read in the other's place."""
    given = observation.operands
    for first, second in combinations(tensors, 2):
        x, y = given[first], given[second]
        if (x.dtype, x.tensor.shape) == (y.dtype, y.tensor.shape):
            made = _by(observation, {first: stored_elements(y), second: stored_elements(x)})
            name = first if first not in ROLES else second
            words = f"as if {first} and {second} were exchanged"
            yield Use("operand_exchanged", words, made, name)


def _along(observation: Observation, name: str, x: Elements) -> tuple[str, str | None]:
    """The words for the axis along which entries were mixed up, and the product's axis."""
    if x.axis is None:
        return "", None
    label = axes_of(observation, name)[x.axis]
    return f" along {'axis ' if label.isdigit() else ''}{label}", axis_named(label)


def _list_values(observation: Observation) -> Iterator[Use]:
    """Other Python values: 1 or 0 as where it is forgotten, its square, what else it may be."""
    kernel = observation.kernel
    given = kernel.values_of(observation.case)
    for name, one in kernel.choices.items():
        own, others = given[name], list(one.values)
        if isinstance(own, int | float) and not isinstance(own, bool):
            others = [type(own)(1), type(own)(0), *others]
            twice = partial(evaluate_as, observation, {name: own * own})
            yield Use("operand_applied_twice", f"as if {name} were applied twice", twice, name)
        for value in others:
            if repr(value) != repr(own):  # whatever they are, arrays too
                made = partial(evaluate_as, observation, {name: value})
                yield Use("operand_forgotten", f"as if {name} were {value!r}", made, name)


def _list_uses_of(observation: Observation, name: str, listed: Sequence[Elements]) -> Iterator[Use]:
    for x in listed:
        along, axis = _along(observation, name, x)
        words = f"as if {introduce(observation, name)} {x.words}{along}"
        yield Use(x.fault, words, _by(observation, {name: x.used}), name, axis)
    yield from _list_axes(observation, name)


def _is_one_index(x: Elements, y: Elements) -> bool:
    if x.axis is None or y.axis is None:
        return x.axis == y.axis and x.fault == "operand_forgotten"
    return bool(x.used.shape[x.axis] == y.used.shape[y.axis])


def _by(observation: Observation, changed: Mapping[str, Array]) -> Callable[[], Accumulated | None]:
    given = {}
    for name, used in changed.items():
        own = observation.operands[name].dtype
        # integers beyond their format are integers all the same
        kept = used.dtype == FORMATS[own].storage or used.dtype.kind in "iu"
        given[name] = (np.ascontiguousarray(used), own if kept else format_of(used.dtype).name)
    return partial(evaluate_as, observation, given)


def evaluate_as(
    observation: Observation, changed: Mapping[str, Any], between: str = "fp32"
) -> Accumulated | None:
    """What the formula gives with these in the place of some operands.

    `between`: the format of intermediate values. None where it cannot be evaluated so.
    """
    try:
        c = values.evaluate_with(observation, changed, between)[observation.part]
    except Exception:  # an index that is none any more, or a value that no formula takes
        return None
    return Accumulated(c.value, c.bound)


def _list_misread(observation: Observation, name: str) -> Iterator[Elements]:
    """What may have stood in an operand's place, where that is not what it is."""
    own = stored_elements(observation.operands[name])
    for x in list_elements(observation, name, own):
        if not np.array_equal(widen(x.used), widen(own)):
            yield x


def _list_axes(observation: Observation, name: str) -> Iterator[Use]:
    """An entry a row, read by the columns, or the reverse; 0 beyond the last one."""
    own = stored_elements(observation.operands[name])
    stated = observation.kernel.tensors.get(name)
    if stated is None or stated.axes not in (("M",), ("N",)):
        return
    axis = -1 if stated.axes == ("M",) else -2
    lines = observation.case.N if axis == -1 else observation.case.M

    def make() -> Accumulated | None:
        parts = []
        for i in range(lines):
            entry = own[i : i + 1] if i < len(own) else np.zeros(1, own.dtype)
            whole = _by(observation, {name: np.repeat(entry, len(own))})()
            # another result than c, as sums of rows, has not these lines
            if whole is None or whole.exact.ndim < 2 or whole.exact.shape[axis] != lines:
                return None
            parts.append([np.take(x, [i], axis) for x in (whole.exact, whole.error)])
        exact, error = (np.concatenate(part, axis) for part in zip(*parts, strict=True))
        return Accumulated(exact, error)

    # beside one row or column the other operands fit as well
    if len(own) > 1 and 1 < lines <= MOST_LINES:
        line = "columns" if axis == -1 else "rows"
        yield Use("operand_transposed", f"as if {name} were indexed by the {line} of c", make, name)


def _list_parts_of_k(observation: Observation) -> Iterator[Use]:
    """A range of k that is left out: rows of b that are 0."""
    K, own = observation.case.K, stored_elements(observation.operands["b"])
    stated = observation.kernel.tensors.get("b")
    axes = ("K", "N") if stated is None else stated.axes
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
        fault, words = ("last_k_block", "last") if end == K else ("k_block", "first")
        made = _by(observation, {"b": used})
        yield Use(fault, f"{span} left out, the {words} of K={K}", made, "c", "K")
