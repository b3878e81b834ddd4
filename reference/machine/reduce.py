"""Reductions and scans along a block's axis, in an order that depends on nothing but the block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.cast import convert
from gemmproof.reference.machine.types import is_float
from gemmproof.reference.machine.value import Value, lift

Combine = Callable[..., Any]


def _take(x: Value, axis: int, part: slice | list[int]) -> Value:
    key = (slice(None),) * (axis + 1) + (part,)
    return x.map(lambda data: data[key])


def _axis(x: Value, axis: int) -> int:
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise execution.kernel_error(f"axis: got {axis}, expected -{rank}..{rank - 1} for {x!r}")
    return axis % rank


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def reduce(input: Any, axis: int | None, combine_fn: Combine, keep_dims: bool = False) -> Any:
    """tl.reduce: halves are combined lane by lane until one lane is left (a balanced tree)."""
    values = tuple(lift(x) for x in _as_tuple(input))
    rank = len(values[0].shape)
    if axis is None:
        flat = tuple(x.map(lambda d: d.reshape(d.shape[0], -1)) for x in values)
        result = _tree(flat, 0, combine_fn)
        if keep_dims:
            result = tuple(r.map(lambda d: d.reshape(d.shape[:1] + (1,) * rank)) for r in result)
    else:
        axis = _axis(values[0], axis)
        result = _tree(values, axis, combine_fn)
        if keep_dims:
            result = tuple(r.map(lambda d: np.expand_dims(d, axis + 1)) for r in result)
    return result if isinstance(input, tuple | list) else result[0]


def _tree(values: tuple[Value, ...], axis: int, combine: Combine) -> tuple[Value, ...]:
    if any(is_float(x.dtype) for x in values):
        execution.rounds("reduce")
    while (n := values[0].shape[axis]) > 1:
        half = n // 2
        left = tuple(_take(x, axis, slice(0, half)) for x in values)
        right = tuple(_take(x, axis, slice(half, 2 * half)) for x in values)
        joined = _as_tuple(combine(*left, *right))
        if n % 2:
            rest = tuple(_take(x, axis, slice(n - 1, n)) for x in values)
            joined = tuple(_join(j, r, axis) for j, r in zip(joined, rest, strict=True))
        values = joined
    return tuple(x.map(lambda d: d.squeeze(axis + 1)) for x in values)


def _join(x: Value, y: Value, axis: int) -> Value:
    programs = max(x.data.shape[0], y.data.shape[0])

    def both(p: np.ndarray | None, q: np.ndarray | None) -> np.ndarray | None:
        if p is None and q is None:
            return None
        parts = []
        for part, value in ((p, x), (q, y)):
            part = np.zeros((1, *value.shape), np.uint8) if part is None else part
            parts.append(np.broadcast_to(part, (programs, *value.shape)))
        return np.concatenate(parts, axis=axis + 1)

    data = both(x.data, y.data)
    assert data is not None
    return Value(data, x.dtype, both(x.poison, y.poison))


def associative_scan(input: Any, axis: int, combine_fn: Combine, reverse: bool = False) -> Any:
    """tl.associative_scan: inclusive, one lane after the other."""
    values = tuple(lift(x) for x in _as_tuple(input))
    axis = _axis(values[0], axis)
    if any(is_float(x.dtype) for x in values):
        execution.rounds("scan")
    n = values[0].shape[axis]
    order = range(n - 1, -1, -1) if reverse else range(n)
    carry: tuple[Value, ...] | None = None
    lanes: list[tuple[Value, ...]] = []
    for i in order:
        lane = tuple(_take(x, axis, slice(i, i + 1)) for x in values)
        carry = lane if carry is None else _as_tuple(combine_fn(*carry, *lane))
        lanes.append(carry)
    if reverse:
        lanes.reverse()
    result = lanes[0]
    for lane in lanes[1:]:
        result = tuple(_join(r, x, axis) for r, x in zip(result, lane, strict=True))
    return result if isinstance(input, tuple | list) else result[0]


def bf16_to_fp32(x: Any) -> Value:
    """What Triton 3.6 does to bf16 before it sums or compares along an axis."""
    value = lift(x)
    return convert(value, tl.float32) if value.dtype == tl.bfloat16 else value


def reduce_with_indices(
    input: Any, axis: int, combine_fn: Combine, keep_dims: bool = False
) -> tuple[Value, Value]:
    """Reduce (value, index) pairs along an axis, as tl.max(return_indices=True) does."""
    x = lift(input)
    axis = _axis(x, axis)
    shape = (1,) * (axis + 1) + (x.shape[axis],) + (1,) * (len(x.shape) - axis - 1)
    index = np.arange(x.shape[axis], dtype=np.int32).reshape(shape)
    lanes = Value(np.broadcast_to(index, (1, *x.shape)), tl.int32)
    value, at = reduce((x, lanes), axis, combine_fn, keep_dims)
    return value, at


def sort(x: Any, dim: Any = None, descending: bool = False) -> Value:
    """tl.sort: ascending along the last axis; undefined lanes leave the whole line undefined."""
    value = lift(x)
    axis = _axis(value, -1 if dim is None else dim) + 1
    data = np.sort(value.data, axis=axis)
    if descending:
        data = np.flip(data, axis)
    poison = None
    if value.poison is not None:
        whole = np.broadcast_to(value.poison, value.poison.shape[:1] + value.shape)
        line = np.bitwise_or.reduce(whole, axis=axis, keepdims=True)
        poison = np.broadcast_to(line, whole.shape)
    return Value(data, value.dtype, poison)


def topk(x: Any, k: int, dim: Any = None, descending: bool = True) -> Value:
    """tl.topk: the k largest along the last axis, descending; the k smallest if not descending."""
    value = lift(x)
    axis = _axis(value, -1 if dim is None else dim)
    return _take(sort(value, dim, descending), axis, slice(0, k))
