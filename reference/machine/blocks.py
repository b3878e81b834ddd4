"""Block pointers and tensor descriptors: a base, a shape, strides, and a window of lanes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import access, atomics, execution, judging
from gemmproof.reference.machine.arithmetic import binary
from gemmproof.reference.machine.cast import convert
from gemmproof.reference.machine.diagnose import Event
from gemmproof.reference.machine.shapes import constant, full
from gemmproof.reference.machine.types import is_int, itemsize
from gemmproof.reference.machine.value import Value, lift, scalar


def _wide(x: Any) -> Value:
    """A size, stride or offset in the 64 bits in which windows compute."""
    value = lift(x)
    if not is_int(value.dtype) or value.shape not in ((), (1,)):
        raise execution.kernel_error(f"a window needs scalar integers, got {value!r}")
    if value.shape:
        value = value.map(lambda d: d.reshape(d.shape[0]))
    return convert(value, tl.int64)


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple | list) else [x]


def _window(
    base: Value, strides: list[Value], starts: list[Value], block: list[int]
) -> tuple[Value, list[Value]]:
    """Pointers of a window's lanes, and every lane's index along each axis."""
    rank = len(block)
    indices = []
    pointer = full(block, 0, tl.int64)
    for d, (stride, start, n) in enumerate(zip(strides, starts, block, strict=True)):
        line = Value(np.arange(n, dtype=np.int64)[None], tl.int64)
        index = binary("+", line, start)
        shape = (1,) * d + (n,) + (1,) * (rank - d - 1)
        index = index.map(lambda x, shape=shape: x.reshape(x.shape[0], *shape))
        indices.append(index)
        pointer = binary("+", pointer, binary("*", index, stride))
    return binary("+", base, pointer), indices


def _inside(indices: list[Value], shape: list[Value], axes: Any) -> Value | None:
    mask = None
    for d in axes:
        test = binary("&", binary(">=", indices[d], 0), binary("<", indices[d], shape[d]))
        mask = test if mask is None else binary("&", mask, test)
    return mask


def _padding(option: Any, dtype: tl.dtype) -> Any:
    """What a lane outside holds: None (undefined) without an option, 0 or NaN with one."""
    name = getattr(option, "name", option)
    if name in (None, ""):
        return None
    if str(name).lower() in ("zero", "pad_zero"):
        return scalar(0, dtype)
    if str(name).lower() in ("nan", "pad_nan") and dtype.is_floating():
        return scalar(float("nan"), dtype)
    raise execution.kernel_error(f"padding_option: got {option!r} for {dtype}")


# -- block pointers ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class BlockPointer:
    """tl.make_block_ptr: a parent tensor's base, shape and strides, and a window into it."""

    base: Value
    sizes: list[Value]
    strides: list[Value]
    offsets: list[Value]
    block: list[int]

    @property
    def dtype(self) -> Any:
        return tl.pointer_type(tl.block_type(self.base.dtype.element_ty, self.block))

    @property
    def type(self) -> Any:
        return self.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.block)

    def advance(self, offsets: Any) -> BlockPointer:
        return advance(self, offsets)


def make_block_ptr(
    base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = None
) -> BlockPointer:
    """tl.make_block_ptr; `order` concerns the compiler only."""
    window = [constant(n) for n in _list(block_shape)]
    sizes, steps, starts = ([_wide(x) for x in _list(p)] for p in (shape, strides, offsets))
    if not len(sizes) == len(steps) == len(starts) == len(window):
        raise execution.kernel_error(
            f"make_block_ptr: got {len(sizes)} sizes, {len(steps)} strides, {len(starts)} offsets "
            f"and {len(window)} block sizes, expected equally many"
        )
    judging.element_type(lift(base))
    return BlockPointer(lift(base), sizes, steps, starts, window)


def advance(base: BlockPointer, offsets: Any) -> BlockPointer:
    """tl.advance: the window moved by `offsets` along each axis."""
    moves = [_wide(x) for x in _list(offsets)]
    if len(moves) != len(base.offsets):
        raise execution.kernel_error(
            f"advance: got {len(moves)} offsets, expected {len(base.offsets)}"
        )
    moved = [binary("+", x, m) for x, m in zip(base.offsets, moves, strict=True)]
    return replace(base, offsets=moved)


def load_window(pointer: BlockPointer, boundary_check: Any, padding_option: Any) -> Value:
    """tl.load of a block pointer: axes without a boundary check are not masked."""
    pointers, indices = _window(pointer.base, pointer.strides, pointer.offsets, pointer.block)
    mask = _inside(indices, pointer.sizes, [constant(d) for d in _list(boundary_check)])
    fill = _padding(padding_option, judging.element_type(pointer.base))
    return access.load(pointers, mask, fill if mask is not None else None)


def store_window(pointer: BlockPointer, value: Any, boundary_check: Any) -> None:
    """tl.store through a block pointer."""
    pointers, indices = _window(pointer.base, pointer.strides, pointer.offsets, pointer.block)
    mask = _inside(indices, pointer.sizes, [constant(d) for d in _list(boundary_check)])
    access.store(pointers, value, mask)


# -- tensor descriptors --------------------------------------------------------------------------
ALIGNMENT = 16  # bytes, of a descriptor's base and of its strides but the last


@dataclass(frozen=True, slots=True, eq=False)
class Descriptor:
    """A tensor descriptor (TMA): loads are padded outside the tensor, stores clipped."""

    base: Value
    sizes: list[Value]
    steps: list[Value]
    block: list[int]
    padding: Any

    @property
    def dtype(self) -> tl.dtype:
        return self.base.dtype.element_ty

    @property
    def shape(self) -> list[Value]:
        return self.sizes

    @property
    def strides(self) -> list[Value]:
        return self.steps

    @property
    def block_shape(self) -> list[int]:
        return self.block

    @property
    def block_type(self) -> Any:
        return tl.block_type(self.dtype, self.block)

    def load(self, offsets: Any, *_: Any, **__: Any) -> Value:
        pointers, mask = self._lanes(offsets)
        return access.load(pointers, mask, self.padding)

    def store(self, offsets: Any, value: Any, *_: Any, **__: Any) -> None:
        pointers, mask = self._lanes(offsets)
        stored = lift(value)
        if list(stored.shape) != self.block:
            raise execution.kernel_error(f"descriptor store of {stored!r} into {self.block}")
        access.store(pointers, stored, mask)

    def _atomic(self, op: str, offsets: Any, value: Any) -> None:
        pointers, mask = self._lanes(offsets)
        atomics.atomic(op, pointers, value, mask)

    def atomic_add(self, offsets: Any, value: Any) -> None:
        self._atomic("add", offsets, value)

    def atomic_min(self, offsets: Any, value: Any) -> None:
        self._atomic("min", offsets, value)

    def atomic_max(self, offsets: Any, value: Any) -> None:
        self._atomic("max", offsets, value)

    def atomic_and(self, offsets: Any, value: Any) -> None:
        self._atomic("and", offsets, value)

    def atomic_or(self, offsets: Any, value: Any) -> None:
        self._atomic("or", offsets, value)

    def atomic_xor(self, offsets: Any, value: Any) -> None:
        self._atomic("xor", offsets, value)

    def gather(self, x_offsets: Any, y_offset: Any, *_: Any, **__: Any) -> Value:
        pointers, mask = self._rows(x_offsets, y_offset)
        return access.load(pointers, mask, self.padding)

    def scatter(self, value: Any, x_offsets: Any, y_offset: Any, *_: Any, **__: Any) -> None:
        pointers, mask = self._rows(x_offsets, y_offset)
        access.store(pointers, value, mask)

    def _lanes(self, offsets: Any) -> tuple[Value, Value | None]:
        starts = [_wide(x) for x in _list(offsets)]
        if len(starts) != len(self.block):
            raise execution.kernel_error(
                f"descriptor: got {len(starts)} offsets, expected {len(self.block)}"
            )
        pointers, indices = _window(self.base, self.steps, starts, self.block)
        return pointers, _inside(indices, self.sizes, range(len(self.block)))

    def _rows(self, x_offsets: Any, y_offset: Any) -> tuple[Value, Value]:
        """Lanes of rows picked one by one: row x_offsets[i], columns from y_offset on."""
        rows = convert(lift(x_offsets), tl.int64)[:, None]
        line = Value(np.arange(self.block[-1], dtype=np.int64)[None], tl.int64)
        columns = binary("+", line, _wide(y_offset))[None, :]
        offs = binary("+", binary("*", rows, self.steps[0]), binary("*", columns, self.steps[1]))
        mask = _inside([rows, columns], self.sizes, (0, 1))
        assert mask is not None
        return binary("+", self.base, offs), mask


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero"
) -> Descriptor:
    """tl.make_tensor_descriptor; notes a base or stride that the hardware does not take."""
    window = [constant(n) for n in _list(block_shape)]
    sizes = [_wide(x) for x in _list(shape)]
    steps = [_wide(x) for x in _list(strides)]
    pointer = lift(base)
    element = judging.element_type(pointer)
    if not len(sizes) == len(steps) == len(window):
        raise execution.kernel_error(
            f"make_tensor_descriptor: got {len(sizes)} sizes, {len(steps)} strides and "
            f"{len(window)} block sizes, expected equally many"
        )
    made = Descriptor(pointer, sizes, steps, window, _padding(padding_option, element))
    _check_rules(made, itemsize(element))
    return made


def _check_rules(descriptor: Descriptor, size: int) -> None:
    """The rules of the copy engine: 16-byte base and strides, last stride 1, 16 bytes a row."""
    if descriptor.block[-1] * size < ALIGNMENT:
        raise execution.kernel_error(
            f"descriptor: got {descriptor.block[-1] * size} bytes in a row of the block, "
            f"expected at least {ALIGNMENT}"
        )
    if (descriptor.steps[-1].data != 1).any():
        _note(descriptor, f"last stride {int(descriptor.steps[-1].data.flat[0])}", "1")
    if (descriptor.base.data % ALIGNMENT != 0).any():
        _note(descriptor, "a base that is not 16-byte aligned", "a multiple of 16 bytes")
    for axis, stride in enumerate(descriptor.steps[:-1]):
        nbytes = stride.data * size
        if (nbytes % ALIGNMENT != 0).any():
            got = (
                f"stride {int(stride.data.flat[0])} along axis {axis} ({int(nbytes.flat[0])} bytes)"
            )
            _note(descriptor, got, f"a multiple of {ALIGNMENT} bytes")


def _note(descriptor: Descriptor, got: str, expected: str) -> None:
    part = execution.current()
    part.events.append(
        Event(
            kind="bad_descriptor",
            where=execution.where(),
            operand=descriptor.base.base,
            access="descriptor",
            axis=None,
            programs=part.programs,
            lanes=1,
            got=got,
            expected=expected,
        )
    )


def from_host(base: Value, sizes: Any, strides: Any, block: Any, padding: Any) -> Descriptor:
    """A triton.tools TensorDescriptor that a wrapper made and passed to the kernel."""
    made = Descriptor(
        base,
        [_wide(int(x)) for x in sizes],
        [_wide(int(x)) for x in strides],
        [int(n) for n in block],
        _padding(padding or "zero", judging.element_type(base)),
    )
    return made
