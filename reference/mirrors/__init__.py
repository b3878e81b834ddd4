"""Mirrors of our kernels: the same offsets and masks in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.mirrors.mirrored_kernels import (
    Order,
    compute_tile,
    grouped_tile,
    own_tile,
    persistent_tiles,
    state_block_scaled,
    state_bmm,
    state_grouped_gemm,
    state_padded,
    state_splitk,
    state_streamk,
    state_weight_only,
    swizzled_tile,
)
from gemmproof.reference.mirrors.mirrored_launch import (
    Addresses,
    Dot,
    MirrorCall,
    MirrorLaunch,
    Operand,
    Pid,
    Recorder,
    StatedLaunch,
    Touch,
    launch_of,
)


@dataclass(frozen=True, slots=True)
class Mirror:
    """A kernel as it should be: its grid, and the tiles that each program computes in turn.

    `wraps`: rows and columns past the end are read from the start again instead of masked.
    """

    grid: Callable[[MirrorLaunch], Pid]
    tiles: Callable[[MirrorLaunch, Pid], Order]
    wraps: bool = False

    def pids(self, launch: MirrorLaunch) -> Iterator[Pid]:
        """Return every program of the grid, the first axis outermost."""
        x, y, z = self.grid(launch)
        return ((i, j, k) for i in range(x) for j in range(y) for k in range(z))

    def run(self, mem: Addresses, launch: MirrorLaunch) -> None:
        """Compute the tiles of program `mem.pid`."""
        for tile in self.tiles(launch, mem.pid):
            compute_tile(mem, tile, launch, self.wraps)

    def __call__(self, call: MirrorCall) -> list[StatedLaunch]:
        """Return the one launch of a call."""
        return self.state(call.launch)

    def state(self, launch: MirrorLaunch) -> list[StatedLaunch]:
        """Return the one launch."""
        return [StatedLaunch(self.grid(launch), lambda mem: self.run(mem, launch))]


PERSISTENT = Mirror(lambda x: (min(x.NUM_SMS, x.num_pid_m * x.num_pid_n), 1, 1), persistent_tiles)
MIRRORS = {
    "matmul": Mirror(lambda x: (x.num_pid_m, x.num_pid_n, 1), own_tile),
    "matmul_grouped": Mirror(lambda x: (x.num_pid_m * x.num_pid_n, 1, 1), grouped_tile, wraps=True),
    "matmul_swizzled": Mirror(lambda x: (x.num_pid_n, x.num_pid_m, 1), swizzled_tile),
    "matmul_persistent": PERSISTENT,
    "matmul_tma": PERSISTENT,
}
#: Mirrors of calls that are more than one product in one launch.
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
    """Return the mirror of one of our kernels, by its wrapper's name; ValueError for any other."""
    if kernel_name not in MIRRORS:
        raise ValueError(f"mirror_for: got {kernel_name!r}, expected one of {' '.join(MIRRORS)}")
    return MIRRORS[kernel_name]


__all__ = ["CALL_MIRRORS", "MIRRORS", "Mirror", "MirrorLaunch", "launch_of", "mirror_for"]


# -- runs of a mirror ----------------------------------------------------------------------------
def touches_of(mirror: Mirror, launch: MirrorLaunch, pid: Pid) -> tuple[Touch, ...]:
    """Return the accesses of one program in order; no values are computed."""
    mem = Addresses(pid=pid)
    mirror.run(mem, launch)
    return tuple(mem.touches)


def run_grid(
    mirror: Mirror, launch: MirrorLaunch, arrays: Mapping[Operand, Array], dot: Dot
) -> dict[Pid, Recorder]:
    """Run every program of the grid, the first axis outermost.

    `arrays` are flat storage that begins at each operand's first element; `arrays["c"]` is written
    in place and sets the output format. `dot` is a `DotModel.dot`.
    """
    runs = {pid: Recorder(pid=pid, arrays=arrays, product=dot) for pid in mirror.pids(launch)}
    with np.errstate(invalid="ignore", over="ignore"):
        for mem in runs.values():
            mirror.run(mem, launch)
    return runs
