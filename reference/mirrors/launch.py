"""What a launch of a kernel is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MirrorLaunch:
    """One launch of a kernel: sizes, strides in elements, and its constants.

    `promote`: the product of each K block is formed from zero and added to the accumulator.
    GROUP_M and NUM_SMS are read by the kernels that have them. `a_is_t`, `b_is_t`: blocks are
    fetched of the transpose. `SUBTILES`: parts in which a tile of c is stored, from the left.
    `spare`: columns behind the rows of c that are stored as well.
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
        """The launch of c^T = b^T a^T, in which b^T is a and a^T is b."""
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
    """The launch for operands given as (shape, strides in elements) and the kernel's constants.

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
