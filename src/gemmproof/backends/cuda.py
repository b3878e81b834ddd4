"""A CUDA device as a backend: the cases that held when simulated, launched there and compared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gemmproof.backends.autotune import Choice
from gemmproof.backends.on_device import Placed, find_changes
from gemmproof.backends.predict import Prediction, find_target, predict
from gemmproof.backends.select import select_cases
from gemmproof.engine.dedupe import dedupe
from gemmproof.engine.judge import Judged, judge
from gemmproof.engine.observe import PassedOver, observe
from gemmproof.engine.tally import tally
from gemmproof.engine.wrapper_state import keep_state
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import PlacedOperand, Touched
from gemmproof.properties.completion import is_cuda_error
from gemmproof.properties.determinism import PREDICTED
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.memory import ENDS
from gemmproof.properties.observation import SIMULATOR, Observation, list_given
from gemmproof.properties.table import BY_NAME, list_required
from gemmproof.properties.values import list_shapes
from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.observation import Run
from gemmproof.report.report import PropertyResult, Report

# What free memory holds, launch after launch: NaN in every float format, zeros, large numbers.
FILLS = (0xFF, 0x00, 0x7B)
CUDA = "cuda"

Emit = Callable[[dict[str, Any]], None]


class Launches:
    """Calls a wrapper on `device`, its tuned launches in `choices`; None leaves that to the tuner.

    `ran` are the configurations that the first call ran in. Operands without room there, and a
    configuration that does not fit, raise PassedOver.
    """

    name = CUDA
    fills: tuple[str, ...] = tuple(f"0x{byte:02x}" for byte in FILLS)

    def __init__(self, device: Any, target: str | None, choices: list[Choice] | None, emit: Emit):
        self.device, self.target, self.choices, self.emit = device, target, choices, emit
        self.ran: list[Choice] = []
        self._placed: dict[str, Placed] = {}
        self._failed = False

    def place(self, operand: PlacedOperand, case: Case) -> torch.Tensor:
        """The operand in the device's memory, between the same guards."""
        wanted = operand.parent.nbytes
        try:
            if wanted > self.device.room():
                raise torch.OutOfMemoryError
            placed: Placed = self.device.place(operand, operand.dtype)
        except torch.OutOfMemoryError:
            raise PassedOver(f"an operand of {wanted / 2**30:.1f} GiB") from None
        self._placed[operand.role.name] = placed
        return placed.tensor

    def call(
        self, observation: Observation, case: Case, tensors: Mapping[str, torch.Tensor], number: int
    ) -> Run:
        """Call the wrapper, and wait for its launches."""
        if number == 0:
            keep_state(observation.kernel.launch).restore()
        count = len(list_shapes(observation))

        def launch(*arguments: torch.Tensor) -> object:
            given = dict(zip(tensors, arguments, strict=True))
            return observation.kernel.call(case, given, count)

        self.device.fill_uninitialised(FILLS[number])
        self._failed = True
        try:
            result, ran = self.device.call(
                launch, tuple(tensors.values()), case.config, self.choices, self._beat
            )
        except torch.OutOfMemoryError:
            raise PassedOver("operands that leave no memory for the result") from None
        self._failed = False
        self._beat()
        self.ran = self.ran or ran
        observation.device, observation.how = self.device.name, self._describe()
        kind = tensors["a"].device.type
        given = tuple(_fetch(one, kind) for one in list_given(result, count))
        return Run(result=given[0] if count == 1 else given)

    def _describe(self) -> str:
        """In which configuration it ran; "" where nothing was tuned."""
        how = ", ".join(str(choice) for choice in self.ran if choice.among > 1)
        by = "the tuner's configuration" if self.choices is None else "configuration"
        return how and f", in {by} {how}"

    def find_changes(self, operand: PlacedOperand) -> list[Touched]:
        """What launches changed of an operand; after a failed call the memory may be unreadable."""
        return [] if self._failed else find_changes(self._placed[operand.role.name])

    def _beat(self) -> None:
        self.emit({"event": "launched"})  # what compiles or measures is no hang


def _fetch(result: object, kind: str) -> torch.Tensor | None:
    """A result in the host's memory; None for what is none of such a device."""
    fits = isinstance(result, torch.Tensor) and result.device.type == kind
    return result.detach().cpu() if fits else None  # type: ignore[attr-defined]


@dataclass(slots=True)
class _Lane:
    """One kernel on one device: what was judged, and what could not be."""

    kernel: KernelUnderTest
    device: Any
    emit: Emit
    target: str | None
    judged: list[Judged] = field(default_factory=list)
    cases: int = 0
    launches: int = 0
    lacks: list[str] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    free: Counter[str] = field(default_factory=Counter)
    broken: bool = False


def launch_cases(
    kernel: KernelUnderTest, report: Report, cases: Iterable[Case], device: Any, emit: Emit
) -> Report:
    """The report of the simulated cases with that of their launches; `device` None: there is none.

    `emit` gets the same events of cases, judgements and findings as the engine's listener.
    """
    if report.verdict == "error":
        return report
    if device is None:
        why = "torch finds no CUDA GPU here; the kernel was simulated only"
        return _explain_no_launch(report, why)
    if report.verdict != "pass":
        why = f"nothing was launched on the {device.name}"
        why += ": what fails when simulated could damage its memory"
        return _explain_no_launch(report, why)
    lane = _Lane(kernel, device, emit, find_target(device.capability))
    if lane.target is None:
        capability = ".".join(map(str, device.capability or ("none",)))
        lane.lacks.append(f"no model of a device of capability {capability}")
    drawn = list(cases)
    chosen = select_cases(drawn)
    for position, case in enumerate(chosen):
        # the largest of each format
        last = position + 1 == len(chosen) or chosen[position + 1].dtype != case.dtype
        _judge_case(lane, replace(case, calls=len(FILLS)), tune=last)
        if lane.broken:
            break
    return _report(lane, report, len(drawn))


def _judge_case(lane: _Lane, case: Case, tune: bool) -> None:
    """Launch one case in its own configuration; if `tune`, in the one that the tuner takes too."""
    lane.emit({"event": "case", "phase": "launch", "index": lane.cases, "case": case.to_json()})
    began, before = time.perf_counter(), len(lane.judged)
    lane.cases += 1
    prediction = _predict(lane, case, None)
    choices = [] if prediction is None else prediction.choices
    if prediction is None or not prediction.judged.findings:
        backend = _launch(lane, case, choices, prediction)
        tuned = any(choice.among > 1 for choice in backend.ran or choices)
        if tune and not lane.broken and tuned:
            _launch(lane, case, None, None)
    seconds = time.perf_counter() - began
    for judged in lane.judged[before:]:
        lane.emit(judged.to_event(lane.cases - 1, seconds))


def _predict(lane: _Lane, case: Case, choices: list[Choice] | None) -> Prediction | None:
    """What the simulator gives for the device; its findings count as those of the case."""
    if lane.target is None:
        return None
    keep_state(lane.kernel.launch).restore()
    made = predict(lane.kernel, case, lane.target, lane.device.multiprocessors, choices)
    if made.judged.findings:
        _take(lane, made.judged)
    return made


def _launch(
    lane: _Lane, case: Case, choices: list[Choice] | None, prediction: Prediction | None
) -> Launches:
    """Call the wrapper over each kind of uninitialised memory, and judge what it gives."""
    backend = Launches(lane.device, lane.target, choices, lane.emit)
    try:
        observation = observe(lane.kernel, case, backend)
    except PassedOver as reason:
        lane.passed_over[str(reason)] += 1
        return backend
    observation.device = lane.device.name
    lane.launches += len(observation.calls)
    raised = observation.raised
    if raised is not None and raised.kind == "internal":
        lane.lacks.append(f"gemmproof itself failed at {case}: {raised.text}")
        return backend
    if choices is None:
        prediction = _predict(lane, case, backend.ran)
    if prediction is not None:
        _compare(lane, observation, prediction, backend.ran)
    _take(lane, judge(observation))
    lane.broken = raised is not None and is_cuda_error(raised.text)
    return backend


def _compare(
    lane: _Lane, observation: Observation, prediction: Prediction, ran: list[Choice]
) -> None:
    """Give an observation its prediction, or say why there is none."""
    simulated = prediction.observation
    if prediction.lacks is not None:
        lane.lacks.append(prediction.lacks)
    elif len(ran) != len(prediction.choices):
        lane.lacks.append("the wrapper launches other kernels on the device than when simulated")
    elif prediction.free is not None:
        lane.free[prediction.free] += 1
    elif simulated.has_result:
        observation.predicted = expected = simulated.calls[0].results
        observation.calls = tuple(
            replace(call, results=tuple(map(_comparable, call.results, expected)))
            for call in observation.calls
        )


def _comparable(result: Array | None, expected: Array | None) -> Array | None:
    """A result in the format that is expected, None for any other."""
    return result if getattr(result, "dtype", None) == getattr(expected, "dtype", 0) else None


def _take(lane: _Lane, judged: Judged) -> None:
    known = {f.key for one in lane.judged for f in one.findings}
    lane.judged.append(judged)
    for finding in judged.findings:
        if finding.key not in known:
            lane.emit({"event": "finding", "finding": finding.to_dict()})


def _explain_no_launch(report: Report, why: str) -> Report:
    """The report of a run that was to launch and did not: it lacks the strongest claim."""
    strongest = BY_NAME[PREDICTED]
    result = PropertyResult(strongest.name, strongest.claim, "not run", 0, None, CUDA)
    return replace(
        report,
        verdict="incomplete" if report.verdict == "pass" else report.verdict,
        properties=(*report.properties, result),
        note="; ".join(filter(None, [report.note, f"--device cuda: {why}"])),
    )


def _report(lane: _Lane, report: Report, drawn: int) -> Report:
    findings = dedupe(lane.judged)
    launched = [j for j in lane.judged if j.backend == CUDA]
    results = tally(list_required(lane.kernel, launched=True), launched, findings, CUDA)
    if lane.lacks:
        results = tuple(
            replace(r, status="not run") if (r.name, r.status) == (PREDICTED, "pass") else r
            for r in results
        )
    failed = {f.property for f in findings if f.backend == SIMULATOR}
    simulated = (replace(p, status="fail") if p.name in failed else p for p in report.properties)
    lacking = any(r.status == "not run" for r in results if r.name in (ENDS, PREDICTED))
    return replace(
        report,
        verdict="fail" if findings else "incomplete" if lacking else report.verdict,
        properties=(*simulated, *results),
        findings=tuple(findings),
        versions={**report.versions, **lane.device.facts},
        note="; ".join(_notes(lane, drawn)),
    )


def _notes(lane: _Lane, drawn: int) -> Iterator[str]:
    """What was launched where, and whatever was not compared, in a line."""
    facts = ", ".join(f"{k} {v}" for k, v in lane.device.facts.items() if k != "device" and v)
    target = lane.target or "no model"
    yield (
        f"{lane.launches} launches of {lane.cases} of {drawn} cases on the {lane.device.name}"
        f" ({', '.join(filter(None, [target, facts]))})"
    )
    if lane.broken:
        yield "stopped there: the CUDA error leaves the device unusable"
    for what, count in lane.passed_over.items():
        yield f"passed over {count}: {what}"
    for what, count in lane.free.items():
        yield f"{count} without predicted bits: {what}"
    for what in dict.fromkeys(lane.lacks):
        yield f"{PREDICTED} not run: {what}"
