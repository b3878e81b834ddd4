"""Reductions and scans along a block's axis, in an order that depends on nothing but the block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.cast import convert
from gemmproof.reference.machine.types import is_float, is_int
from gemmproof.reference.machine.value import Value, binary, lift, union

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


def associative_scan(
    input: Any, axis: int, combine_fn: Combine, reverse: bool = False
) -> Any:
    """tl.associative_scan: inclusive, one lane after the other."""
    values = tuple(lift(x) for x in _as_tuple(input))
    axis = _axis(values[0], axis)
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


def _widened(x: Value) -> Value:
    return convert(x, tl.float32) if x.dtype == tl.bfloat16 else x


def _sum_type(x: Value, dtype: Any) -> tl.dtype:
    if dtype is not None:
        return dtype
    if is_int(x.dtype) and x.dtype.int_bitwidth < 32:
        return tl.int32 if x.dtype.is_int_signed() else tl.uint32
    return x.dtype


def sum(input: Any, axis: int | None = None, keep_dims: bool = False, dtype: Any = None) -> Any:
    """tl.sum: small integers add in 32 bits, bf16 in fp32."""
    x = lift(input)
    if dtype is None:
        x = _widened(x)
    x = convert(x, _sum_type(x, dtype))
    return reduce(x, axis, lambda p, q: binary("+", p, q), keep_dims)


def xor_sum(input: Any, axis: int | None = None, keep_dims: bool = False) -> Any:
    """tl.xor_sum."""
    return reduce(lift(input), axis, lambda p, q: binary("^", p, q), keep_dims)


def reduce_or(input: Any, axis: int | None, keep_dims: bool = False) -> Any:
    """tl.reduce_or."""
    return reduce(lift(input), axis, lambda p, q: binary("|", p, q), keep_dims)


def extreme(
    op: str,
    input: Any,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """tl.max and tl.min (`op` is "max" or "min"): NaN loses against a number, as on the device."""
    x = _widened(lift(input))
    if is_int(x.dtype) and x.dtype.int_bitwidth < 32:
        x = convert(x, tl.int32 if x.dtype.is_int_signed() else tl.uint32)
    if return_indices:
        assert axis is not None
        return _extreme_at(op, x, _axis(x, axis), keep_dims)
    number = np.fmax if op == "max" else np.fmin

    def combine(p: Value, q: Value) -> Value:
        if not is_float(p.dtype):
            return binary(op, p, q)
        return Value(number(p.data, q.data), p.dtype, union(p.poison, q.poison))

    return reduce(x, axis, combine, keep_dims)


def _extreme_at(op: str, x: Value, axis: int, keep_dims: bool) -> tuple[Value, Value]:
    best = np.argmax if op == "max" else np.argmin
    data = x.data.astype(np.float64) if x.data.dtype.kind == "V" else x.data
    at = best(data, axis=axis + 1, keepdims=True)
    value = np.take_along_axis(x.data, at, axis=axis + 1)
    poison = None
    if x.poison is not None:
        whole = np.broadcast_to(x.poison, x.poison.shape[:1] + x.shape)
        poison = np.bitwise_or.reduce(whole, axis=axis + 1, keepdims=True)
    pair = (
        Value(value, x.dtype, poison),
        Value(at.astype(np.int32), tl.int32, poison),
    )
    if keep_dims:
        return pair
    first, second = (v.map(lambda d: d.squeeze(axis + 1)) for v in pair)
    return first, second


def arg_extreme(
    op: str, input: Any, axis: int, tie_break_left: bool = True, keep_dims: bool = False
) -> Value:
    """tl.argmax and tl.argmin; ties go left."""
    x = lift(input)
    return _extreme_at(op, x, _axis(x, axis), keep_dims)[1]


def cumulative(
    op: str, input: Any, axis: int = 0, reverse: bool = False, dtype: Any = None
) -> Any:
    """tl.cumsum and tl.cumprod (`op` is "+" or "*"): small integers in 32 bits, bf16 in fp32."""
    x = lift(input)
    x = convert(x, dtype) if dtype is not None else _widened(x)
    if op == "+":
        x = convert(x, _sum_type(x, dtype))
    return associative_scan(x, axis, lambda p, q: binary(op, p, q), reverse)


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


def topk(x: Any, k: int, dim: Any = None) -> Value:
    """tl.topk: the k largest along the last axis, descending."""
    value = lift(x)
    axis = _axis(value, -1 if dim is None else dim)
    return _take(sort(value, dim, descending=True), axis, slice(0, k))
