"""What torch's operations leave in the views that they fill: zeros, or elements of other views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmproof.reference.symbolic.obligations.coordinates import locate
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    make,
    term,
)
from gemmproof.reference.symbolic.wrapper.record import Memory, TensorView, TorchCall
from gemmproof.reference.ttir.dtypes import DTYPES

ZEROS = ("aten.zeros", "aten.zero_", "aten.new_zeros", "aten.zeros_like")
COPIES = ("aten.clone", "aten._to_copy", "aten.copy_")
PAD = "aten.constant_pad_nd"

Index = tuple[Poly, ...]
Part = tuple[Cond, Memory | None, Index]


class NotCopied(Exception):
    """An operation that is no copy, as far as terms show; the message says which."""


@dataclass(frozen=True, slots=True)
class Cutout:
    """Where an element of a memory lies in a view of it: the index there, if it is inside."""

    inside: Cond
    at: Index


def get_base(call: TorchCall) -> str:
    """The name of an operation without its overload."""
    return call.name.rsplit(".", 1)[0]


def is_dense(solver: Solver, memory: Memory) -> bool:
    """Whether the elements of a memory follow each other, its axes in some order."""
    axes = [x for x in zip(memory.shape, memory.strides, strict=True) if x[0].constant != 1]
    return _is_dense(solver, axes, [term(1)])


def _is_dense(solver: Solver, axes: list[tuple[Poly, Poly]], steps: list[Poly]) -> bool:
    """Whether one of the axes has one of these strides, and the others go on from there."""
    inner = [x for x in axes if x[1] in steps]
    inner += [x for x in axes if any(solver.follows(eq(x[1], step)) == YES for step in steps)]
    for axis in dict.fromkeys(inner):
        others = [x for x in axes if x is not axis]
        size, step = axis  # where there is no element at all, any stride will do
        further = [step * size, step * make("max", size, 1), step * make("max", 1, size)]
        if _is_dense(solver, others, further):
            return True
    return not axes


def find_box(solver: Solver, view: TensorView, at: Sequence[Poly]) -> Cutout:
    """Where the element `at` of a memory lies in a view of it. Raises NotCopied and NoView."""
    memory = view.memory
    axes, starts = _match(solver, view)
    inside = []
    for axis, (x, first) in enumerate(zip(at, starts, strict=True)):
        if axis not in axes:
            inside.append(eq(x, first))
            continue
        size = view.shape[axes.index(axis)]
        if first != term(0) or size != memory.shape[axis]:
            inside += [le(first, x), lt(x, first + size)]
    return Cutout(every(inside), tuple(at[axis] - starts[axis] for axis in axes))


def _match(solver: Solver, view: TensorView) -> tuple[list[int], Index]:
    """The axis of a memory along which each axis of a view lies, and where the view begins."""
    memory = view.memory
    if view.dtype != memory.dtype:
        raise NotCopied(f"{memory.dtype} seen as {view.dtype}")
    starts = locate(view.offset, memory.shape, memory.strides)
    axes: list[int] = []
    for i, step in enumerate(view.strides):
        free = [j for j, x in enumerate(memory.strides) if x == step and j not in axes]
        if not free:
            raise NotCopied("a view that is no box of it")
        axes.append(i if i in free else free[0])
    # a box that ran over an axis would hold elements of other indices
    sizes = [view.shape[axes.index(j)] if j in axes else term(1) for j in range(len(starts))]
    for first, size, whole in zip(starts, sizes, memory.shape, strict=True):
        for goal in (le(0, first), le(first + size, whole)):
            if solver.follows(goal) != YES and not _is_empty(solver, view):
                raise NotCopied("a view that may run over its axes")
    return axes, starts


def _is_empty(solver: Solver, view: TensorView) -> bool:
    return any(solver.follows(eq(n, 0)) == YES for n in view.shape)


def locate_in(solver: Solver, view: TensorView, at: Sequence[Poly]) -> Index:
    """The index in its memory of a view's element. Raises NotCopied and NoView."""
    axes, starts = _match(solver, view)
    found = list(starts)
    for axis, x in zip(axes, at, strict=True):
        found[axis] = found[axis] + x
    return tuple(found)


def list_filled(
    solver: Solver, call: TorchCall, view: TensorView, at: Sequence[Poly]
) -> Iterator[Part]:
    """What an operation leaves at an index of its output, in each case: where no memory, 0.

    Raises NotCopied and NoView.
    """
    base = get_base(call)
    if is_zeros(call):
        yield TRUE, None, ()
        return
    if base not in (*COPIES, PAD) or len(call.outputs) != 1:
        raise NotCopied(f"it is changed by {base}")
    source = get_copied(call)
    if source is None or source.storage == view.storage or not _keeps(source.dtype, view.dtype):
        raise NotCopied(f"{base} of other numbers")
    if base == PAD:
        yield from _pad(solver, call, source, at)
        return
    yield TRUE, source.memory, locate_in(solver, source, _spread(source, view, at))


def get_copied(call: TorchCall) -> TensorView | None:
    """What a copy copies, None where that is no tensor."""
    source = call.args[1] if get_base(call) == "aten.copy_" else call.args[0]
    return source if isinstance(source, TensorView) else None


def is_zeros(call: TorchCall) -> bool:
    """Whether an operation leaves nothing but 0 in its output."""
    base = get_base(call)
    filled = {"aten.fill_": 1, "aten.full": 1, "aten.new_full": 2, "aten.full_like": 1}
    if base in filled and len(call.args) > filled[base]:
        return _is_nothing(call.args[filled[base]])
    return base in ZEROS


def _is_nothing(number: Any) -> bool:
    number = number.constant if isinstance(number, Poly) else number
    return isinstance(number, int | float) and number == 0


def _spread(source: TensorView, view: TensorView, at: Sequence[Poly]) -> Index:
    """The index in what is copied of an index in what it is copied to: an axis of 1 is spread."""
    found = []
    own = at[len(at) - len(source.shape) :]
    target = view.shape[len(at) - len(source.shape) :]
    if len(own) != len(source.shape):
        raise NotCopied("a copy of more axes")
    for n, m, x in zip(source.shape, target, own, strict=True):
        if n != m and n.constant != 1:
            raise NotCopied("a copy of another shape")
        found.append(x if n == m else term(0))
    return tuple(found)


def _pad(solver: Solver, call: TorchCall, source: TensorView, at: Sequence[Poly]) -> Iterator[Part]:
    value = call.args[2] if len(call.args) > 2 else call.kwargs.get("value", 0)
    if not _is_nothing(value):
        raise NotCopied("padded with other numbers than 0")
    pads, index, inside = call.args[1], list(at), []
    for i in range(len(pads) // 2):
        axis = len(at) - 1 - i
        index[axis] = index[axis] - term(pads[2 * i])
        inside += [le(0, index[axis]), lt(index[axis], source.shape[axis])]
    yield every(inside), source.memory, locate_in(solver, source, index)


def _keeps(before: str, after: str) -> bool:
    """Whether a conversion keeps every number."""
    x, y = DTYPES.get(before), DTYPES.get(after)
    if x is None or y is None:
        return False
    return x == y or (y.bits > x.bits and x.is_float and y.is_float)
