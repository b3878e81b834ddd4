"""Memories for mirrors: one that only writes down addresses, one that also holds values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, format_of, round_to
from gemmproof.reference.formats import Format
from gemmproof.reference.mirrors.access import Pid, Touch

Operand = Literal["a", "b", "c"]
Dot = Callable[[Array, Array, Array | None], Array]


class MirrorMemory(Protocol):
    """What a mirror asks of its surroundings; offsets in elements, masks of the same shape."""

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        """The block at `offs`, `other` where the mask is False."""

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        """Round the accumulator to the operand's format and write it where the mask is True."""

    def zeros(self, rows: int, columns: int) -> Array:
        """A cleared accumulator."""

    def dot(self, a: Array, b: Array, acc: Array | None) -> Array:
        """a (M, K) times b (K, N), started from acc or from zero."""


@dataclass(slots=True)
class Addresses:
    """Writes down each touch of program `pid` and computes nothing: strides may be of any size."""

    pid: Pid
    touches: list[Touch] = field(default_factory=list)

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        self.touches.append(_touch("load", operand, offs, mask, other, self.pid))
        return np.zeros((), np.float32)

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        self.touches.append(_touch("store", operand, offs, mask, None, self.pid))

    def zeros(self, rows: int, columns: int) -> Array:
        return np.zeros((), np.float32)

    def dot(self, a: Array, b: Array, acc: Array | None) -> Array:
        return np.zeros((), np.float32)


@dataclass(slots=True)
class Recorder:
    """Computes program `pid` on flat arrays of storage, each from its operand's first element on.

    `dot` is a `DotModel.dot`; `tiles` are the blocks of c as stored, all lanes, in order.
    """

    pid: Pid
    arrays: Mapping[Operand, Array]
    dot: Dot
    touches: list[Touch] = field(default_factory=list)
    tiles: list[Array] = field(default_factory=list)

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        touch = _touch("load", operand, offs, mask, other, self.pid)
        self.touches.append(touch)
        flat = self.arrays[operand]
        block = np.full(touch.offsets.shape, other, np.float32).astype(flat.dtype)
        block[touch.mask] = flat[touch.offsets[touch.mask]]
        return block

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        touch = _touch("store", operand, offs, mask, None, self.pid)
        self.touches.append(touch)
        flat = self.arrays[operand]
        tile = narrow(acc, format_of(flat.dtype))
        self.tiles.append(tile)
        flat[touch.offsets[touch.mask]] = tile[touch.mask]

    def zeros(self, rows: int, columns: int) -> Array:
        integer = self.arrays["a"].dtype.kind == "i"
        return np.zeros((rows, columns), np.int32 if integer else np.float32)


def narrow(acc: Array, out: Format) -> Array:
    """An accumulator as the kernel stores it: one rounding to nearest; fp8 saturates, as PTX does.

    An integer accumulator is stored as it is.
    """
    if out.kind == "int":
        return acc.astype(out.storage)
    return round_to(acc, out, saturate=out.is_fp8)


def _touch(
    kind: Literal["load", "store"],
    operand: Operand,
    offs: Array,
    mask: Array,
    other: float | None,
    pid: Pid,
) -> Touch:
    return Touch(kind, operand, offs, np.broadcast_to(mask, offs.shape), other, pid)
