"""Making blocks and changing their shape: arange, full, reshape, permute, join and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.cast import convert
from gemmproof.reference.machine.value import (
    Value,
    check_shapes,
    is_number,
    lift,
    pad_rank,
    scalar,
    union,
)

MAX_NUMEL = 1 << 20  # Triton's own limit on a block's elements


def program_id(axis: int) -> Value:
    """tl.program_id: int32, one a program."""
    part = execution.current()
    axis = constant(axis)
    if axis not in (0, 1, 2):
        raise execution.kernel_error(f"program_id: got axis {axis}, expected 0, 1 or 2")
    x, y, _ = part.grid
    ids = {0: part.programs % x, 1: part.programs // x % y, 2: part.programs // (x * y)}[axis]
    if part.grid[axis] == 1:
        ids = ids[:1]
    return Value(ids.astype(np.int32), tl.int32)


def num_programs(axis: int) -> Value:
    """tl.num_programs: int32, the grid's size along an axis."""
    return scalar(execution.current().grid[constant(axis)], tl.int32)


def constant(x: Any) -> int:
    """An integer known when the kernel is compiled. Raises KernelError for anything else."""
    if isinstance(x, tl.constexpr):
        x = x.value
    if not is_number(x) or int(x) != x:
        raise execution.kernel_error(f"got {x!r}, expected a constant integer")
    return int(x)


def shape_of(dims: tuple[Any, ...]) -> list[int]:
    """A shape given as one sequence or as several arguments."""
    if len(dims) == 1 and not is_number(dims[0]):
        dims = tuple(dims[0])
    return [constant(n) for n in dims]


def block_shape(shape: Any) -> list[int]:
    """A shape that a block may have: powers of two, within Triton's limit."""
    sizes = shape_of((shape,))
    for n in sizes:
        if n < 1 or n & (n - 1):
            raise execution.kernel_error(f"shape {sizes}: got {n}, expected a power of 2")
    if int(np.prod(sizes, dtype=np.int64)) > MAX_NUMEL:
        raise execution.kernel_error(f"shape {sizes} has more than {MAX_NUMEL} elements")
    return sizes


def arange(start: Any, end: Any) -> Value:
    """tl.arange: int32 from `start` to `end`, a power of two many."""
    start, end = constant(start), constant(end)
    block_shape([end - start]) if end > start else None
    if end <= start:
        raise execution.kernel_error(f"arange: got {start}..{end}, expected start < end")
    return Value(np.arange(start, end, dtype=np.int32)[None], tl.int32)


def full(shape: Any, value: Any, dtype: tl.dtype) -> Value:
    """tl.full: a block of one value, which may be a runtime scalar."""
    if value is None:
        raise execution.kernel_error("full: got value None, expected a scalar")
    x = scalar(value, dtype) if is_number(value) else convert(lift(value), dtype)
    return broadcast_to(x, block_shape(shape))


def zeros(shape: Any, dtype: tl.dtype) -> Value:
    """tl.zeros."""
    return full(shape, 0, dtype)


def zeros_like(input: Any) -> Value:
    """tl.zeros_like."""
    x = lift(input)
    return full(x.shape, 0, x.dtype)


def broadcast_to(input: Any, *shape: Any) -> Value:
    """tl.broadcast_to: a view, no copy."""
    x, sizes = lift(input), shape_of(shape)
    if x.shape and len(x.shape) != len(sizes):
        raise execution.kernel_error(f"cannot broadcast {x!r} to {sizes}")
    if any(m not in (1, n) for m, n in zip(x.shape, sizes, strict=False)):
        raise execution.kernel_error(f"cannot broadcast {x!r} to {sizes}")

    def widen(data: np.ndarray) -> np.ndarray:
        return np.broadcast_to(pad_rank(data, len(sizes) + 1), (data.shape[0], *sizes))

    return x.map(widen)


def broadcast(input: Any, other: Any) -> tuple[Value, Value]:
    """tl.broadcast: both blocks in their common shape."""
    x, y = lift(input), lift(other)
    check_shapes(x, y)
    shape = np.broadcast_shapes(x.shape, y.shape)
    return _to_rank(x, shape), _to_rank(y, shape)


def _to_rank(x: Value, shape: Sequence[int]) -> Value:
    x = x.map(lambda d: pad_rank(d, len(shape) + 1)) if x.shape else x
    return broadcast_to(x, list(shape))


def expand_dims(input: Any, axis: Any) -> Value:
    """tl.expand_dims: new axes of length 1 at these places of the result."""
    x = lift(input)
    axes = [constant(axis)] if is_number(axis) else [constant(a) for a in axis]
    rank = len(x.shape) + len(axes)
    for place in sorted(a % rank for a in axes):
        x = x.map(lambda d, place=place: np.expand_dims(d, place + 1))  # type: ignore[misc]
    return x


def reshape(input: Any, *shape: Any, can_reorder: bool = False) -> Value:
    """tl.reshape, tl.view: row-major order is kept (also where the compiler might reorder)."""
    x, sizes = lift(input), shape_of(shape)
    if int(np.prod(sizes)) != x.numel:
        raise execution.kernel_error(f"cannot reshape {x!r} to {sizes}: element counts differ")
    return x.map(lambda d: d.reshape(d.shape[0], *sizes))


def ravel(x: Any, can_reorder: bool = False) -> Value:
    """tl.ravel."""
    return reshape(x, [lift(x).numel])


def permute(input: Any, *dims: Any) -> Value:
    """tl.permute."""
    x, order = lift(input), shape_of(dims)
    if sorted(order) != list(range(len(x.shape))):
        raise execution.kernel_error(f"permute: got {order} for {x!r}")
    return x.map(lambda d: d.transpose(0, *(k + 1 for k in order)))


def trans(input: Any, *dims: Any) -> Value:
    """tl.trans: the last two axes are exchanged unless an order is given."""
    x = lift(input)
    if dims:
        return permute(x, *dims)
    if len(x.shape) < 2:
        raise execution.kernel_error(f"trans: got {x!r}, expected rank 2 or more")
    order = list(range(len(x.shape)))
    order[-1], order[-2] = order[-2], order[-1]
    return permute(x, order)


def squeeze(x: Any, dim: Any) -> Value:
    """tl.squeeze."""
    return lift(x).map(lambda d: d.squeeze(constant(dim) + 1))


def unsqueeze(x: Any, dim: Any) -> Value:
    """tl.unsqueeze."""
    return expand_dims(x, dim)


def _stack(x: Value, y: Value, axis: int, place: Any) -> Value:
    programs = max(x.data.shape[0], y.data.shape[0])

    def widen(part: np.ndarray | None, value: Value) -> np.ndarray:
        part = np.zeros((1, *value.shape), np.uint8) if part is None else part
        return np.broadcast_to(part, (programs, *value.shape))

    data = place([widen(x.data, x), widen(y.data, y)], axis=axis)
    poison = None
    if x.poison is not None or y.poison is not None:
        poison = place([widen(x.poison, x), widen(y.poison, y)], axis=axis)
    return Value(data, x.dtype, poison, base=x.base if x.base is y.base else None)


def join(a: Any, b: Any) -> Value:
    """tl.join: a new last axis of length 2."""
    x, y = broadcast(a, b)
    if x.dtype != y.dtype:
        raise execution.kernel_error(f"join: got {x!r} and {y!r}, expected one dtype")
    return _stack(x, y, x.data.ndim, np.stack)


def split(a: Any) -> tuple[Value, Value]:
    """tl.split: the two halves of a last axis of length 2."""
    x = lift(a)
    if not x.shape or x.shape[-1] != 2:
        raise execution.kernel_error(f"split: got {x!r}, expected a last axis of length 2")
    return x.map(lambda d: d[..., 0]), x.map(lambda d: d[..., 1])


def interleave(a: Any, b: Any) -> Value:
    """tl.interleave: the two blocks' lanes in turn along the last axis."""
    joined = join(a, b)
    *lead, n, two = joined.shape
    return reshape(joined, [*lead, n * two])


def cat(input: Any, other: Any, can_reorder: bool = False, dim: int = 0) -> Value:
    """tl.cat: one block after the other."""
    x, y = lift(input), lift(other)
    if x.dtype != y.dtype:
        raise execution.kernel_error(f"cat: got {x!r} and {y!r}, expected one dtype")
    return _stack(x, y, constant(dim) % len(x.shape) + 1, np.concatenate)


def flip(x: Any, dim: Any = None) -> Value:
    """tl.flip: lanes in reverse along an axis (default: the last)."""
    value = lift(x)
    axis = (len(value.shape) - 1 if dim is None else constant(dim) % len(value.shape)) + 1
    return value.map(lambda d: np.flip(d, axis))


def gather(src: Any, index: Any, axis: int) -> Value:
    """tl.gather: lanes of `src` picked along an axis; an index beyond it is undefined."""
    x, at = lift(src), lift(index)
    axis = constant(axis) % len(x.shape) + 1
    programs = max(x.data.shape[0], at.data.shape[0])
    lanes = np.broadcast_to(at.data, (programs, *at.shape)).astype(np.int64)
    inside = (lanes >= 0) & (lanes < x.data.shape[axis])
    safe = np.where(inside, lanes, 0)

    def pick(part: np.ndarray) -> np.ndarray:
        whole = np.broadcast_to(part, (programs, *x.shape))
        return np.take_along_axis(whole, safe, axis=axis)

    stray = None if inside.all() else ~inside * execution.source("a gather beyond the block")
    poison = union(stray, at.poison, None if x.poison is None else pick(x.poison))
    return Value(pick(x.data), x.dtype, poison)


def histogram(input: Any, num_bins: Any, mask: Any = None) -> Value:
    """tl.histogram: int32 counts of 0..num_bins-1; a lane outside leaves the counts undefined."""
    x, bins = lift(input), constant(num_bins)
    programs = x.data.shape[0]
    live = np.ones(x.data.shape, np.bool_)
    if mask is not None:
        keep = lift(mask)
        programs = max(programs, keep.data.shape[0])
        live = np.broadcast_to(keep.data, (programs, *x.shape))
    data = np.broadcast_to(x.data, (programs, *x.shape)).astype(np.int64)
    live = np.broadcast_to(live, data.shape)
    stray: np.ndarray = np.asarray(live & ((data < 0) | (data >= bins)))
    if x.poison is not None:
        stray = stray | (live & (x.poison != 0))
    good = np.asarray(live & ~stray)
    rows = (np.bincount(row[ok], minlength=bins)[:bins] for row, ok in zip(data, good, strict=True))
    counts = np.stack(list(rows))
    poison = None
    if stray.any():
        bad = np.any(stray.reshape(programs, -1), axis=1, keepdims=True)
        poison = bad * execution.source("a histogram of values beyond its bins")
    return Value(counts.astype(np.int32), tl.int32, poison)
