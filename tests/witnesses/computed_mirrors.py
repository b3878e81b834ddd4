"""Mirrors that compute values too, on the storage of operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gemmproof.reference.arithmetic import Array, format_of, round_to
from gemmproof.reference.mirrored_launch import Addresses, MirrorLaunch, Operand, Pid
from gemmproof.reference.mirrors import MIRRORS

Dot = Callable[[Array, Array, Array | None], Array]


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
        """Store as the kernels do: integers unchanged, fp8 saturated as PTX does."""
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


def run_grid(
    name: str, launch: MirrorLaunch, arrays: Mapping[Operand, Array], dot: Dot
) -> dict[Pid, Recorder]:
    """Run every program of a kernel's grid, the first axis outermost.

    `arrays` are flat storage that begins at each operand's first element; `arrays["c"]` is written
    in place and sets the output format. `dot` is a `DotModel.dot`.
    """
    (specified,) = MIRRORS[name].state(launch)
    runs = {pid: Recorder(pid=pid, arrays=arrays, product=dot) for pid in specified.pids()}
    with np.errstate(invalid="ignore", over="ignore"):
        for mem in runs.values():
            specified.run(mem)
    return runs
