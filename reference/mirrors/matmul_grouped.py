"""Mirror of `matmul_grouped`: programs in bands of GROUP_M tile rows, wrapped rows and columns."""

from __future__ import annotations

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import MirrorMemory
from gemmproof.reference.mirrors.schedule import Order, order_grouped
from gemmproof.reference.mirrors.tile import wrapped_tile


def grid(launch: MirrorLaunch) -> Pid:
    """One program per tile."""
    return launch.num_pid_m * launch.num_pid_n, 1, 1


def tiles(launch: MirrorLaunch, pid: Pid) -> Order:
    """The tile at position pid of the grouped order."""
    return order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)[pid[0] : pid[0] + 1]


def program(mem: MirrorMemory, pid: Pid, launch: MirrorLaunch) -> None:
    """Read A and B block by block along K, wrapped past M and N, and store one tile."""
    for tile in tiles(launch, pid):
        wrapped_tile(mem, tile, launch)
