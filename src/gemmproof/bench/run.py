"""A run of a benchmark: every kernel on every shape in every format, verified and then timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gemmproof.backends.autotune import watch_tuners
from gemmproof.bench.calls import Callee, make_peer, probe
from gemmproof.bench.ceiling import measure_ceiling
from gemmproof.bench.clocks import read_clocks
from gemmproof.bench.legs import Leg, make_leg
from gemmproof.bench.operands import Buffers, count_sets, fill_uniform, make_buffers
from gemmproof.bench.problems import Problem
from gemmproof.bench.ratios import find_floor, find_interval, judge_ratio
from gemmproof.bench.records import CONTROL, EAGER, RIGHT, WRONG, Ceiling, Interval, TimedRow
from gemmproof.bench.roofline import share_of, share_of_ceiling
from gemmproof.bench.rounds import Rounds, time_rounds
from gemmproof.bench.verify import equal_bits, verify
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.target import TargetError

Emit = Callable[[dict[str, Any]], None]
ROUNDS, SETTLE = 20, 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is timed: kernels against one peer (None: torch's own) on problems in formats.

    `out` is the format that results must have, None for whatever the kernels return. `rounds` and
    `settle` are those of rounds.time_rounds. With `timed` False results are verified only.
    """

    kernels: Sequence[Callee]
    peer: Callee | None
    problems: Sequence[Problem]
    formats: Sequence[str]
    out: str | None = None
    rounds: int = ROUNDS
    settle: float = SETTLE
    timed: bool = True


@dataclass(slots=True)
class _Scene:
    """One problem in one format: its buffers, and what its rows have in common."""

    device: Any
    plan: Plan
    problem: Problem
    fmt: Format
    out: Format
    sets: list[Buffers]
    ceiling: Ceiling | None
    beat: Callable[[], None]

    @property
    def place(self) -> str:
        return f"{self.problem} {self.fmt.name}"

    @property
    def set_bytes(self) -> int:
        return self.problem.count_bytes(self.fmt.itemsize, self.out.itemsize)


def run_plan(device: Any, plan: Plan, emit: Emit) -> tuple[list[Ceiling], list[TimedRow]]:
    """Measure all of it. Raises TargetError, in one line, for what cannot be called or compared.

    `emit` gets an event before each case, for each ceiling and row, and as a sign of life. Wrong
    results make a row without times.
    """

    def beat() -> None:
        emit({"event": "launched"})

    ceilings: list[Ceiling] = []
    rows: list[TimedRow] = []
    cases = len(plan.formats) * (len(plan.problems) + plan.timed)
    emit({"event": "start", "examples": cases})
    for name in plan.formats:
        fmt = FORMATS[name]
        with _full_precision(fmt), torch.no_grad():
            ceiling = None
            if plan.timed:
                emit({"event": "case", "phase": "launch", "case": f"the ceiling of {name}"})
                ceiling = measure_ceiling(device, fmt, beat)
                ceilings.append(ceiling)
            for problem in plan.problems:
                emit({"event": "case", "phase": "launch", "case": f"{problem} {name}"})
                made = _measure(device, plan, problem, fmt, ceiling, beat)
                for row in made:
                    emit({"event": "timed", "row": row})
                rows += made
                device.release()
    return ceilings, rows


@contextmanager
def _full_precision(fmt: Format) -> Iterator[None]:
    """torch's products sum in fp32, as kernels do; it reads fp32 as tf32 only if that is asked."""
    matmul = torch.backends.cuda.matmul
    names = ["allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"]
    if fmt.stored.name == "fp32":  # to read it raises where a program uses its newer name
        names.append("allow_tf32")
    before = {name: getattr(matmul, name) for name in names}
    try:
        for name in names:
            setattr(matmul, name, name == "allow_tf32" and fmt.stored is not fmt)
        yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)


def _measure(
    device: Any,
    plan: Plan,
    problem: Problem,
    fmt: Format,
    ceiling: Ceiling | None,
    beat: Callable[[], None],
) -> list[TimedRow]:
    """The rows of one problem: the control first, then each kernel."""
    configs: dict[str, tuple[str, ...]] = {}
    try:
        out = _find_out(device, plan, problem, fmt, configs, beat)
        peer = plan.peer or make_peer(fmt, out, device.where)
        peer.columns |= any(kernel.columns for kernel in plan.kernels)
        count = count_sets(problem.count_bytes(fmt.itemsize, out.itemsize), device.l2_bytes)
        sets = [make_buffers(problem, fmt, device.where, peer.columns) for _ in range(count)]
        for seed, buffers in enumerate(sets):
            fill_uniform(buffers, fmt, seed)
        scene = _Scene(device, plan, problem, fmt, out, sets, ceiling, beat)
        beat()
        found, peer.takes_out = probe(peer, sets[0], problem, fmt, device)
        if found is not out:
            raise TargetError(
                f"{peer.name} at {scene.place}: got a result in {found.name}, expected {out.name},"
                f" the format of {plan.kernels[0].name}"
            )
        return _compare(scene, peer, configs)
    except torch.OutOfMemoryError as error:
        why = str(error).partition(". ")[0]
        raise TargetError(
            f"{problem} {fmt.name}: got {why}, expected room for the rotating buffers"
        ) from None


def _find_out(
    device: Any,
    plan: Plan,
    problem: Problem,
    fmt: Format,
    configs: dict[str, tuple[str, ...]],
    beat: Callable[[], None],
) -> Format:
    """The format that all kernels give; each is tuned on the way. Raises TargetError."""
    columns = any(kernel.columns for kernel in plan.kernels)
    buffers = make_buffers(problem, fmt, device.where, columns)
    fill_uniform(buffers, fmt, 0)
    wanted = None if plan.out is None else FORMATS[plan.out]
    whose = "--out-dtype"
    for kernel in plan.kernels:
        beat()
        with watch_tuners(beat) as chosen:
            found, kernel.takes_out = probe(kernel, buffers, problem, fmt, device)
        configs[kernel.name] = tuple(dict.fromkeys(map(str, chosen)))
        if wanted is None:
            wanted, whose = found, f"the format of {kernel.name}"
        if found is not wanted:
            raise TargetError(
                f"{kernel.name} at {problem} {fmt.name}: got a result in {found.name}, expected"
                f" {wanted.name}, {whose}"
            )
    assert wanted is not None
    return wanted


def _compare(scene: _Scene, peer: Callee, configs: dict[str, tuple[str, ...]]) -> list[TimedRow]:
    """Verify everything, then time the peer against itself and each kernel against the peer."""
    device, plan = scene.device, scene.plan
    again = Callee(f"{peer.name} again", peer.function, peer.takes_out, peer.columns)
    legs: list[Leg] = []
    for callee in (peer, again, *plan.kernels):
        scene.beat()
        legs.append(make_leg(callee, scene.sets, scene.out, scene.place, device))
    theirs, control, *ours = legs
    # one way for both sides, or launches would be counted on one side only
    hows = [EAGER if EAGER in (leg.how, theirs.how) else leg.how for leg in legs]
    scene.beat()
    wrong = verify(list(zip(legs, hows, strict=True)), scene.fmt, scene.out, scene.place)
    if mistake := wrong[0] or wrong[1]:  # nothing can be compared with it
        raise TargetError(mistake)
    floors: dict[str, tuple[float, float]] = {}
    rows: list[TimedRow] = []
    for leg, how, mistake in zip(ours, hows[2:], wrong[2:], strict=True):
        if mistake or not plan.timed:
            verdict = WRONG if mistake else RIGHT
            rows.append(_make_row(scene, leg, peer.name, verdict, how, wrong=mistake))
            continue
        if how not in floors:
            floors[how], row = _time_control(scene, theirs, control, how)
            rows.append(row)
        theirs.run(how)()
        leg.run(how)()
        bits = equal_bits(leg, theirs, how)
        rounds, clocks = _time(scene, leg, theirs, how)
        ratio = find_interval(rounds.ratios)
        row = _make_row(
            scene, leg, peer.name, judge_ratio(ratio, floors[how]), how, rounds, ratio,
            floor=floors[how], equal_bits=bits, clocks=clocks,
            configs=configs[leg.callee.name],
        )  # fmt: skip
        rows.append(row)
    return rows


def _time_control(
    scene: _Scene, theirs: Leg, control: Leg, how: str
) -> tuple[tuple[float, float], TimedRow]:
    rounds, clocks = _time(scene, control, theirs, how)
    floor = find_floor(rounds.ratios)
    ratio = find_interval(rounds.ratios)
    words = {"floor": floor, "clocks": clocks}
    row = _make_row(scene, control, theirs.callee.name, CONTROL, how, rounds, ratio, **words)
    return floor, row


def _time(scene: _Scene, ours: Leg, theirs: Leg, how: str) -> tuple[Rounds, dict[str, Any]]:
    """The rounds, and the clocks before and after them, read while the GPU works."""
    device, plan = scene.device, scene.plan
    mine, others = ours.run(how), theirs.run(how)
    once = device.time(others, 3)
    before = device.read_busy(read_clocks, others, once)
    rounds = time_rounds(device.time, mine, others, plan.rounds, plan.settle, scene.beat)
    after = device.read_busy(read_clocks, others, once)
    return rounds, {"before": before, "after": after}


def _make_row(
    scene: _Scene,
    leg: Leg,
    peer: str,
    verdict: str,
    how: str,
    rounds: Rounds | None = None,
    ratio: Interval | None = None,
    **more: Any,
) -> TimedRow:
    """A row; times are those of one call, of which a run makes one for each set."""
    problem, fmt, out = scene.problem, scene.fmt, scene.out
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
            times["roofline"] = share_of(problem, fmt, out, seconds, *peaks)
            times["ceiling"] = share_of_ceiling(problem, fmt, out, seconds, scene.ceiling)
    return TimedRow(
        kernel=leg.callee.name,
        peer=peer,
        format=fmt.name,
        out_format=out.name,
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
        **times,
        **more,
    )
