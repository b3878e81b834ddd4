"""Memories for mirrors: one that only records addresses, one that also holds values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, format_of, round_to
from gemmproof.reference.mirrors.access import Pid, Touch

Operand = str  # as in a Touch
Dot = Callable[[Array, Array, Array | None], Array]


@dataclass(slots=True, kw_only=True)
class Addresses:
    """Records each access of program `pid` and computes nothing: strides may be of any size.

    Offsets are in elements, masks have their shape.
    """

    pid: Pid
    touches: list[Touch] = field(default_factory=list)

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        """The block at `offs`, `other` where the mask is False."""
        self.touches.append(Touch("load", operand, offs, mask, other, self.pid))
        return np.zeros((), np.float32)

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        """Round the accumulator to the operand's format and write it where the mask is True."""
        self.touches.append(Touch("store", operand, offs, mask, None, self.pid))

    def zeros(self, rows: int, columns: int) -> Array:
        """A cleared accumulator."""
        return np.zeros((), np.float32)

    def dot(self, a: Array, b: Array, acc: Array | None) -> Array:
        """a (M, K) times b (K, N), onto acc or onto zero."""
        return np.zeros((), np.float32)


@dataclass(slots=True, kw_only=True)
class Recorder(Addresses):
    """Computes program `pid` on flat arrays of storage that begin at each operand's first element.

    `product` is a `DotModel.dot`; `tiles` are the blocks of c as stored, all lanes, in order.
    """

    arrays: Mapping[Operand, Array]
    product: Dot
    tiles: list[Array] = field(default_factory=list)

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        Addresses.load(self, operand, offs, mask, other)
        flat = self.arrays[operand]
        block = np.full(offs.shape, other, np.float32).astype(flat.dtype)
        block[mask] = flat[offs[mask]]
        return block

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        """As the kernels do it: integers as they are, fp8 saturated as PTX does."""
        Addresses.store(self, operand, offs, acc, mask)
        flat = self.arrays[operand]
        out = format_of(flat.dtype)
        integer = out.kind == "int"
        tile = acc.astype(out.storage) if integer else round_to(acc, out, saturate=out.is_fp8)
        self.tiles.append(tile)
        flat[offs[mask]] = tile[mask]

    def zeros(self, rows: int, columns: int) -> Array:
        integer = self.arrays["a"].dtype.kind == "i"
        return np.zeros((rows, columns), np.int32 if integer else np.float32)

    def dot(self, a: Array, b: Array, acc: Array | None) -> Array:
        return self.product(a, b, acc)
