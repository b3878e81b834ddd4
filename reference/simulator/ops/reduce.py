"""Reductions and scans along an axis, and maps of scalar functions, with any region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.ops.shape import concatenate
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.module import Op


def _apply(program: Program, values: Sequence[Value]) -> list[Value]:
    """A region's results for every lane of its operands, each lane as a program of its own."""
    from gemmproof.reference.simulator.grid import run_region

    rows = len(current().programs) if program.asks_place else 1
    shape = np.broadcast_shapes(
        (rows, *(1,) * (values[0].data.ndim - 1)), *(v.data.shape for v in values)
    )
    lanes = int(np.prod(shape))

    def flatten(part: np.ndarray) -> np.ndarray:
        whole = part if part.size == 1 else np.broadcast_to(part, shape)
        return whole.reshape(-1)

    def unflatten(part: np.ndarray) -> np.ndarray:
        return np.broadcast_to(part, (lanes,)).reshape(shape)

    results = run_region(program, [v.map(flatten) for v in values], shape[0], lanes)
    return [v.map(unflatten) for v in results]


def _take(x: Value, axis: int, part: slice) -> Value:
    key = (slice(None),) * axis + (part,)
    return x.map(lambda data: data[key])


@operation("tt.reduce", constant=False)
def _build_reduce(op: Op) -> Callable[..., Any]:
    program: Any = op.regions[0]
    axis, shape = op.integer("axis") + 1, op.operand_types[0].shape
    floats = any(kind.dtype.is_float for kind in op.types)

    def compute(*values: Value) -> Any:
        """Halves are combined lane by lane until one lane is left (a balanced tree)."""
        if floats:
            context.note_rounding("reduce")
        parts = [v.spread(shape) for v in values]
        while (n := parts[0].data.shape[axis]) > 1:
            half = n // 2
            left = [_take(v, axis, slice(0, half)) for v in parts]
            right = [_take(v, axis, slice(half, 2 * half)) for v in parts]
            joined = _apply(program, [*left, *right])
            if n % 2:
                rest = [_take(v, axis, slice(n - 1, n)) for v in parts]
                joined = [concatenate([j, r], axis) for j, r in zip(joined, rest, strict=True)]
            parts = joined
        made = tuple(v.map(lambda d: d.squeeze(axis)) for v in parts)
        return made[0] if len(made) == 1 else made

    return compute


@operation("tt.scan", constant=False)
def _build_scan(op: Op) -> Callable[..., Any]:
    program: Any = op.regions[0]
    axis, shape = op.integer("axis") + 1, op.operand_types[0].shape
    reverse = op.flag("reverse")
    floats = any(kind.dtype.is_float for kind in op.types)

    def compute(*values: Value) -> Any:
        """Inclusive, one lane after the other."""
        if floats:
            context.note_rounding("scan")
        parts = [v.spread(shape) for v in values]
        n = shape[axis - 1]
        lanes: list[list[Value]] = []
        for i in range(n - 1, -1, -1) if reverse else range(n):
            lane = [_take(v, axis, slice(i, i + 1)) for v in parts]
            lanes.append(_apply(program, [*lanes[-1], *lane]) if lanes else lane)
        if reverse:
            lanes.reverse()
        made = tuple(concatenate(column, axis) for column in zip(*lanes, strict=True))
        return made[0] if len(made) == 1 else made

    return compute


@operation("tt.map_elementwise", constant=False)
def _build_map(op: Op) -> Callable[..., Any]:
    program: Any = op.regions[0]
    pack, shape = op.integer("pack", 1), op.operand_types[0].shape

    def compute(*values: Value) -> Any:
        """A scalar function of every lane, or of every `pack` neighbours at once."""
        if pack == 1:
            made = tuple(_apply(program, values))
            return made[0] if len(made) == 1 else made
        packed = []
        for v in values:
            groups = v.spread(shape).map(lambda d: d.reshape(len(d), -1, pack))
            packed += [_take(groups, 2, slice(i, i + 1)) for i in range(pack)]
        results = _apply(program, packed)
        whole = []
        for r in range(len(results) // pack):
            joined = concatenate(results[r * pack : (r + 1) * pack], 2)
            whole.append(joined.map(lambda d: d.reshape(len(d), *shape)))
        return whole[0] if len(whole) == 1 else tuple(whole)

    return compute
