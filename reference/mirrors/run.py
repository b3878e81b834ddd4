"""Run a mirror: the accesses of a program or of a whole grid, and the bits that it stores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.mirrors import Mirror
from gemmproof.reference.mirrors.access import Pid, Touch
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import Addresses, Dot, Operand, Recorder


def touches_of(mirror: Mirror, launch: MirrorLaunch, pid: Pid) -> tuple[Touch, ...]:
    """The accesses of one program in order; no values are computed."""
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
