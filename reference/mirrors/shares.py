"""Products whose K is shared out: a second launch adds up what each share left in a workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gemmproof.reference.mirrors.call import MirrorCall, Part, StatedLaunch, look
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.tile import compute_tile

WORKSPACE = "w_ptr"
#: What a program does of its share: its tile, the share's first k, and the k behind its last.
Work = Callable[[Addresses, MirrorLaunch, tuple[int, int], int, int], None]


def state_splitk(call: MirrorCall) -> list[StatedLaunch]:
    """matmul_splitk: a share is the product of some columns of a and the same rows of b.

    Its tiles are those of the transposed result.
    """
    return state_shares(call, _multiply)


def _multiply(
    mem: Addresses, launch: MirrorLaunch, tile: tuple[int, int], begin: int, end: int
) -> None:
    window = look(mem, a=Part("b", begin * launch.stride_bk), b=Part("a", begin * launch.stride_ak))
    compute_tile(window, tile[::-1], replace(launch.transpose(), K=end - begin))


def state_shares(call: MirrorCall, work: Work) -> list[StatedLaunch]:
    """Program (i, z) has tile i, counted down the columns of tiles, and the z-th SHARE steps of K.

    The workspace is (shares, M, N), dense; of a single share it is c, and nothing is added up.
    """
    launch = call.launch
    length = call.integer("SHARE") * launch.BLOCK_K
    shares = max(1, -(-launch.K // length))
    tiles = [(m, n) for n in range(launch.num_pid_n) for m in range(launch.num_pid_m)]
    own = launch if shares == 1 else replace(launch, stride_cm=launch.N, stride_cn=1)

    def run(mem: Addresses) -> None:
        number, share, _ = mem.pid
        begin = share * length
        c = Part("c") if shares == 1 else Part(WORKSPACE, share * launch.M * launch.N)
        work(look(mem, c=c), own, tiles[number], begin, min(begin + length, launch.K))

    stated = [StatedLaunch((len(tiles), shares, 1), run)]
    return stated if shares == 1 else [*stated, _add_shares(call, shares)]


def _add_shares(call: MirrorCall, shares: int) -> StatedLaunch:
    """Each program adds up BLOCK elements, counted row by row, AT_ONCE shares after another."""
    launch, BLOCK, AT_ONCE = call.launch, call.integer("BLOCK"), call.integer("AT_ONCE")
    size = launch.M * launch.N

    def run(mem: Addresses) -> None:
        number = mem.pid[0] * BLOCK + np.arange(BLOCK, dtype=np.int64)
        total = mem.load(WORKSPACE, number, number < size, 0.0)
        for share in range(1, 1 + -(-(shares - 1) // AT_ONCE) * AT_ONCE):
            inside = (share < shares) & (number < size)
            total = total + mem.load(WORKSPACE, share * size + number, inside, 0.0)
        m, n = np.divmod(number, launch.N)
        mem.store("c", m * launch.stride_cm + n * launch.stride_cn, total, number < size)

    return StatedLaunch((-(-size // BLOCK), 1, 1), run)
