"""The memory, accesses and launches of a mirror."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gemmproof.reference.arithmetic import Array

# -- loads and stores ----------------------------------------------------------------------------
Pid = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """A load or store of one block by one program.

    operand: a, b, c or the caller's name; for memory that the wrapper allocated, the kernel's
    parameter. offsets: int64, in elements from the operand's first element, block shaped. mask:
    bool of that shape, None for all lanes. other: the value of masked lanes of a load, None if
    undefined.
    """

    kind: Literal["load", "store"]
    operand: str
    offsets: NDArray[np.int64]
    mask: NDArray[np.bool_] | None
    other: float | None
    pid: Pid

    def __str__(self) -> str:
        lanes = "x".join(str(n) for n in self.offsets.shape)
        return f"{self.kind} {self.operand} by pid {self.pid}, {lanes} lanes"


def first_difference(got: Sequence[Touch], expected: Sequence[Touch]) -> str | None:
    """Return the first difference of two traces as `where: got, expected`, or None if equal.

    Offsets count only where a lane is active: a masked lane accesses nothing.
    """
    for position, (x, y) in enumerate(zip(got, expected, strict=False)):
        difference = touch_difference(x, y)
        if difference is not None:
            return f"access {position}, {difference}"
    if len(got) != len(expected):
        longer = got if len(got) > len(expected) else expected
        shorter = min(len(got), len(expected))
        return (
            f"access {shorter}, {longer[shorter]}: "
            f"got {len(got)} accesses, expected {len(expected)}"
        )
    return None


def touch_difference(got: Touch, expected: Touch) -> str | None:
    """Return the first difference of two accesses, or None if they touch the same elements."""
    if (got.kind, got.operand, got.pid) != (expected.kind, expected.operand, expected.pid):
        return f"got {got}, expected {expected}"
    if got.offsets.shape != expected.offsets.shape:
        return f"block of {expected}: got {got.offsets.shape}, expected {expected.offsets.shape}"
    got_mask, expected_mask = _lanes(got), _lanes(expected)
    wrong = got_mask != expected_mask
    if wrong.any():
        return _at("mask", expected, wrong, got_mask, expected_mask)
    wrong = (got.offsets != expected.offsets) & expected_mask
    if wrong.any():
        return _at("offsets", expected, wrong, got.offsets, expected.offsets)
    if got.other != expected.other and not expected_mask.all():
        lanes = int((~expected_mask).sum())
        return (
            f"other of {expected}, {lanes} of {expected_mask.size} lanes: "
            f"got {got.other}, expected {expected.other}"
        )
    return None


def _lanes(touch: Touch) -> NDArray[np.bool_]:
    if touch.mask is None:
        return np.ones(touch.offsets.shape, bool)
    return np.broadcast_to(touch.mask, touch.offsets.shape)


def _at(
    what: str,
    expected: Touch,
    wrong: NDArray[np.bool_],
    got_values: NDArray[np.generic],
    expected_values: NDArray[np.generic],
) -> str:
    lane = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{what} of {expected}, {int(wrong.sum())} differ, first at {lane}: "
        f"got {got_values[lane]}, expected {expected_values[lane]}"
    )


# -- memory --------------------------------------------------------------------------------------
Operand = str  # as in a Touch


@dataclass(slots=True, kw_only=True)
class Addresses:
    """Records each access of program `pid` and computes nothing: strides may be of any size.

    Offsets are in elements, masks have their shape.
    """

    pid: Pid
    touches: list[Touch] = field(default_factory=list)

    def load(self, operand: Operand, offs: Array, mask: Array, other: float) -> Array:
        """Return the block at `offs`, `other` where the mask is False."""
        self.touches.append(Touch("load", operand, offs, mask, other, self.pid))
        return np.zeros((), np.float32)

    def store(self, operand: Operand, offs: Array, acc: Array, mask: Array) -> None:
        """Round the accumulator to the operand's format and write it where the mask is True."""
        self.touches.append(Touch("store", operand, offs, mask, None, self.pid))

    def zeros(self, rows: int, columns: int) -> Array:
        """Return a cleared accumulator."""
        return np.zeros((), np.float32)

    def dot(self, a: Array, b: Array, acc: Array | None) -> Array:
        """Return a (M, K) times b (K, N), onto acc or onto zero."""
        return np.zeros((), np.float32)


# -- launch --------------------------------------------------------------------------------------
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MirrorLaunch:
    """One launch of a kernel: sizes, strides in elements, and its constants.

    `promote`: the product of each K block is formed from zero and added to the accumulator.
    GROUP_M and NUM_SMS are read by the kernels that have them. `a_is_t`, `b_is_t`: blocks are
    loaded from the transpose. `SUBTILES`: parts in which a tile of c is stored, from the left.
    `spare`: columns behind the rows of c that are also stored.
    """

    M: int
    N: int
    K: int
    stride_am: int
    stride_ak: int
    stride_bk: int
    stride_bn: int
    stride_cm: int
    stride_cn: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    GROUP_M: int = 1
    NUM_SMS: int = 1
    SUBTILES: int = 1
    promote: bool = False
    a_is_t: bool = False
    b_is_t: bool = False
    spare: int = 0

    @property
    def num_pid_m(self) -> int:
        """Tiles along M."""
        return -(-self.M // self.BLOCK_M)

    @property
    def num_pid_n(self) -> int:
        """Tiles along N."""
        return -(-self.N // self.BLOCK_N)

    def transpose(self) -> MirrorLaunch:
        """Return the launch of c^T = b^T a^T, in which b^T is a and a^T is b."""
        return replace(
            self,
            M=self.N, N=self.M, BLOCK_M=self.BLOCK_N, BLOCK_N=self.BLOCK_M,
            stride_am=self.stride_bn, stride_ak=self.stride_bk,
            stride_bk=self.stride_ak, stride_bn=self.stride_am,
            stride_cm=self.stride_cn, stride_cn=self.stride_cm,
            a_is_t=self.b_is_t, b_is_t=self.a_is_t,
        )  # fmt: skip


def launch_of(
    a: tuple[Pair, Pair],
    b: tuple[Pair, Pair],
    c: tuple[Pair, Pair],
    constants: Mapping[str, object],
) -> MirrorLaunch:
    """Return the launch for operands as (shape, strides in elements) and the kernel's constants.

    `constants` are those of the configuration and of the wrapper, by their names in the kernel
    (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, NUM_SMS, SUBTILES, PROMOTE, A_IS_T, B_IS_T); others are
    ignored.
    Raises ValueError when the shapes do not multiply or a tile size is missing.
    """
    (M, K), (rows, N) = a[0], b[0]
    if rows != K or c[0] != (M, N):
        raise ValueError(
            f"launch_of: got a {a[0]}, b {b[0]} and c {c[0]}, expected (M, K), (K, N) and (M, N)"
        )
    known = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "NUM_SMS", "SUBTILES")
    missing = [name for name in known[:3] if name not in constants]
    if missing:
        raise ValueError(f"launch_of: got {sorted(constants)}, expected {' '.join(missing)} too")
    sizes = {name: int(str(constants[name])) for name in known if name in constants}
    promote, a_is_t, b_is_t = (bool(constants.get(x)) for x in ("PROMOTE", "A_IS_T", "B_IS_T"))
    return MirrorLaunch(
        M, N, K, *a[1], *b[1], *c[1], **sizes, promote=promote, a_is_t=a_is_t, b_is_t=b_is_t
    )


# -- calls of a mirror ---------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class MirrorTensor:
    """A tensor of a call: shape, strides in elements, first address, bytes of an element.

    `values` are its elements if they are integers, else None.
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
        """Return a constant or an integer; 1 if no launch has one, because one is missing then."""
        return int(str(self.constants.get(name, 1)))


@dataclass(frozen=True, slots=True)
class StatedLaunch:
    """A launch as specified: its grid, and the accesses of a program to a memory."""

    grid: Pid
    run: Callable[[Addresses], None]

    def pids(self) -> Iterator[Pid]:
        """Return every program of the grid, the first axis outermost."""
        x, y, z = self.grid
        return ((i, j, k) for i in range(x) for j in range(y) for k in range(z))

    def touches(self, pid: Pid) -> list[Touch]:
        """Return the accesses of one program in order."""
        mem = Addresses(pid=pid)
        self.run(mem)
        return mem.touches


@dataclass(frozen=True, slots=True)
class Part:
    """The location of a, b or c of a tile: the memory's name, and the first element there.

    `is_batch`: its blocks are blocks of a batch of matrices, with one matrix each.
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
    """Return the memory of the same program, with a, b or c elsewhere."""
    return MirrorWindow(pid=mem.pid, touches=mem.touches, whole=mem, parts=parts)
