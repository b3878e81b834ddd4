"""Mirror of `matmul`: program (i, j) computes tile (i, j), every load masked on both axes."""

from __future__ import annotations

import numpy as np

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import MirrorMemory
from gemmproof.reference.mirrors.schedule import Order
from gemmproof.reference.mirrors.tile import masked_tile


def grid(launch: MirrorLaunch) -> Pid:
    """Tiles along M, then tiles along N."""
    return launch.num_pid_m, launch.num_pid_n, 1


def tiles(launch: MirrorLaunch, pid: Pid) -> Order:
    """Its own position in the grid."""
    return np.array([pid[:2]], np.int64)


def program(mem: MirrorMemory, pid: Pid, launch: MirrorLaunch) -> None:
    """Read A and B block by block along K, zeros past every end, and store one tile."""
    for tile in tiles(launch, pid):
        masked_tile(mem, tile, launch)
