"""Run a mirror: the touches of a program or of a whole grid, and the bits that it stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.mirrors.access import Pid, Touch
from gemmproof.reference.mirrors.launch import Mirror, MirrorLaunch
from gemmproof.reference.mirrors.memory import Addresses, Dot, Operand, Recorder


@dataclass(frozen=True, slots=True, eq=False)
class ProgramRun:
    """One program: its accesses in order, and each block of c it stored, masked lanes included."""

    touches: tuple[Touch, ...]
    tiles: tuple[Array, ...]


def touches_of(mirror: Mirror, launch: MirrorLaunch, pid: Pid) -> tuple[Touch, ...]:
    """The accesses of one program in order; no values are computed."""
    mem = Addresses(pid)
    mirror.program(mem, pid, launch)
    return tuple(mem.touches)


def run_program(
    mirror: Mirror, launch: MirrorLaunch, pid: Pid, arrays: Mapping[Operand, Array], dot: Dot
) -> ProgramRun:
    """Run one program on flat storage arrays that begin at each operand's first element.

    `arrays["c"]` is written in place and sets the output format; `dot` is a `DotModel.dot`.
    """
    mem = Recorder(pid, arrays, dot)
    with np.errstate(invalid="ignore", over="ignore"):
        mirror.program(mem, pid, launch)
    return ProgramRun(tuple(mem.touches), tuple(mem.tiles))


def run_grid(
    mirror: Mirror, launch: MirrorLaunch, arrays: Mapping[Operand, Array], dot: Dot
) -> dict[Pid, ProgramRun]:
    """Run every program of the grid, the first axis outermost; see `run_program`."""
    return {pid: run_program(mirror, launch, pid, arrays, dot) for pid in mirror.pids(launch)}
