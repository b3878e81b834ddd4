"""Tensor descriptors, and copies through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator.access_checks import (
    BLOCK_POINTER,
    DESCRIPTOR,
    Box,
    note,
    programs_of,
    through,
)
from gemmproof.reference.simulator.ops.floats import build_integer_cast
from gemmproof.reference.simulator.ops.integers import (
    build_integer,
    build_pointer_sum,
    build_select,
)
from gemmproof.reference.simulator.ops.load_store import COMBINE, atomic, load, store
from gemmproof.reference.simulator.ops.registry import Build, operation
from gemmproof.reference.simulator.session import current, has_copy_engine
from gemmproof.reference.simulator.value import Value, merge, union
from gemmproof.reference.ttir import I1, I64, Dtype, Op, Type


# -- windows -------------------------------------------------------------------------------------
def _compute(build: Build, name: str = "", dtype: Dtype = I64) -> Callable[..., Any]:
    return build(Op(name, [], types=[Type((), dtype)]))


_ADD, _MULTIPLY = _compute(build_integer, "arith.addi"), _compute(build_integer, "arith.muli")
EXTEND, _CHOOSE = _compute(build_integer_cast, "arith.extsi"), _compute(build_select)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A block pointer or a descriptor: a parent tensor, and the lanes of a block of it.

    `sizes`, `strides` and `offsets` (a descriptor has none) are scalars in 64 bits, `fill` the
    value of a lane outside of the parent, None if it is undefined.
    """

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    block: tuple[int, ...]
    fill: Value | None = None

    def _map(self, function: Callable[..., Value], *others: Window) -> Window:
        """Return the window of `function` of each scalar and the same one of the others."""
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
        """Return pointers of the block's lanes from `starts` on, and the lanes' indices by axis."""
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

    def describe(self, starts: Sequence[Value], checked: Iterable[int]) -> Box:
        """Return the window with its block at `starts`, for the messages of an access."""
        kind = BLOCK_POINTER if self.offsets else DESCRIPTOR
        # of rows that are picked one by one, the first
        parts = (
            [x.data.reshape(len(x.data), -1)[:, 0] for x in xs]
            for xs in (starts, self.sizes, self.strides)
        )
        offsets, sizes, strides = map(tuple, parts)
        return Box(kind, self.block, offsets, sizes, strides, tuple(checked))

    def inside(self, indices: Sequence[Value], axes: Iterable[int]) -> Value | None:
        """Return a mask of the lanes within the parent along these axes."""
        mask, poison = None, None
        for d in axes:
            index, size = indices[d], _block(self.sizes[d], indices[d].data.ndim - 1)
            test = (index.data >= 0) & (index.data < size.data)
            mask = test if mask is None else mask & test
            poison = union(poison, index.poison, size.poison)
        return None if mask is None else Value(mask, I1, poison)

    def rows(self, rows: Value, column: Value) -> tuple[Value, Value]:
        """Return lanes of rows picked one by one: row rows[i], columns from `column` on."""
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
    """Return a scalar as a block of `rank` axes."""
    return x.map(lambda d: d.reshape(len(d), *(1,) * rank))


def fill_of(option: int | str | None, dtype: Dtype, rank: int) -> Value | None:
    """Return the value of a lane outside: None (undefined) without an option, 0 or NaN with one."""
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
        return lambda ptr, mask=None, other=None: load(ptr, mask, other, kind.shape, op.text)
    fill = fill_of(op.integer("padding"), kind.dtype, len(kind.shape))

    def compute(window: Window) -> Value:
        """Axes without a boundary check are not masked."""
        pointers, indices = window.lanes(window.offsets)
        mask = window.inside(indices, axes)
        with through(window.describe(window.offsets, axes)):
            return load(pointers, mask, fill if mask is not None else None, kind.shape)

    return compute


@operation("tt.store", pure=False)
def _build_store(op: Op) -> Callable[..., None]:
    kind, axes = op.operand_types[0], op.integers("boundaryCheck")
    if kind.kind != "window":
        return lambda ptr, value, mask=None: store(ptr, value, mask, kind.shape, op.text)

    def compute(window: Window, value: Value) -> None:
        pointers, indices = window.lanes(window.offsets)
        with through(window.describe(window.offsets, axes)):
            store(pointers, value, window.inside(indices, axes), kind.shape)

    return compute


# -- descriptors ---------------------------------------------------------------------------------
#: The alignment in bytes of a descriptor's base, of its strides but the last, and of the start of a
#: block along the last axis (Triton's interpreter asserts it, an H200 ends a kernel that violates
#: it); and the unit of stores along that axis.
ALIGNMENT = 16


@operation("tt.make_tensor_descriptor", pure=False, constant=False)
def _build_descriptor(op: Op) -> Callable[..., Window]:
    n, kind = op.segments[0], op.types[0]
    padding = op.attrs.get("padding", "1 : i32")
    option = 2 if padding.startswith("2") or "nan" in padding else 1

    def compute(base: Value, *scalars: Value) -> Window:
        sizes, strides = (tuple(EXTEND(x) for x in part) for part in (scalars[:n], scalars[n:]))
        fill = fill_of(option, kind.dtype, len(kind.shape))
        window = Window(base, sizes, strides, (), kind.shape, fill)
        _check_rules(window)
        return window

    return compute


def describe(base: Value, sizes: Any, strides: Any, block: Any, padding: str | None) -> Window:
    """Return a triton.tools TensorDescriptor that a wrapper passed to the kernel, as a window."""
    assert base.dtype.pointee is not None
    lengths, steps = (
        tuple(Value(np.array([int(x)]), I64) for x in part) for part in (sizes, strides)
    )
    shape = tuple(int(n) for n in block)
    fill = fill_of(padding or "zero", base.dtype.pointee, len(shape))
    return Window(base, lengths, steps, (), shape, fill)


def _check_rules(window: Window) -> None:
    """Check the rules of the copy engine: 16-byte base and strides, last stride 1."""
    assert window.base.dtype.pointee is not None
    size = window.base.dtype.pointee.itemsize
    last, excess = window.strides[-1].data, window.base.data % ALIGNMENT
    if (last != 1).any():
        _note(window, f"a last stride of {int(last[last != 1][0])}", "1")
    if excess.any():
        got = f"a base {int(excess[excess != 0][0])} bytes past a multiple of {ALIGNMENT}"
        _note(window, got, f"a multiple of {ALIGNMENT} bytes")
    for axis, stride in enumerate(window.strides[:-1]):
        nbytes = stride.data * size
        wrong = nbytes[nbytes % ALIGNMENT != 0]
        if wrong.size:
            got = f"a stride of {int(wrong[0])} bytes along axis {axis}"
            _note(window, got, f"a multiple of {ALIGNMENT} bytes")


def _check_start(window: Window, starts: Sequence[Value]) -> None:
    """Check that a block begins a multiple of 16 bytes into its rows, even if it has none."""
    if not has_copy_engine():
        return
    first = _bytes(window, starts[-1].data)
    if (wrong := first % ALIGNMENT != 0).any():
        got = f"a block that begins {int(first[wrong][0])} bytes into a row"
        _note(window, got, f"a multiple of {ALIGNMENT} bytes", programs_of(wrong))


def _store_whole(window: Window, starts: Sequence[Value]) -> Window:
    """Return the window that a store fills: with the copy engine, rows to a multiple of 16 bytes.

    The memory behind a row may be another tensor's, which is reported; memory that the wrapper
    allocated is its own, and is filled. Stores to rows that the engine cannot address are unknown.
    """
    storage = getattr(window.base.base, "storage", None)
    if (
        not has_copy_engine()
        or storage is None
        or any((_bytes(window, x.data) % ALIGNMENT).any() for x in window.strides[:-1])
    ):
        return window
    if not storage.private:
        _check_end(window, starts)
        return window
    size = window.sizes[-1]
    assert window.base.dtype.pointee is not None
    step = ALIGNMENT // window.base.dtype.pointee.itemsize
    rounded = Value(-(-size.data // step) * step, size.dtype, size.poison)
    return replace(window, sizes=(*window.sizes[:-1], rounded))


def _check_end(window: Window, starts: Sequence[Value]) -> None:
    """Check that a stored block does not pass the end of rows within 16 bytes."""
    last = _bytes(window, window.sizes[-1].data)
    wrong = last % ALIGNMENT != 0
    for start, size, n in zip(starts, window.sizes, window.block, strict=True):
        wrong = wrong & (start.data < size.data) & (start.data + n > 0)
    wrong = wrong & (starts[-1].data + window.block[-1] > window.sizes[-1].data)
    if wrong.any():
        got = f"a block stored beyond rows of {int(last[last % ALIGNMENT != 0][0])} bytes"
        expected = f"rows of a multiple of {ALIGNMENT} bytes, which are stored whole"
        _note(window, got, expected, programs_of(wrong))


def _bytes(window: Window, columns: np.ndarray) -> np.ndarray:
    assert window.base.dtype.pointee is not None
    return columns * window.base.dtype.pointee.itemsize


def _note(window: Window, got: str, expected: str, programs: np.ndarray | None = None) -> None:
    programs, operand = current().programs if programs is None else programs, window.base.base
    shape, strides = ([int(x.data.flat[0]) for x in xs] for xs in (window.sizes, window.strides))
    got = f"{got}, of shape {shape} with strides {strides} and block {list(window.block)}"
    note("bad_descriptor", "descriptor", programs, 1, operand=operand, got=got, expected=expected)


def _box(window: Window, starts: Sequence[Value]) -> tuple[Value, Value | None]:
    """Return pointers of the block's lanes from `starts` on, and a mask of those in the parent."""
    starts = [EXTEND(x) for x in starts]
    _check_start(window, starts)
    pointers, indices = window.lanes(starts)
    return pointers, window.inside(indices, range(len(indices)))


def _through(window: Window, starts: Sequence[Value]) -> AbstractContextManager[None]:
    """Send an access through the window within the context: every axis is checked."""
    current().uses_hints = True
    return through(window.describe(starts, range(len(window.block))))


def _reshape(value: Value, source: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    """Reshape a block of `source` shape: leading axes of length 1 come or go."""
    if source == shape:
        return value
    return value.spread(source).map(lambda d: d.reshape(len(d), *shape))


@operation("tt.descriptor_load", "tt.descriptor_gather", pure=False)
def _build_descriptor_load(op: Op) -> Callable[..., Value]:
    shape, gathers = op.types[0].shape, op.name == "tt.descriptor_gather"

    def compute(window: Window, *at: Value) -> Value:
        pointers, mask = window.rows(*at) if gathers else _box(window, at)
        block = shape if gathers else window.block
        with _through(window, at):
            return _reshape(load(pointers, mask, window.fill, block), block, shape)

    return compute


@operation("tt.descriptor_store", "tt.descriptor_scatter", pure=False)
def _build_descriptor_store(op: Op) -> Callable[..., None]:
    shape, scatters = op.operand_types[-1].shape, op.name == "tt.descriptor_scatter"

    def compute(window: Window, *operands: Value) -> None:
        *at, value = operands
        filled = window if scatters else _store_whole(window, at)
        pointers, mask = window.rows(*at) if scatters else _box(filled, at)
        block = shape if scatters else window.block
        with _through(window, at):
            store(pointers, _reshape(value, shape, block), mask, block)

    return compute


@operation("tt.descriptor_reduce", pure=False)
def _build_descriptor_reduce(op: Op) -> Callable[..., None]:
    kind = op.operand_types[-1]
    word = op.keywords[0]
    word = {"add": "fadd"}.get(word, word) if kind.dtype.is_float else word
    if word not in COMBINE:
        raise Unsupported(f"tt.descriptor_reduce {word} is not known to the tile simulator")

    def compute(window: Window, *rest: Value) -> None:
        pointers, mask = _box(window, rest[:-1])
        block = _reshape(rest[-1], kind.shape, window.block)
        with _through(window, rest[:-1]):
            atomic(word, pointers, block, mask, window.block)

    return compute
