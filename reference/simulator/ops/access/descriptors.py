"""Tensor descriptors: a window that the copy engine moves, and its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from gemmproof.reference.observation import Unsupported
from gemmproof.reference.simulator.checks.box import through
from gemmproof.reference.simulator.checks.sightings import note, programs_of
from gemmproof.reference.simulator.context import current, has_copy_engine
from gemmproof.reference.simulator.ops.access.atomics import COMBINE, atomic
from gemmproof.reference.simulator.ops.access.load import load
from gemmproof.reference.simulator.ops.access.store import store
from gemmproof.reference.simulator.ops.access.windows import EXTEND, Window, fill_of
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import I64
from gemmproof.reference.ttir.module import Op

#: Bytes: of a descriptor's base, of its strides but the last, and of where a block begins along the
#: last axis (as Triton's interpreter asserts, and an H200 ends a kernel for); and what is stored at
#: once along that axis.
ALIGNMENT = 16


@operation("tt.make_tensor_descriptor", pure=False, constant=False)
def _build_descriptor(op: Op) -> Callable[..., Window]:
    n, kind = op.segments[0], op.types[0]
    padding = op.attrs.get("padding", "1 : i32")
    option = 2 if padding.startswith("2") or "nan" in padding else 1

    def compute(base: Value, *scalars: Value) -> Window:
        sizes, strides = (tuple(EXTEND(x) for x in part) for part in (scalars[:n], scalars[n:]))
        fill = fill_of(option, kind.dtype, len(kind.shape))
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
    fill = fill_of(padding or "zero", base.dtype.pointee, len(shape))
    return Window(base, lengths, steps, (), shape, fill)


def _check_rules(window: Window) -> None:
    """The rules of the copy engine: 16-byte base and strides, last stride 1."""
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
    """That a block begins a multiple of 16 bytes into its rows, even where it has none of them."""
    if not has_copy_engine():
        return
    first = _bytes(window, starts[-1].data)
    if (wrong := first % ALIGNMENT != 0).any():
        got = f"a block that begins {int(first[wrong][0])} bytes into a row"
        _note(window, got, f"a multiple of {ALIGNMENT} bytes", programs_of(wrong))


def _store_whole(window: Window, starts: Sequence[Value]) -> Window:
    """The window that a store fills: rows to a multiple of 16 bytes, where the copy engine stores.

    What is behind a row may be another tensor's, which is told; what the wrapper allocated is its
    own, and holds what the engine stores. What it does of rows that it cannot address is not known.
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
    """That a stored block does not pass the end of rows within 16 bytes."""
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
    """Pointers of the block's lanes from `starts` on, and which lie within the parent."""
    starts = [EXTEND(x) for x in starts]
    _check_start(window, starts)
    pointers, indices = window.lanes(starts)
    return pointers, window.inside(indices, range(len(indices)))


def _through(window: Window, starts: Sequence[Value]) -> AbstractContextManager[None]:
    """An access through the window: every axis is checked."""
    return through(window.told(starts, range(len(window.block))))


def _reshape(value: Value, source: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    """A block of `source` shape in another shape: leading axes of length 1 come or go."""
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
    word = op.words[0]
    word = {"add": "fadd"}.get(word, word) if kind.dtype.is_float else word
    if word not in COMBINE:
        raise Unsupported(f"tt.descriptor_reduce {word} is not known to the tile simulator")

    def compute(window: Window, *rest: Value) -> None:
        pointers, mask = _box(window, rest[:-1])
        block = _reshape(rest[-1], kind.shape, window.block)
        with _through(window, rest[:-1]):
            atomic(word, pointers, block, mask, window.block)

    return compute
