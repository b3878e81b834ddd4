"""A whole call as a mirror is given it, the launches that it states, and parts of operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.mirrors.access import Pid, Touch
from gemmproof.reference.mirrors.launch import MirrorLaunch, Pair, launch_of
from gemmproof.reference.mirrors.memory import Addresses, Operand


@dataclass(frozen=True, slots=True)
class MirrorTensor:
    """A tensor of a call: shape, strides in elements, first address, bytes of an element.

    `values` are its elements where they are integers, else None.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    itemsize: int
    values: NDArray[Any] | None = None

    @property
    def matrix(self) -> tuple[Pair, Pair]:
        """Shape and strides of the matrix, or of each of a batch."""
        (rows, columns), (down, right) = self.shape[-2:], self.strides[-2:]
        return (rows, columns), (down, right)


@dataclass(frozen=True, slots=True)
class MirrorCall:
    """One call of a wrapper: its operands by name, the result as c, and how it was launched.

    `constants`: the constants and the integers of its launches, by their names in the kernels.
    """

    tensors: Mapping[str, MirrorTensor]
    constants: Mapping[str, object]

    @property
    def launch(self) -> MirrorLaunch:
        """The product, or each of a batch."""
        a, b, c = (self.tensors[name].matrix for name in "abc")
        return launch_of(a, b, c, self.constants)

    def integer(self, name: str) -> int:
        """A constant or an integer; 1 if no launch has it, for then one is missing."""
        return int(str(self.constants.get(name, 1)))


@dataclass(frozen=True, slots=True)
class StatedLaunch:
    """A launch as it should be: its grid, and what a program does to a memory."""

    grid: Pid
    run: Callable[[Addresses], None]

    def pids(self) -> Iterator[Pid]:
        """Every program of the grid, the first axis outermost."""
        x, y, z = self.grid
        return ((i, j, k) for i in range(x) for j in range(y) for k in range(z))

    def touches(self, pid: Pid) -> list[Touch]:
        """The accesses of one program in order."""
        mem = Addresses(pid=pid)
        self.run(mem)
        return mem.touches


@dataclass(frozen=True, slots=True)
class Part:
    """Where a, b or c of a tile is: the memory's name, and its first element there.

    `is_batch`: its blocks are of a batch of matrices, one of them.
    """

    name: str
    base: int = 0
    is_batch: bool = False


@dataclass(slots=True, kw_only=True)
class MirrorWindow(Addresses):
    """A memory in which a, b and c are parts of others."""

    whole: Addresses
    parts: Mapping[str, Part]

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        part, offs, mask = self._find(operand, offs, mask)
        return self.whole.load(part, offs, mask, other)

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        part, offs, mask = self._find(operand, offs, mask)
        self.whole.store(part, offs, acc, mask)

    def _find(self, operand: Operand, offs: Array, mask: Array) -> tuple[str, Array, Array]:
        part = self.parts.get(operand, Part(operand))
        index = np.s_[None] if part.is_batch else np.s_[...]
        return part.name, (part.base + offs)[index], mask[index]


def look(mem: Addresses, **parts: Part) -> MirrorWindow:
    """The memory of the same program, with a, b or c elsewhere."""
    return MirrorWindow(pid=mem.pid, touches=mem.touches, whole=mem, parts=parts)
