"""The benchmark fixture for pytest, on a device or simulated."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from gemmproof.bench.problems import Problem
from gemmproof.properties.codec import encode
from gemmproof.report.text import kernel_name
from gemmproof.target import TargetError, call_theirs

if TYPE_CHECKING:
    from gemmproof.properties.kernel import KernelUnderTest

# -- simulated benchmarks ------------------------------------------------------------------------
DEVICE = "simulator"
SECONDS = 300.0  # of CPU time for a call


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A timed step of a problem: `name` "simulate" or "judge", and the call that does it."""

    name: str
    call: Callable[[], object]


def shrink(kernel: KernelUnderTest, problem: Problem) -> Problem:
    """Return a small version of a problem, of sizes that the contract admits if it has any."""
    small = problem.shrink()
    lead = {} if small.batch is None else {"batch": small.batch}
    sides = {"M": small.M, "N": small.N, "K": small.K, **lead}
    sides = kernel.contract.fit(sides) or sides
    M, N, K, *batch = sides.values()
    return Problem(M, N, K, batch[0] if batch else None, small.name)


def list_steps(kernel: KernelUnderTest, problem: Problem) -> list[MeasuredStep]:
    """Return the simulated call on a small problem, and the judgement of that case.

    The case is judged once before: a kernel that is wrong is not timed. Raises TargetError with the
    first finding, or with what the simulator cannot run.
    """
    from gemmproof.engine.kernel_check import check
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.cases.operands import tensors_of
    from gemmproof.properties.kernel import ContractError
    from gemmproof.reference.simulator import run
    from gemmproof.reference.spec import SpecError

    (dtype,), name = kernel.contract.formats, kernel.name
    kernel = replace(kernel, contract=replace(kernel.contract, batched=problem.batch is not None))
    case = Case(problem.M, problem.N, problem.K, dtype, batch=problem.batch)

    def judge() -> Any:
        return check(kernel, case=case, max_examples=1, seconds=SECONDS)

    try:
        report = judge()
    except (SpecError, ContractError) as error:
        raise TargetError(f"{name} at {problem} {dtype}: {error}") from None
    if report.verdict != "pass":
        message = report.findings[0].message if report.findings else report.note
        raise TargetError(f"{kernel_name(report)} at {problem} {dtype}, {message}")
    tensors = tensors_of(case, kernel)

    def launch(*arguments: Any) -> Any:
        return kernel.call(case, dict(zip(tensors, arguments, strict=True)))

    def simulate() -> object:
        return run(launch, *tensors.values(), operands=tensors, seconds=SECONDS)

    call_theirs(name, f"simulating it at {problem} {dtype}", simulate)
    return [MeasuredStep("simulate", simulate), MeasuredStep("judge", judge)]


# -- fixture -------------------------------------------------------------------------------------
# Nothing of ours is imported at the top: this module is loaded with the plugin.

SIMULATED_ROUNDS = 5
ExtraInfo = dict[str, Any]  # of an entry, as pytest-benchmark writes it to its JSON


class SampleClock:
    """A clock by which the n-th timed call takes as long as the n-th loaded sample.

    pytest-benchmark reads its timer before and after each call: the first reading of a pair is the
    time so far, the second one adds the next sample. Without samples it is the real clock. Raises
    StopIteration beyond the last sample.
    """

    __name__ = "gemm_benchmark"  # what JSON calls the timer

    def __init__(self) -> None:
        self._samples: Iterator[float] | None = None
        self._now = 0.0
        self._is_running = False

    def load(self, samples: Iterable[float]) -> None:
        """Let the next calls take these seconds."""
        self._samples, self._is_running = iter(samples), False

    def __call__(self) -> float:
        if self._samples is None:
            return time.perf_counter()
        if self._is_running:
            self._now += next(self._samples)
        self._is_running = not self._is_running
        return self._now


class Entries:
    """Stores several entries of pytest-benchmark for one test, whose fixture works only once."""

    def __init__(self, benchmark: Any, clock: SampleClock) -> None:
        self.enabled: bool = benchmark.enabled
        self._clock = clock
        self._unused = copy.copy(benchmark)
        self._next = benchmark  # the first entry uses it, or it would report that it was not used

    def store(
        self,
        entry: str,
        info: ExtraInfo,
        call: Callable[[], object],
        rounds: int,
        samples: Sequence[float] = (),
    ) -> None:
        """Time `call`, or take the samples for its times, under the test's name and `entry`."""
        fixture, self._next = self._next, copy.copy(self._unused)
        fixture.name, fixture.fullname = (
            _label_entry(x, entry) for x in (fixture.name, fixture.fullname)
        )
        fixture.extra_info = info
        if samples:
            self._clock.load(samples)
        fixture.pedantic(call, rounds=rounds, iterations=1)


@pytest.fixture
def gemm_benchmark(request: pytest.FixtureRequest) -> Callable[..., list[ExtraInfo]]:
    """Verify a GEMM kernel, then time it against a peer: `gemm_benchmark(matmul, shapes="llama")`.

    Returns a dictionary for each entry, the one that JSON has as extra_info.
    """
    if not request.config.pluginmanager.hasplugin("benchmark"):
        pytest.fail(
            "gemm_benchmark: needs pytest-benchmark: pip install 'gemmproof[bench]'",
            pytrace=False,
        )
    if "benchmark" in request.fixturenames:  # it would keep a separate clock
        pytest.fail(
            "gemm_benchmark: got benchmark too, expected one of the two fixtures", pytrace=False
        )
    clock = SampleClock()
    marker = request.node.get_closest_marker("benchmark")
    options = {**(marker.kwargs if marker else {}), "timer": clock}
    request.node.add_marker(pytest.mark.benchmark(**options), append=False)
    benchmark = request.getfixturevalue("benchmark")
    request.node.funcargs.setdefault("benchmark", benchmark)  # --benchmark-only looks there
    entries = Entries(benchmark, clock)

    def measure(
        function: Callable[..., Any] | KernelUnderTest,
        *,
        against: Callable[..., Any] | str | None = None,
        shapes: str | Iterable[str | Sequence[int]] = "square",
        dtype: str | None = None,
        name: str | None = None,
        operands: Mapping[str, Any] | None = None,
        spec: Callable[..., Any] | None = None,
        rounds: int = 20,
        settle: float = 2.0,
    ) -> list[ExtraInfo]:
        """Time `function(a, b)`, or `function(a, b, out=c)` if it takes `out`.

        `against` is the peer: a function, or the name of one of torch's (default: its product of
        the format). `shapes` are suites or MxNxK, `dtype` the format of a and b. `operands` and
        `spec` are those of a KernelUnderTest, which may replace the function. A wrong result, or
        bad arguments, fail the test.
        """
        from gemmproof.bench.problems import read_problems
        from gemmproof.target import TargetError

        try:
            problems = read_problems(shapes)
            kernel = _state(function, name, dtype, operands, spec)
            if isinstance(against, str):
                from gemmproof.bench.peers import require_known

                require_known("against", against)
            if _has_gpu():
                return _time_on_gpu(entries, kernel, against, problems, rounds, settle)
            return _time_simulator(entries, kernel, problems)
        except (TargetError, ValueError) as error:
            pytest.fail(str(error), pytrace=False)

    return measure


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _state(
    function: Callable[..., Any] | KernelUnderTest,
    name: str | None,
    dtype: str | None,
    operands: Mapping[str, Any] | None,
    spec: Callable[..., Any] | None,
) -> KernelUnderTest:
    """Return the kernel, with a contract of one format. Raises ValueError, in one line."""
    from dataclasses import replace

    from gemmproof.properties.contract import Contract
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.reference.formats import OPERANDS

    if dtype is not None and dtype not in OPERANDS:
        raise ValueError(f"dtype: got {dtype!r}, expected one of: {' '.join(OPERANDS)}")
    if not isinstance(function, KernelUnderTest):
        title = name or str(getattr(function, "__name__", type(function).__name__))
        contract = Contract(formats=(dtype or "fp16",))
        return KernelUnderTest(title, function, contract, operands=operands or {}, spec=spec)
    if operands is not None or spec is not None:
        raise ValueError(
            "operands: got some with a KernelUnderTest, which has its own, expected none"
        )
    contract = replace(function.contract, formats=(dtype or function.contract.formats[0],))
    return replace(function, name=name or function.name, contract=contract)


def _time_on_gpu(
    entries: Entries,
    kernel: KernelUnderTest,
    against: Callable[..., Any] | str | None,
    problems: Sequence[Any],
    rounds: int,
    settle: float,
) -> list[ExtraInfo]:

    from gemmproof.bench.clocks import CudaDevice
    from gemmproof.bench.record import CONTROL
    from gemmproof.bench.run import Plan, run_plan
    from gemmproof.bench.timed_calls import make_callee, make_target_peer
    from gemmproof.target import TargetError

    device = CudaDevice()
    peer: Any = against
    if callable(against):
        peer = make_target_peer(_get_name(against), against, kernel)
    (dtype,), title = kernel.contract.formats, kernel.name
    callees, out = [make_callee(title, kernel.launch, kernel)], kernel.contract.out
    plan = Plan(
        callees, peer, problems, [dtype], out, rounds, settle, timed=entries.enabled,
        declared=kernel,
    )  # fmt: skip
    ceilings, rows = run_plan(device, plan, lambda event: None)
    if errors := [row.wrong for row in rows if row.wrong]:
        raise TargetError(errors[0])
    infos = []
    for row in rows:
        info = {"device": device.name, **encode(row), "ceilings": [encode(c) for c in ceilings]}
        del info["samples"]  # pytest-benchmark has them as its data
        infos.append(info)
        if row.verdict != CONTROL:
            rounds = max(1, len(row.samples))
            entries.store(f"{title} {dtype} {row.problem}", info, _nothing, rounds, row.samples)
    return infos


def _time_simulator(
    entries: Entries, kernel: KernelUnderTest, problems: Sequence[Any]
) -> list[ExtraInfo]:

    (dtype,), title = kernel.contract.formats, kernel.name
    small = dict.fromkeys(shrink(kernel, problem) for problem in problems)
    steps = [(problem, step) for problem in small for step in list_steps(kernel, problem)]
    infos = []
    for problem, step in steps:
        info: ExtraInfo = {
            "device": DEVICE,
            "kernel": title,
            "format": dtype,
            "step": step.name,
        }
        info |= {"shape": problem.name, "M": problem.M, "N": problem.N, "K": problem.K}
        info["batch"] = problem.batch
        infos.append(info)
        entry = f"{title} {dtype} {problem} {step.name}"
        entries.store(entry, info, step.call, SIMULATED_ROUNDS)
    return infos


def _label_entry(test: str, entry: str) -> str:
    """Return e.g. test_speed[matmul-fp16-llama/qkv-...], after the parameters of the test."""
    part = entry.replace(" ", "-")
    return f"{test[:-1]}-{part}]" if test.endswith("]") else f"{test}[{part}]"


def _nothing() -> None:
    """Do nothing: called while the samples of the GPU are replayed."""


def _get_name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or getattr(function, "__qualname__", "")
    name = getattr(function, "__name__", type(function).__name__)
    import torch

    return f"torch.{name}" if getattr(torch, name, None) is function else f"{module}.{name}"
