"""One problem in one format as it is timed: its buffers, and what its rows have in common."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.legs import Leg
from gemmproof.bench.operands import Buffers
from gemmproof.bench.problems import Problem
from gemmproof.bench.records import Ceiling, Interval, TimedRow
from gemmproof.bench.roofline import share_of, share_of_ceiling
from gemmproof.bench.rounds import Rounds
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import Format


@dataclass(slots=True)
class BenchScene:
    """What is measured: `set_bytes` are those of the operands of one set and of its result."""

    device: Any
    kernel: KernelUnderTest
    problem: Problem
    fmt: Format
    out: Format
    peer_out: Format
    sets: list[Buffers]
    set_bytes: int
    ceiling: Ceiling | None
    beat: Callable[[], None]

    @property
    def place(self) -> str:
        """The problem and the format as messages name them."""
        return f"{self.problem} {self.fmt.name}"

    @property
    def stated(self) -> Stated:
        """The operands of this problem."""
        return Stated(self.kernel, self.problem, self.fmt)


def make_row(
    scene: BenchScene,
    leg: Leg,
    peer: str,
    verdict: str,
    how: str,
    rounds: Rounds | None = None,
    ratio: Interval | None = None,
    **more: Any,
) -> TimedRow:
    """A row; times are those of one call, of which a run makes one for each set."""
    problem = scene.problem
    times: dict[str, Any] = {}
    if rounds is not None:
        samples = tuple(seconds / len(scene.sets) for seconds in rounds.ours)
        seconds = statistics.median(samples)
        times = {
            "seconds": seconds,
            "peer_seconds": statistics.median(rounds.theirs) / len(scene.sets),
            "tflops": problem.flops / seconds / 1e12,
            "gbytes": scene.set_bytes / seconds / 1e9,
            "samples": samples,
            "repeats": rounds.repeats,
        }
        if scene.ceiling is not None:
            peaks = scene.ceiling.peak_bytes, scene.ceiling.peak_flops
            times["roofline"] = share_of(problem, scene.set_bytes, seconds, *peaks)
            times["ceiling"] = share_of_ceiling(problem, scene.set_bytes, seconds, scene.ceiling)
    return TimedRow(
        kernel=leg.callee.name,
        peer=peer,
        format=scene.fmt.name,
        out_format=scene.out.name,
        shape=problem.name,
        M=problem.M,
        N=problem.N,
        K=problem.K,
        batch=problem.batch,
        verdict=verdict,
        how=how if not leg.why else f"{how} (no capture: {leg.why})",
        ratio=ratio,
        sets=len(scene.sets),
        set_bytes=scene.set_bytes,
        l2_bytes=scene.device.l2_bytes,
        operands=scene.stated.describe(),
        **times,
        **more,
    )
