"""A benchmark: verified calls, timed in rounds, with their ceilings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemmproof.backends.autotune import watch_tuners
from gemmproof.bench.clocks import find_peaks, find_record, read_clocks, share_of, share_of_ceiling
from gemmproof.bench.device_operands import Buffers, count_sets
from gemmproof.bench.peers import make_peer
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import (
    CONTROL,
    EAGER,
    GRAPH,
    RIGHT,
    ROW,
    WRONG,
    Ceiling,
    Interval,
    Reading,
    TimedRow,
)
from gemmproof.bench.statistics import (
    Rounds,
    Run,
    find_floor,
    find_interval,
    judge_ratio,
    time_rounds,
)
from gemmproof.bench.timed_calls import Callee, Leg, make_leg, prepare, probe
from gemmproof.bench.verify import (
    Sample,
    Stated,
    equal_bits,
    find_beyond,
    find_left_out,
    require_simple,
    sample,
    verify,
)
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.target import TargetError
from gemmproof.worker.protocol import Advanced, CaseStarted, Listener, PartialResult, Started

# -- ceilings ------------------------------------------------------------------------------------
COPIED = 2**30  # bytes, many times any cache
LARGE = (4096, 8192)  # sides of the products, of which the better one counts
TRIES = 5


def measure_ceiling(
    device: Any, fmt: Format, beat: Run, copied: int = COPIED, sides: Sequence[int] = LARGE
) -> Ceiling:
    """Measure the bandwidth (bytes read and written) and the FLOP/s of torch's product in a format.

    If the GPU or torch has no product of this format, another peer may still be compared with.
    """
    beat()
    bandwidth = _time_copy(device, copied)
    device.release()
    rates = []
    for side in sides:
        beat()
        with suppress(TargetError):
            rates.append(_time_product(device, fmt, side))
        device.release()
    peaks = find_peaks(device.name, device.capability, device.figures, fmt)
    return Ceiling(fmt.name, bandwidth, max(rates, default=None), *peaks)


def _time_copy(device: Any, count: int) -> float:
    source = torch.zeros(count, dtype=torch.uint8, device=device.where)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    return 2 * count / _time_best(device, copy, 20)


def _time_product(device: Any, fmt: Format, side: int) -> float:
    problem = Problem(side, side, side)
    out = FORMATS["bf16" if fmt.is_fp8 else "int32" if fmt.kind == "int" else fmt.stored.name]
    declared = Stated(KernelUnderTest("product", torch.matmul), problem, fmt)
    peer = make_peer(None, declared, out)
    sets = [declared.make(device.where) for _ in range(2)]
    for seed, buffers in enumerate(sets):
        declared.fill(buffers, seed)
    leg = make_leg(peer, sets, problem.shapes[2], out, f"{problem} {fmt.name}", device)
    seconds = _time_best(device, leg.run(GRAPH), 10) / len(sets)
    return problem.flops / seconds


def _time_best(device: Any, run: Run, repeats: int) -> float:
    device.time(run, repeats)  # so that clocks have risen
    return min(device.time(run, repeats) for _ in range(TRIES))


# -- calls of a benchmark ------------------------------------------------------------------------
@dataclass(slots=True)
class BenchScene:
    """A measurement's context; `set_bytes` are those of the operands of one set and its result."""

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
    def label(self) -> str:
        """The problem and the format as messages name them."""
        return f"{self.problem} {self.fmt.name}"

    @property
    def declared(self) -> Stated:
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
    """Return a row; times are those of one call, of which a run makes one for each set."""
    problem = scene.problem
    row = TimedRow(
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
        operands=scene.declared.describe(),
        **more,
    )
    if rounds is None:
        return row
    samples = tuple(seconds / len(scene.sets) for seconds in rounds.ours)
    seconds = statistics.median(samples)
    row = replace(
        row,
        seconds=seconds,
        peer_seconds=statistics.median(rounds.theirs) / len(scene.sets),
        tflops=problem.flops / seconds / 1e12,
        gbytes=scene.set_bytes / seconds / 1e9,
        samples=samples,
        repeats=rounds.repeats,
    )
    if scene.ceiling is None:
        return row
    peaks = scene.ceiling.peak_bytes, scene.ceiling.peak_flops
    return replace(
        row,
        roofline=share_of(problem, scene.set_bytes, seconds, *peaks),
        ceiling=share_of_ceiling(problem, scene.set_bytes, seconds, scene.ceiling),
    )


# -- run -----------------------------------------------------------------------------------------
ROUNDS, SETTLE = 20, 2.0
PLAIN = KernelUnderTest("kernel", torch.matmul)  # f(a, b) -> a @ b


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a benchmark: kernels against one peer on problems in formats.

    The peer is a callee, or the name of one of torch's (peers.PEERS), None for the usual one.
    `out` is the format that results must have, None for whatever the kernels return. `rounds` and
    `settle` are those of statistics.time_rounds. With `timed` False results are verified only.
    `declared` has the operands, the formula and the accumulator of all kernels. With `columns` b is
    in column-major memory.
    """

    kernels: Sequence[Callee]
    peer: Callee | str | None
    problems: Sequence[Problem]
    formats: Sequence[str]
    out: str | None = None
    rounds: int = ROUNDS
    settle: float = SETTLE
    timed: bool = True
    declared: KernelUnderTest = PLAIN
    columns: bool = False


def run_plan(device: Any, plan: Plan, emit: Listener) -> tuple[list[Ceiling], list[TimedRow]]:
    """Run a plan. Raises TargetError, in one line, for what cannot be called or compared.

    `emit` gets an event before each case, for each ceiling and row, and as a heartbeat. Wrong
    results give a row without times.
    """

    def beat() -> None:
        emit(Advanced())

    try:
        require_simple(plan.declared)
    except ValueError as error:
        raise TargetError(str(error)) from None
    ceilings: list[Ceiling] = []
    rows: list[TimedRow] = []
    cases = len(plan.formats) * (len(plan.problems) + plan.timed)
    emit(Started(cases))
    for name in plan.formats:
        fmt = FORMATS[name]
        with _full_precision(fmt), torch.no_grad():
            ceiling = None
            if plan.timed:
                emit(CaseStarted(f"the ceiling of {name}", "launch"))
                ceiling = measure_ceiling(device, fmt, beat)
                ceilings.append(ceiling)
            for problem in plan.problems:
                emit(CaseStarted(f"{problem} {name}", "launch"))
                measured = _measure(device, plan, problem, fmt, ceiling, beat)
                for row in measured:
                    emit(PartialResult(ROW, row))
                rows += measured
                device.release()
    return ceilings, rows


@contextmanager
def _full_precision(fmt: Format) -> Iterator[None]:
    """Let torch's products sum in fp32, as kernels do; it reads fp32 as tf32 only if asked to."""
    matmul = torch.backends.cuda.matmul
    names = ["allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"]
    if fmt.stored.name == "fp32":  # reading it raises if a program uses its newer name
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
    """Return the rows of one problem: the control first, then each kernel."""
    configs: dict[str, tuple[str, ...]] = {}
    declared = Stated(plan.declared, problem, fmt, plan.columns)
    label = f"{problem} {fmt.name}"
    try:
        out = _find_out(device, plan, declared, configs, beat)
        peer = plan.peer
        if not isinstance(peer, Callee):
            peer = make_peer(peer, declared, out)
        sets = [_make_set(declared, 0, device)]
        beat()
        own = prepare(peer, sets[0], label)
        peer_out, peer.takes_out = probe(peer, own, problem, fmt, device)
        # a formula's peer may round, or not, what it computes differently
        if peer_out is not out and plan.declared.spec is None:
            raise TargetError(
                f"{peer.name} at {label}: got a result in {peer_out.name}, expected {out.name},"
                f" the format of {plan.kernels[0].name}"
            )
        least = min(x.count_bytes() for x in (sets[0], own))
        result = problem.count_results() * out.itemsize
        count = count_sets(least + result, device.l2_bytes)
        del own
        sets += [_make_set(declared, seed, device) for seed in range(1, count)]
        moved = sets[0].count_bytes() + result
        scene = BenchScene(
            device, plan.declared, problem, fmt, out, peer_out, sets, moved, ceiling, beat
        )
        return _compare(scene, plan, peer, configs)
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise TargetError(
            f"{label}: got {reason}, expected room for the rotating buffers"
        ) from None


def _make_set(declared: Stated, seed: int, device: Any) -> Buffers:
    try:
        buffers = declared.make(device.where)
    except ValueError as error:  # an invalid shape at these sizes
        raise TargetError(f"operands at {declared.problem}: {error}") from None
    declared.fill(buffers, seed)
    return buffers


def _find_out(
    device: Any,
    plan: Plan,
    declared: Stated,
    configs: dict[str, tuple[str, ...]],
    beat: Callable[[], None],
) -> Format:
    """Return the result format of all kernels; each is tuned on the way. Raises TargetError."""
    problem, fmt = declared.problem, declared.fmt
    buffers = _make_set(declared, 0, device)
    for name in plan.declared.written:
        sides = plan.declared.tensors[name].sides(declared.sizes)
        if sides != problem.shapes[2]:
            raise TargetError(
                f"operand {name} at {problem}: got {sides}, expected {problem.shapes[2]}"
            )
    expected = None if plan.out is None else FORMATS[plan.out]
    source = "--out-dtype"
    for kernel in plan.kernels:
        beat()
        with watch_tuners(beat) as chosen:
            actual, kernel.takes_out = probe(kernel, buffers, problem, fmt, device)
        configs[kernel.name] = tuple(dict.fromkeys(map(str, chosen)))
        if expected is None:
            expected, source = actual, f"the format of {kernel.name}"
        if actual is not expected:
            raise TargetError(
                f"{kernel.name} at {problem} {fmt.name}: got a result in {actual.name}, expected"
                f" {expected.name}, {source}"
            )
    assert expected is not None
    return expected


def _compare(
    scene: BenchScene, plan: Plan, peer: Callee, configs: dict[str, tuple[str, ...]]
) -> list[TimedRow]:
    """Verify everything, then time the peer against itself and each kernel against the peer."""
    device, sets = scene.device, scene.sets
    shape = scene.problem.shapes[2]
    scene.beat()
    samples = _sample(scene)
    theirs = make_leg(peer, sets, shape, scene.peer_out, scene.label, device)
    again = replace(peer, name=f"{peer.name} again", prepare=None)
    control = make_leg(again, theirs.sets, shape, scene.peer_out, scene.label, device)
    legs = [theirs, control]
    for kernel in plan.kernels:
        scene.beat()
        legs.append(make_leg(kernel, sets, shape, scene.out, scene.label, device))
    ours = legs[2:]
    # one way for both sides, or launches would be counted on one side only
    hows = [EAGER if EAGER in (leg.how, theirs.how) else leg.how for leg in legs]
    wrong, differs = _verify(scene, samples, list(zip(legs, hows, strict=True)))
    if error := wrong[0] or wrong[1]:  # nothing can be compared with it
        raise TargetError(error)
    floors: dict[str, tuple[float, float]] = {}
    rows: list[TimedRow] = []
    for leg, how, error in zip(ours, hows[2:], wrong[2:], strict=True):
        if error or not plan.timed:
            verdict = WRONG if error else RIGHT
            row = make_row(scene, leg, peer.name, verdict, how, wrong=error, peer_differs=differs)
            rows.append(row)
            continue
        if how not in floors:
            floors[how], row = _time_control(scene, plan, theirs, control, how)
            rows.append(row)
        theirs.run(how)()
        leg.run(how)()
        bits = equal_bits(leg, theirs, how)
        rounds, clocks = _time(scene, plan, leg, theirs, how)
        ratio = find_interval(rounds.ratios)
        row = make_row(
            scene, leg, peer.name, judge_ratio(ratio, floors[how]), how, rounds, ratio,
            floor=floors[how], equal_bits=bits, clocks=clocks,
            configs=configs[leg.callee.name], peer_differs=differs,
        )  # fmt: skip
        rows.append(row)
    return rows


def _sample(scene: BenchScene) -> list[Sample]:
    """Sample the formula before any call could change an operand; [] without a formula."""
    if scene.kernel.spec is None:
        return []
    record = find_record(scene.device.capability)
    target = record.name if record is not None and record.cores else None
    return sample(scene.declared, scene.sets, target, scene.beat)


def _verify(
    scene: BenchScene, samples: list[Sample], legs: list[tuple[Leg, str]]
) -> tuple[list[str], str]:
    """Return what is wrong with each leg, and where the peer differs from a formula, or "".

    The peer of a formula is only required to return a result.
    """
    scene.beat()
    if not samples:
        return verify(legs, scene.sets, scene.declared, scene.out), ""
    wrong, beyond = [], []
    for leg, how in legs:
        scene.beat()
        wrong.append(find_left_out(leg, how, scene.label))
        beyond.append(wrong[-1] or find_beyond(leg, how, samples, scene.label))
    return [*wrong[:2], *beyond[2:]], beyond[0]


def _time_control(
    scene: BenchScene, plan: Plan, theirs: Leg, control: Leg, how: str
) -> tuple[tuple[float, float], TimedRow]:
    rounds, clocks = _time(scene, plan, control, theirs, how)
    floor = find_floor(rounds.ratios)
    ratio = find_interval(rounds.ratios)
    facts = {"floor": floor, "clocks": clocks}
    row = make_row(scene, control, theirs.callee.name, CONTROL, how, rounds, ratio, **facts)
    return floor, row


def _time(
    scene: BenchScene, plan: Plan, ours: Leg, theirs: Leg, how: str
) -> tuple[Rounds, dict[str, Reading]]:
    """Time the rounds, and read the clocks before and after them while the GPU works."""
    device = scene.device
    our_run, their_run = ours.run(how), theirs.run(how)
    once = device.time(their_run, 3)
    before = device.read_busy(read_clocks, their_run, once)
    rounds = time_rounds(device.time, our_run, their_run, plan.rounds, plan.settle, scene.beat)
    after = device.read_busy(read_clocks, their_run, once)
    return rounds, {"before": before, "after": after}
