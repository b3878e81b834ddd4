"""Block pointers and what they share with tensor descriptors: a window of lanes in a parent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.reference.simulator.checks.box import BLOCK_POINTER, DESCRIPTOR, Box, through
from gemmproof.reference.simulator.ops.access.load import load
from gemmproof.reference.simulator.ops.access.store import store
from gemmproof.reference.simulator.ops.cast import build_integer_cast
from gemmproof.reference.simulator.ops.comparison import build_select
from gemmproof.reference.simulator.ops.integers import build_integer, build_pointer_sum
from gemmproof.reference.simulator.ops.registry import Build, operation
from gemmproof.reference.simulator.value import Value, merge, union
from gemmproof.reference.ttir.dtypes import I1, I64, Dtype, Type
from gemmproof.reference.ttir.module import Op


def _compute(build: Build, name: str = "", dtype: Dtype = I64) -> Callable[..., Any]:
    return build(Op(name, [], types=[Type((), dtype)]))


_ADD, _MULTIPLY = _compute(build_integer, "arith.addi"), _compute(build_integer, "arith.muli")
EXTEND, _CHOOSE = _compute(build_integer_cast, "arith.extsi"), _compute(build_select)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A block pointer or a descriptor: a parent tensor, and the lanes of a block of it.

    `sizes`, `strides` and `offsets` (a descriptor has none) are scalars in 64 bits, `fill` what a
    lane outside of the parent holds, None where it is undefined.
    """

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    block: tuple[int, ...]
    fill: Value | None = None

    def _map(self, function: Callable[..., Value], *others: Window) -> Window:
        """The window of what `function` gives for each scalar and the same one of the others."""
        windows = (self, *others)
        sizes, strides, offsets = (
            tuple(map(function, *(getattr(w, name) for w in windows)))
            for name in ("sizes", "strides", "offsets")
        )
        base = function(*(w.base for w in windows))
        return replace(self, base=base, sizes=sizes, strides=strides, offsets=offsets)

    def select(self, rows: np.ndarray) -> Window:
        return self._map(lambda x: x.select(rows))

    @staticmethod
    def merge(windows: Sequence[Window], sizes: Sequence[int], order: np.ndarray | None) -> Window:
        return windows[0]._map(lambda *scalars: merge(scalars, sizes, order), *windows[1:])

    def choose(self, condition: Value, other: Window) -> Window:
        return self._map(lambda x, y: _CHOOSE(condition, x, y), other)

    def advance(self, moves: Iterable[Value]) -> Window:
        moved = (_ADD(x, EXTEND(m)) for x, m in zip(self.offsets, moves, strict=True))
        return replace(self, offsets=tuple(moved))

    def lanes(self, starts: Sequence[Value]) -> tuple[Value, list[Value]]:
        """Pointers of the block's lanes from `starts` on, and each lane's index along each axis."""
        rank = len(self.block)
        indices = []
        pointer: Value | None = None
        for d, (stride, start, n) in enumerate(zip(self.strides, starts, self.block, strict=True)):
            shape = (1,) * d + (n,) + (1,) * (rank - d - 1)
            line = Value(np.arange(n, dtype=np.int64).reshape(1, *shape), I64)
            index = _ADD(line, _block(start, rank))
            indices.append(index)
            part = _MULTIPLY(index, _block(stride, rank))
            pointer = part if pointer is None else _ADD(pointer, part)
        assert pointer is not None
        return self._address(pointer, rank), indices

    def _address(self, offsets: Value, rank: int) -> Value:
        move = _compute(build_pointer_sum, dtype=self.base.dtype)
        return move(_block(self.base, rank), offsets)

    def told(self, starts: Sequence[Value], checked: Iterable[int]) -> Box:
        """The window with its block at `starts`, in words, for the messages of an access."""
        kind = BLOCK_POINTER if self.offsets else DESCRIPTOR
        # of rows that are picked one by one, the first
        parts = (
            [x.data.reshape(len(x.data), -1)[:, 0] for x in xs]
            for xs in (starts, self.sizes, self.strides)
        )
        offsets, sizes, strides = map(tuple, parts)
        return Box(kind, self.block, offsets, sizes, strides, tuple(checked))

    def inside(self, indices: Sequence[Value], axes: Iterable[int]) -> Value | None:
        """Which lanes lie within the parent along these axes."""
        mask, poison = None, None
        for d in axes:
            index, size = indices[d], _block(self.sizes[d], indices[d].data.ndim - 1)
            test = (index.data >= 0) & (index.data < size.data)
            mask = test if mask is None else mask & test
            poison = union(poison, index.poison, size.poison)
        return None if mask is None else Value(mask, I1, poison)

    def rows(self, rows: Value, column: Value) -> tuple[Value, Value]:
        """Lanes of rows picked one by one: row rows[i], columns from `column` on."""
        at = EXTEND(rows).map(lambda d: d[:, :, None])
        line = Value(np.arange(self.block[-1], dtype=np.int64)[None, None], I64)
        columns = _ADD(line, _block(EXTEND(column), 2))
        offs = _ADD(
            _MULTIPLY(at, _block(self.strides[0], 2)),
            _MULTIPLY(columns, _block(self.strides[1], 2)),
        )
        mask = self.inside([at, columns], (0, 1))
        assert mask is not None
        return self._address(offs, 2), mask


def _block(x: Value, rank: int) -> Value:
    """A scalar as a block of `rank` axes."""
    return x.map(lambda d: d.reshape(len(d), *(1,) * rank))


def fill_of(option: int | str | None, dtype: Dtype, rank: int) -> Value | None:
    """What a lane outside holds: None (undefined) without an option, 0 or NaN with one."""
    if option in (None, "", 0):
        return None
    number = np.nan if option in (2, "nan") else 0
    return Value(np.full((1,) * (1 + rank), number).astype(dtype.numpy), dtype)


# -- block pointers (Triton 3.8 and older) -------------------------------------------------------
@operation("tt.make_tensor_ptr", constant=False)
def _build_block_pointer(op: Op) -> Callable[..., Window]:
    n, block = op.segments[0], op.types[0].shape

    def compute(base: Value, *scalars: Value) -> Window:
        wide = tuple(EXTEND(x) for x in scalars)
        return Window(base, wide[:n], wide[n : 2 * n], wide[2 * n :], block)

    return compute


@operation("tt.advance", constant=False)
def _build_advance(op: Op) -> Callable[..., Window]:
    return lambda window, *moves: window.advance(moves)


# -- accesses through a block of pointers, or through a block pointer ----------------------------
@operation("tt.load", pure=False)
def _build_load(op: Op) -> Callable[..., Value]:
    kind, axes = op.operand_types[0], op.integers("boundaryCheck")
    if kind.kind != "window":
        return lambda ptr, mask=None, other=None: load(ptr, mask, other, kind.shape)
    fill = fill_of(op.integer("padding"), kind.dtype, len(kind.shape))

    def compute(window: Window) -> Value:
        """Axes without a boundary check are not masked."""
        pointers, indices = window.lanes(window.offsets)
        mask = window.inside(indices, axes)
        with through(window.told(window.offsets, axes)):
            return load(pointers, mask, fill if mask is not None else None, kind.shape)

    return compute


@operation("tt.store", pure=False)
def _build_store(op: Op) -> Callable[..., None]:
    kind, axes = op.operand_types[0], op.integers("boundaryCheck")
    if kind.kind != "window":
        return lambda ptr, value, mask=None: store(ptr, value, mask, kind.shape)

    def compute(window: Window, value: Value) -> None:
        pointers, indices = window.lanes(window.offsets)
        with through(window.told(window.offsets, axes)):
            store(pointers, value, window.inside(indices, axes), kind.shape)

    return compute
