"""What every program of each of our kernels should do, stated in numpy from its specification.

A mirror takes a `MirrorLaunch` (launch.py: sizes, strides, tile sizes) and a memory (memory.py)
that records accesses, and computes values if it holds any. Kernels and mirrors share no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.launch import MirrorLaunch, launch_of
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.schedule import (
    Order,
    grouped_tile,
    own_tile,
    persistent_tiles,
    swizzled_tile,
)
from gemmproof.reference.mirrors.tile import compute_tile


@dataclass(frozen=True, slots=True)
class Mirror:
    """A kernel as it should be: its grid, and the tiles that each program computes in turn.

    `wraps`: rows and columns past the end are read from the start again instead of masked.
    """

    grid: Callable[[MirrorLaunch], Pid]
    tiles: Callable[[MirrorLaunch, Pid], Order]
    wraps: bool = False

    def pids(self, launch: MirrorLaunch) -> Iterator[Pid]:
        """Every program of the grid, the first axis outermost."""
        x, y, z = self.grid(launch)
        return ((i, j, k) for i in range(x) for j in range(y) for k in range(z))

    def run(self, mem: Addresses, launch: MirrorLaunch) -> None:
        """Compute the tiles of program `mem.pid`."""
        for tile in self.tiles(launch, mem.pid):
            compute_tile(mem, tile, launch, self.wraps)


PERSISTENT = Mirror(lambda x: (min(x.NUM_SMS, x.num_pid_m * x.num_pid_n), 1, 1), persistent_tiles)
MIRRORS = {
    "matmul": Mirror(lambda x: (x.num_pid_m, x.num_pid_n, 1), own_tile),
    "matmul_grouped": Mirror(lambda x: (x.num_pid_m * x.num_pid_n, 1, 1), grouped_tile, wraps=True),
    "matmul_swizzled": Mirror(lambda x: (x.num_pid_n, x.num_pid_m, 1), swizzled_tile),
    "matmul_persistent": PERSISTENT,
    "matmul_tma": PERSISTENT,
}


def mirror_for(kernel_name: str) -> Mirror:
    """The mirror of one of our kernels, by the name of its wrapper; ValueError for any other."""
    if kernel_name not in MIRRORS:
        raise ValueError(f"mirror_for: got {kernel_name!r}, expected one of {' '.join(MIRRORS)}")
    return MIRRORS[kernel_name]


__all__ = ["MIRRORS", "Mirror", "MirrorLaunch", "launch_of", "mirror_for"]
