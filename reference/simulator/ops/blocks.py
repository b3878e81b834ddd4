"""Block pointers and tensor descriptors: a base, a shape, strides, and a window of lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.reference.observation import Unsupported
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.checks.blame import Event
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.dtypes import I1, I64, Dtype, Type
from gemmproof.reference.simulator.ops import cast  # noqa: F401 - registers arith.extsi
from gemmproof.reference.simulator.ops.atomics import COMBINE, atomic
from gemmproof.reference.simulator.ops.load_store import load, store
from gemmproof.reference.simulator.ops.registry import OPERATIONS, operation
from gemmproof.reference.simulator.reader import Op
from gemmproof.reference.simulator.value import Value, merge, union

ALIGNMENT = 16  # bytes, of a descriptor's base and of its strides but the last


def _compute(name: str, dtype: Dtype) -> Callable[..., Any]:
    return OPERATIONS[name].build(Op(name, [], types=[Type((), dtype)]))


_ADD, _MULTIPLY = _compute("arith.addi", I64), _compute("arith.muli", I64)
_EXTEND, _CHOOSE = _compute("arith.extsi", I64), _compute("arith.select", I64)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A block pointer or a descriptor: a parent tensor, and the lanes of a block of it.

    `sizes`, `strides` and `offsets` (a descriptor has none) are scalars in 64 bits, `fill` what a
    lane outside of the parent holds, None for nothing defined.
    """

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    block: tuple[int, ...]
    fill: Value | None = None

    def _map(self, function: Callable[[Value, int], Value]) -> Window:
        """The window with `function(scalar, its number)` in place of each of its scalars."""
        parts = (self.base, *self.sizes, *self.strides, *self.offsets)
        made = [function(x, i) for i, x in enumerate(parts)]
        n = len(self.sizes)
        sizes, strides, offsets = made[1 : n + 1], made[n + 1 : 2 * n + 1], made[2 * n + 1 :]
        return replace(
            self, base=made[0], sizes=tuple(sizes), strides=tuple(strides), offsets=tuple(offsets)
        )

    def _part(self, i: int) -> Value:
        return (self.base, *self.sizes, *self.strides, *self.offsets)[i]

    def select(self, rows: np.ndarray) -> Window:
        return self._map(lambda x, _: x if len(x.data) == 1 else x.select(rows))

    @staticmethod
    def merge(windows: Sequence[Window], sizes: Sequence[int], order: np.ndarray | None) -> Window:
        return windows[0]._map(lambda _, i: merge([w._part(i) for w in windows], sizes, order))

    def choose(self, condition: Value, other: Window) -> Window:
        return self._map(lambda x, i: _CHOOSE(condition, x, other._part(i)))

    def advance(self, moves: Iterable[Value]) -> Window:
        moved = (_ADD(x, _EXTEND(m)) for x, m in zip(self.offsets, moves, strict=True))
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
        move = OPERATIONS["tt.addptr"].build(Op("tt.addptr", [], types=[Type((), self.base.dtype)]))
        return move(_block(self.base, rank), offsets)

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
        at = _EXTEND(rows).map(lambda d: d[:, :, None])
        line = Value(np.arange(self.block[-1], dtype=np.int64)[None, None], I64)
        columns = _ADD(line, _block(_EXTEND(column), 2))
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


def _fill(option: int | str | None, dtype: Dtype, rank: int) -> Value | None:
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
        wide = tuple(_EXTEND(x) for x in scalars)
        return Window(base, wide[:n], wide[n : 2 * n], wide[2 * n :], block)

    return compute


@operation("tt.advance", constant=False)
def _build_advance(op: Op) -> Callable[..., Window]:
    return lambda window, *moves: window.advance(moves)


def build_window_load(op: Op) -> Callable[..., Value]:
    """tt.load of a block pointer: axes without a boundary check are not masked."""
    kind, axes = op.operand_types[0], op.integers("boundaryCheck")
    fill = _fill(op.integer("padding"), kind.dtype, len(kind.shape))

    def compute(window: Window) -> Value:
        pointers, indices = window.lanes(window.offsets)
        mask = window.inside(indices, axes)
        return load(pointers, mask, fill if mask is not None else None, kind.shape)

    return compute


def build_window_store(op: Op) -> Callable[..., None]:
    """tt.store through a block pointer."""
    shape, axes = op.operand_types[0].shape, op.integers("boundaryCheck")

    def compute(window: Window, value: Value) -> None:
        pointers, indices = window.lanes(window.offsets)
        store(pointers, value, window.inside(indices, axes), shape)

    return compute


# -- tensor descriptors --------------------------------------------------------------------------
@operation("tt.make_tensor_descriptor", pure=False, constant=False)
def _build_descriptor(op: Op) -> Callable[..., Window]:
    n, kind = op.segments[0], op.types[0]
    padding = op.attrs.get("padding", "1 : i32")
    option = 2 if padding.startswith("2") or "nan" in padding else 1

    def compute(base: Value, *scalars: Value) -> Window:
        sizes, strides = (tuple(_EXTEND(x) for x in part) for part in (scalars[:n], scalars[n:]))
        fill = _fill(option, kind.dtype, len(kind.shape))
        made = Window(base, sizes, strides, (), kind.shape, fill)
        _check_rules(made)
        return made

    return compute


def describe(base: Value, sizes: Any, strides: Any, block: Any, padding: str | None) -> Window:
    """A triton.tools TensorDescriptor that a wrapper made and passed to the kernel."""
    assert base.dtype.pointee is not None
    lengths, steps = (
        tuple(Value(np.array([int(x)]), I64) for x in part) for part in (sizes, strides)
    )
    shape = tuple(int(n) for n in block)
    fill = _fill(padding or "zero", base.dtype.pointee, len(shape))
    return Window(base, lengths, steps, (), shape, fill)


def _check_rules(window: Window) -> None:
    """The rules of the copy engine: 16-byte base and strides, last stride 1."""
    assert window.base.dtype.pointee is not None
    size = window.base.dtype.pointee.itemsize
    if (window.strides[-1].data != 1).any():
        _note(window, f"last stride {int(window.strides[-1].data.flat[0])}", "1")
    if (window.base.data % ALIGNMENT != 0).any():
        _note(window, "a base that is not 16-byte aligned", "a multiple of 16 bytes")
    for axis, stride in enumerate(window.strides[:-1]):
        nbytes = stride.data * size
        if (nbytes % ALIGNMENT != 0).any():
            got = f"stride {int(stride.data.flat[0])} along axis {axis}"
            _note(
                window, f"{got} ({int(nbytes.flat[0])} bytes)", f"a multiple of {ALIGNMENT} bytes"
            )


def _note(window: Window, got: str, expected: str) -> None:
    launch = current()
    launch.events.append(
        Event(
            kind="bad_descriptor",
            where=context.where(),
            operand=window.base.base,
            access="descriptor",
            axis=None,
            programs=launch.programs,
            lanes=1,
            got=got,
            expected=expected,
        )
    )


@operation("tt.descriptor_load", pure=False)
def _build_descriptor_load(op: Op) -> Callable[..., Value]:
    shape = op.types[0].shape

    def compute(window: Window, *starts: Value) -> Value:
        pointers, indices = window.lanes([_EXTEND(x) for x in starts])
        made = load(
            pointers, window.inside(indices, range(len(indices))), window.fill, window.block
        )
        if shape == window.block:
            return made
        whole = made.spread(window.block)  # a block whose leading axes of length 1 are dropped
        return whole.map(lambda d: d.reshape(len(d), *shape))

    return compute


def _stored(window: Window, value: Value, kind: Type) -> Value:
    if kind.shape == window.block:
        return value
    return value.spread(kind.shape).map(lambda d: d.reshape(len(d), *window.block))


@operation("tt.descriptor_store", pure=False)
def _build_descriptor_store(op: Op) -> Callable[..., None]:
    kind = op.operand_types[-1]

    def compute(window: Window, *rest: Value) -> None:
        pointers, indices = window.lanes([_EXTEND(x) for x in rest[:-1]])
        mask = window.inside(indices, range(len(indices)))
        store(pointers, _stored(window, rest[-1], kind), mask, window.block)

    return compute


@operation("tt.descriptor_reduce", pure=False)
def _build_descriptor_reduce(op: Op) -> Callable[..., None]:
    kind = op.operand_types[-1]
    word = op.words[0]
    word = {"add": "fadd"}.get(word, word) if kind.dtype.is_float else word
    if word not in COMBINE:
        raise Unsupported(f"tt.descriptor_reduce {word} is not known to the tile simulator")

    def compute(window: Window, *rest: Value) -> None:
        pointers, indices = window.lanes([_EXTEND(x) for x in rest[:-1]])
        mask = window.inside(indices, range(len(indices)))
        atomic(word, pointers, _stored(window, rest[-1], kind), mask, window.block)

    return compute


@operation("tt.descriptor_gather", pure=False)
def _build_descriptor_gather(op: Op) -> Callable[..., Value]:
    shape = op.types[0].shape

    def compute(window: Window, rows: Value, column: Value) -> Value:
        pointers, mask = window.rows(rows, column)
        return load(pointers, mask, window.fill, shape)

    return compute


@operation("tt.descriptor_scatter", pure=False)
def _build_descriptor_scatter(op: Op) -> Callable[..., None]:
    shape = op.operand_types[-1].shape

    def compute(window: Window, rows: Value, column: Value, value: Value) -> None:
        pointers, mask = window.rows(rows, column)
        store(pointers, value, mask, shape)

    return compute
