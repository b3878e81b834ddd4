"""Mirror of `matmul_persistent`: NUM_SMS programs share the tiles of the grouped order in turn."""

from __future__ import annotations

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import MirrorMemory
from gemmproof.reference.mirrors.schedule import Order, order_grouped, persistent
from gemmproof.reference.mirrors.tile import masked_tile


def grid(launch: MirrorLaunch) -> Pid:
    """NUM_SMS programs, fewer if there are fewer tiles."""
    return min(launch.NUM_SMS, launch.num_pid_m * launch.num_pid_n), 1, 1


def tiles(launch: MirrorLaunch, pid: Pid) -> Order:
    """Every NUM_SMS-th tile of the grouped order."""
    order = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    return persistent(order, pid[0], launch.NUM_SMS)


def program(mem: MirrorMemory, pid: Pid, launch: MirrorLaunch) -> None:
    """Compute its tiles one after another, zeros past every end of A and B."""
    for tile in tiles(launch, pid):
        masked_tile(mem, tile, launch)
