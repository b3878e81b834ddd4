"""Mirror of `matmul_swizzled`: the first grid axis runs along N, then swizzled into bands."""

from __future__ import annotations

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import MirrorMemory
from gemmproof.reference.mirrors.schedule import Order, order_grouped
from gemmproof.reference.mirrors.tile import masked_tile


def grid(launch: MirrorLaunch) -> Pid:
    """Tiles along N, then tiles along M."""
    return launch.num_pid_n, launch.num_pid_m, 1


def tiles(launch: MirrorLaunch, pid: Pid) -> Order:
    """The tile that the swizzle gives to the program's row-major number."""
    number = pid[1] * launch.num_pid_n + pid[0]
    order = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    return order[number : number + 1]


def program(mem: MirrorMemory, pid: Pid, launch: MirrorLaunch) -> None:
    """Read A and B block by block along K, zeros past every end, and store one tile."""
    for tile in tiles(launch, pid):
        masked_tile(mem, tile, launch)
