"""What every program of each of our kernels should do, stated in numpy from its specification.

A mirror takes a `MirrorCall` (call.py) and gives its launches, whose programs do to a memory
(memory.py) what they should: it records accesses. Those of plain products in one launch are a
`Mirror` each, which also runs on a memory of values. Kernels and mirrors share no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.batches import state_bmm
from gemmproof.reference.mirrors.call import MirrorCall, StatedLaunch
from gemmproof.reference.mirrors.copies import state_padded
from gemmproof.reference.mirrors.groups import state_grouped_gemm
from gemmproof.reference.mirrors.launch import MirrorLaunch, launch_of
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.scales import state_block_scaled
from gemmproof.reference.mirrors.schedule import (
    Order,
    grouped_tile,
    own_tile,
    persistent_tiles,
    swizzled_tile,
)
from gemmproof.reference.mirrors.shares import state_splitk
from gemmproof.reference.mirrors.steps import state_streamk
from gemmproof.reference.mirrors.tile import compute_tile
from gemmproof.reference.mirrors.weights import state_weight_only


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

    def __call__(self, call: MirrorCall) -> list[StatedLaunch]:
        """The one launch of a call."""
        return self.state(call.launch)

    def state(self, launch: MirrorLaunch) -> list[StatedLaunch]:
        """The one launch."""
        return [StatedLaunch(self.grid(launch), lambda mem: self.run(mem, launch))]


PERSISTENT = Mirror(lambda x: (min(x.NUM_SMS, x.num_pid_m * x.num_pid_n), 1, 1), persistent_tiles)
MIRRORS = {
    "matmul": Mirror(lambda x: (x.num_pid_m, x.num_pid_n, 1), own_tile),
    "matmul_grouped": Mirror(lambda x: (x.num_pid_m * x.num_pid_n, 1, 1), grouped_tile, wraps=True),
    "matmul_swizzled": Mirror(lambda x: (x.num_pid_n, x.num_pid_m, 1), swizzled_tile),
    "matmul_persistent": PERSISTENT,
    "matmul_tma": PERSISTENT,
}
#: Of calls that are more than one product in one launch.
CALL_MIRRORS: dict[str, Callable[[MirrorCall], list[StatedLaunch]]] = {
    "matmul_splitk": state_splitk,
    "bmm": state_bmm,
    "matmul_padded": partial(state_padded, product=PERSISTENT.state),
    "matmul_w8": state_weight_only,
    "matmul_w4": state_weight_only,
    "grouped_gemm": state_grouped_gemm,
    "matmul_block_scaled": state_block_scaled,
    "matmul_streamk": partial(state_streamk, otherwise=PERSISTENT),
}


def mirror_for(kernel_name: str) -> Mirror:
    """The mirror of one of our kernels, by the name of its wrapper; ValueError for any other."""
    if kernel_name not in MIRRORS:
        raise ValueError(f"mirror_for: got {kernel_name!r}, expected one of {' '.join(MIRRORS)}")
    return MIRRORS[kernel_name]


__all__ = ["CALL_MIRRORS", "MIRRORS", "Mirror", "MirrorLaunch", "launch_of", "mirror_for"]
