"""Symbolic strides of the layouts of operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from gemmproof.reference.symbolic.terms import (
    FALSE,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    make,
    some,
    term,
)
from gemmproof.reference.symbolic.tracing.symbolic_shapes import Decisions, without_imports

# operations that TensorIterator does element by element, by their names without underscores around
_ELEMENTWISE = (
    "abs", "add", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "div", "eq", "exp", "exp2", "ge", "gt", "le", "lshift",
    "lt", "maximum", "minimum", "mul", "ne", "neg", "pow", "remainder", "rshift", "sqrt", "sub",
)  # fmt: skip
_COPIES = ("aten::clone", "aten::_to_copy")
_MOST_AXES = 3  # from four on, channels may come last
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)

_Terms = tuple[list[Poly], list[Poly]]  # a shape and strides
_Layout = tuple[Sequence[Any], Sequence[Any] | None]  # no strides: the usual ones


def are_dense(shape: Sequence[Poly], strides: Sequence[Poly]) -> Cond:
    """Return the condition that elements are contiguous, the last axis innermost."""
    dense, size = [], term(1)
    for n, stride, usual in [*zip(shape, strides, _list_usual(shape), strict=True)][::-1]:
        if stride != usual:  # which is `size` if none of the axes is empty
            dense.append(eq(n, 1) | eq(stride, size))
        size = size * n
    return eq(size, 0) | every(dense) if dense else every(())


def _list_usual(shape: Sequence[Poly]) -> list[Poly]:
    """Return the strides that torch gives a dense tensor."""
    strides = [term(1)]
    for n in shape[:0:-1]:
        strides.insert(0, strides[0] * make("max", 1, n))
    return strides[: len(shape)]


def lay_out(sizes: Decisions, func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the result of an operation, without elements, or None if torch must find it."""
    name = func._schema.name
    is_copy = name in _COPIES
    if not (is_copy or name in _OWN or _is_elementwise(func)):
        return None
    operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if not operands or not all(_is_followed(sizes, x) for x in operands):
        return None
    for x in operands:
        for n in map(sizes.term, x.shape):
            if n.least < 1:
                sizes.decide(le(n, 0))  # whether a tensor is empty changes most answers
    if name in _OWN:
        return _OWN[name](sizes, *args, **kwargs)
    if not is_copy:
        layout = _combine(sizes, operands, any(isinstance(x, _NUMBERS) for x in args))
        return layout and _allocate(sizes, *layout, _get_dtype(func, args, kwargs))
    if any(_matters(operands[0], *option) for option in kwargs.items()):
        return None
    layout = _copy(sizes, operands[0])
    return layout and _allocate(sizes, *layout, kwargs.get("dtype") or operands[0].dtype)


def _allocate(sizes: Decisions, shape: Any, strides: Any, dtype: Any) -> torch.Tensor:
    before, sizes.sizing = sizes.sizing, True
    try:
        if strides is None:
            return torch.empty(shape, dtype=dtype, device="cpu")
        return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
    finally:
        sizes.sizing = before


def _is_followed(sizes: Decisions, x: torch.Tensor) -> bool:
    if not isinstance(x, FakeTensor) or x.fake_mode.shape_env is not sizes:
        return False
    return 0 < x.dim() <= _MOST_AXES and x.layout == torch.strided


def _matters(x: torch.Tensor, name: str, value: Any) -> bool:
    """Return whether an option of a copy may change its layout or its device."""
    usual = {"device": x.device, "layout": x.layout, "memory_format": torch.preserve_format}
    return name not in ("dtype", "non_blocking") and value not in (None, False, usual.get(name))


def _is_elementwise(func: Any) -> bool:
    name = func._schema.name.removeprefix("aten::").strip("_")
    known = name in _ELEMENTWISE and str(func) != "aten.pow.Tensor_Scalar"
    return known and not func._schema.is_mutable and func._overloadname != "out"


def _get_dtype(func: Any, args: Any, kwargs: Any) -> torch.dtype:
    """Return the type of a result, which torch computes from single elements."""

    def shrink(x: torch.Tensor) -> torch.Tensor:
        return torch.empty((1,) * x.dim(), dtype=x.dtype, device="meta")

    with torch.utils._python_dispatch._disable_current_modes(), without_imports():
        few = tree_map_only(torch.Tensor, shrink, (args, kwargs))
        few = tree_map_only(torch.SymInt, lambda x: 1, few)
        few = tree_map_only(torch.SymFloat, lambda x: 1.0, few)
        result: torch.Tensor = func(*few[0], **few[1])
    return result.dtype


# -- copies and what is computed element by element ----------------------------------------------
def _copy(sizes: Decisions, x: torch.Tensor) -> _Layout:
    """Return a copy's layout: packed strides are kept, else dense ones in the same axis order."""
    n, s = _measure(sizes, x)
    is_dense, is_empty = are_dense(n, s), eq(prod(n, start=term(1)), 0)
    free = [(eq(m, 1) | is_empty) & ~eq(y, z) for m, y, z in zip(n, s, _list_usual(n), strict=True)]
    if sizes.known.implies(is_dense) or sizes.decide(is_dense & some(free)):
        return x.shape, x.stride()
    if len(n) > 2 and sizes.decide(_are_packed(n, s) & ~is_dense):
        return x.shape, x.stride()
    return _order(sizes, x.shape, n, [(n, s)], is_dense)


def _are_packed(shape: Sequence[Poly], strides: Sequence[Poly]) -> Cond:
    """Return the condition that elements are contiguous in some order of the axes."""
    orders = itertools.permutations(zip(shape, strides, strict=True))
    return some(are_dense(*zip(*order, strict=True)) for order in orders)


def _combine(sizes: Decisions, operands: list[torch.Tensor], has_number: bool) -> _Layout | None:
    """Return a computed result's layout; the first operand that decides orders its axes."""
    axes = max(x.dim() for x in operands)
    shape: list[Any] = [1] * axes
    for x in operands:
        for axis, n in enumerate(x.shape, axes - x.dim()):
            fit = _fit(sizes, shape[axis], n)
            if fit is None:
                return None  # torch reports the error
            shape[axis] = fit
    whole = [*map(sizes.term, shape)]
    known = [_measure(sizes, x) for x in operands]
    is_dense = FALSE
    if not has_number and all(len(n) == axes for n, _ in known):
        alike = every(eq(n, m) for x, _ in known for n, m in zip(x, whole, strict=True))
        is_dense = every([alike, *(are_dense(n, s) for n, s in known)])
        same = (eq(x, y) for _, s in known for x, y in zip(s, known[0][1], strict=True))
        is_packed = every([alike, ~is_dense, _are_packed(*known[0]), *same])
        if axes > 2 and sizes.decide(is_packed):
            return shape, operands[0].stride()
    return _order(sizes, shape, whole, known, is_dense)


def _measure(sizes: Decisions, x: torch.Tensor) -> _Terms:
    return [*map(sizes.term, x.shape)], [*map(sizes.term, x.stride())]


def _fit(sizes: Decisions, size: Any, other: Any) -> Any:
    """Return the size of an axis that two operands share, or None if they do not fit."""
    n, m = sizes.term(size), sizes.term(other)
    if n == m or m.constant == 1:
        return size
    if n.constant == 1 or sizes.decide(eq(n, m)):
        return other
    if sizes.decide(eq(m, 1)):
        return size
    return other if sizes.decide(eq(n, 1)) else None


def _order(
    sizes: Decisions,
    shape: Sequence[Any],
    whole: list[Poly],
    operands: list[_Terms],
    is_dense: Cond,
) -> _Layout:
    """Return dense strides, the axes in the order of the operands'; None for the usual order."""
    axes = range(len(whole))
    swapped = [_differ(whole, operands, j, i)[0] for i, j in itertools.combinations(axes, 2)]
    if not sizes.decide(every([~is_dense, some(swapped)])):
        return shape, None
    order = [*reversed(axes)]
    for first in axes[1:]:
        here = first
        for at in reversed(range(first)):
            larger, smaller = _differ(whole, operands, order[at], order[here])
            if sizes.decide(larger):
                order[at], order[here] = order[here], order[at]
                here = at
            elif sizes.decide(smaller):
                break
    strides, step = [1] * len(order), 1
    for axis in order:
        strides[axis] = step
        step = step * shape[axis]
    return shape, strides


def _differ(shape: list[Poly], operands: list[_Terms], inner: int, outer: int) -> tuple[Cond, Cond]:
    """Return the conditions that an axis has a larger stride than another, and a smaller one.

    The first operand that distinguishes them decides: one that is broadcast along either does not.
    """
    larger = smaller = FALSE
    for n, s in reversed(operands):
        missing = len(shape) - len(n)
        if min(inner, outer) < missing:
            continue
        x, y = s[inner - missing], s[outer - missing]
        sides = ((n[axis - missing], shape[axis]) for axis in (inner, outer))
        is_spread = some(eq(size, 1) & ~eq(whole, 1) for size, whole in sides if size != whole)
        silent = is_spread | eq(x, 0) | eq(y, 0)
        tie = eq(x, y) & le(shape[inner], shape[outer])
        above = lt(y, x) | every([eq(x, y), lt(shape[outer], shape[inner])])
        if inner > outer and s == _list_usual(n) and shape[outer].least > 0:
            above = FALSE  # only axes of 1 tie
        larger, smaller = (
            every([~silent, differs]) | every([silent | tie, later])
            for differs, later in ((above, larger), (lt(x, y), smaller))
        )
    return larger, smaller


def _pad(sizes: Decisions, x: torch.Tensor, pads: Any, value: Any = 0) -> torch.Tensor | None:
    """Return the result of padding: a copy of a part if nothing is added anywhere."""
    shape, strides, offset = list(x.shape), x.stride(), x.storage_offset()
    enough = []
    for i, (first, last) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        axis = x.dim() - 1 - i
        n, *both = map(sizes.term, (shape[axis], first, last))
        enough += [le(0, n + both[0]), le(0, n + both[1]), le(0, n + both[0] + both[1])]
        shape[axis] = shape[axis] + first + last
        offset = offset - first * strides[axis]
    if not sizes.decide(every(enough)):
        raise RuntimeError("padding takes more than there is")
    if not sizes.decide(every(le(sizes.term(n), 0) for n in pads)):
        return _allocate(sizes, shape, None, x.dtype)
    layout = _copy(sizes, x.as_strided(shape, strides, offset))
    return layout and _allocate(sizes, *layout, x.dtype)


def _stack(sizes: Decisions, tensors: list[torch.Tensor], axis: int = 0) -> torch.Tensor | None:
    first, *others = tensors
    if first.dim() > 2 or any(x.dtype != first.dtype or x.dim() != first.dim() for x in others):
        return None
    n = first.shape
    if not sizes.decide(
        every(eq(*map(sizes.term, pair)) for x in others for pair in zip(n, x.shape, strict=True))
    ):
        return None
    shape: list[Any] = list(n)
    shape.insert(axis + first.dim() + 1 if axis < 0 else axis, len(tensors))
    return _allocate(sizes, shape, None, first.dtype)


# -- views ---------------------------------------------------------------------------------------
def _unsqueeze(sizes: Decisions, x: torch.Tensor, axis: int) -> torch.Tensor:
    shape, strides = list(x.shape), list(x.stride())
    axis += x.dim() + 1 if axis < 0 else 0
    strides.insert(axis, strides[axis] * shape[axis] if axis < x.dim() else 1)
    shape.insert(axis, 1)
    return x.as_strided(shape, strides, x.storage_offset())


def _view(sizes: Decisions, x: torch.Tensor, shape: Any) -> torch.Tensor | None:
    """Return a view of a dense tensor, which is dense too."""
    if isinstance(shape, torch.dtype):
        return None
    target, (n, s) = [*map(sizes.term, shape)], _measure(sizes, x)
    if s != _list_usual(n) or any(m.constant == -1 for m in target):
        return None
    if not sizes.decide(eq(prod(n, start=term(1)), prod(target, start=term(1)))):
        return None
    strides: list[Any] = [1]
    for m, size in zip(target[:0:-1], shape[:0:-1], strict=True):
        least = size if make("max", 1, m) == m else torch.sym_max(1, size)
        strides.insert(0, least * strides[0])
    return x.as_strided(list(shape), strides[: len(shape)], x.storage_offset())


_OWN: dict[str, Callable[..., torch.Tensor | None]] = {
    "aten::constant_pad_nd": _pad,
    "aten::stack": _stack,
    "aten::unsqueeze": _unsqueeze,
    "aten::view": _view,
    "aten::_unsafe_view": _view,
}
