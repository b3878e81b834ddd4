"""`--device cuda`: the cases that held when simulated, launched on the device and compared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gemmproof.predicted import Prediction, predict, target_of
from gemmproof.properties.case import Case
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.finding import Finding
from gemmproof.properties.launched import ENDS, PREDICTED, Launched, is_cuda_error, judge, owed
from gemmproof.properties.operands import Touched, operands
from gemmproof.properties.outcome import Outcome, attempt, taken
from gemmproof.properties.placed import changed, size
from gemmproof.properties.state import kept
from gemmproof.reference.formats import Array
from gemmproof.reference.observation import Run
from gemmproof.results import PropertyResult, Report
from gemmproof.share import share
from gemmproof.tuning import Choice, DoesNotFit

# What free memory holds, launch after launch: NaN in every float format, zeros, large numbers.
DIRT = (0xFF, 0x00, 0x7B)

Emit = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class _Lane:
    """One kernel on one device: what was found, what was counted, and what is lacking."""

    kernel: KernelUnderTest
    device: Any
    emit: Emit
    target: str | None
    findings: dict[Any, Finding] = field(default_factory=dict)
    examples: Counter[str] = field(default_factory=Counter)
    ratios: dict[str, float] = field(default_factory=dict)
    cases: int = 0
    launches: int = 0
    lacks: list[str] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    free: Counter[str] = field(default_factory=Counter)
    broken: bool = False

    def found(self, findings: Iterable[Finding]) -> None:
        """Keep the first finding of each fault: cases come smallest first."""
        for finding in findings:
            if finding.key not in self.findings:
                self.findings[finding.key] = finding
                self.emit({"event": "finding", "finding": finding.to_dict()})


def launched(
    kernel: KernelUnderTest, report: Report, cases: Iterable[Case], device: Any, emit: Emit
) -> Report:
    """The report of the simulated cases with that of their launches; `device` None: there is none.

    `emit` is told of cases, judgements and findings as the engine's listener is.
    """
    if report.verdict == "error":
        return report
    if device is None:
        return _not_launched(kernel, report, "torch finds no CUDA GPU here; the kernel was"
                             " simulated only")  # fmt: skip
    if report.verdict != "pass":
        return _not_launched(kernel, report, f"nothing was launched on the {device.name}: what"
                             " fails when simulated could damage its memory")  # fmt: skip
    lane = _Lane(kernel, device, emit, target_of(device.capability))
    if lane.target is None:
        capability = ".".join(map(str, device.capability or ("none",)))
        lane.lacks.append(f"no model of a device of capability {capability}")
    drawn = list(cases)
    chosen = share(drawn)
    for position, case in enumerate(chosen):
        # the largest of each format
        last = position + 1 == len(chosen) or chosen[position + 1].dtype != case.dtype
        _case(lane, replace(case, calls=len(DIRT)), tune=last)
        if lane.broken:
            break
    return _report(lane, report, len(drawn))


def _case(lane: _Lane, case: Case, tune: bool) -> None:
    """Launch one case in its own configuration; if `tune`, in the one that the tuner takes too."""
    lane.emit({"event": "case", "phase": "launch", "index": lane.cases, "case": case.to_json()})
    began = time.perf_counter()
    lane.cases += 1
    applied: list[str] = []
    ratios: dict[str, float] = {}
    prediction = _predict(lane, case, None)
    choices = [] if prediction is None else prediction.choices
    if prediction is None or not prediction.findings:
        one = _launch(lane, case, choices)
        if one is not None:
            _judge(lane, one, prediction, applied, ratios)
        ran = choices if one is None else one.choices
        if tune and not lane.broken and any(choice.among > 1 for choice in ran):
            one = _launch(lane, case, None)
            if one is not None:
                _judge(lane, one, _predict(lane, case, one.choices), applied, ratios)
    names = sorted(set(applied))
    lane.examples.update(names)
    seconds = time.perf_counter() - began
    event = {"event": "judged", "index": lane.cases - 1, "seconds": seconds}
    lane.emit({**event, "examples": names, "ratios": ratios})


@dataclass(frozen=True, slots=True)
class _Calls:
    """What the calls of one case gave: an outcome, a storage array or None for each call."""

    outcome: Outcome
    results: tuple[Array | None, ...]
    choices: list[Choice]
    tuned: bool


def _predict(lane: _Lane, case: Case, choices: list[Choice] | None) -> Prediction | None:
    if lane.target is None:
        return None
    kept(lane.kernel.launch).restore()
    prediction = predict(lane.kernel, case, lane.target, lane.device.multiprocessors, choices)
    lane.found(prediction.findings)
    return prediction


def _launch(lane: _Lane, case: Case, choices: list[Choice] | None) -> _Calls | None:
    """Call the wrapper over each kind of dirt; None if the device has no room for the case."""
    pair = operands(case)
    outcome = Outcome(lane.kernel, case, lane.target, pair)
    wanted = sum(map(size, pair))
    over: list[str] = []
    if wanted > lane.device.room():
        over.append(f"operands of {wanted / 2**30:.1f} GiB")
    made: list[Choice] = []
    seen: list[tuple[Any, Any]] = []

    def beat() -> None:
        lane.emit({"event": "launched"})  # what compiles or measures is no hang

    def runner(function: Callable[..., Any], *tensors: torch.Tensor, **_: Any) -> Run:
        try:
            result, used = lane.device.call(function, tensors, case.config, choices, beat)
        except DoesNotFit as error:
            over.append(f"configuration {error}")
            return Run()
        except torch.OutOfMemoryError:
            over.append("operands that leave no memory for the result")
            return Run()
        made.extend(used if not made else ())
        if isinstance(result, torch.Tensor) and result.device.type == tensors[0].device.type:
            return Run(result=result.detach().cpu())
        return Run()

    if not over:
        try:
            a, b = (lane.device.place(x, case.dtype) for x in pair)
        except torch.OutOfMemoryError:
            over.append(f"operands of {wanted / 2**30:.1f} GiB")
    if not over:
        kept(lane.kernel.launch).restore()
        for byte in DIRT:
            lane.device.dirty(byte)
            run, outcome.raised = attempt(outcome, case, a.tensor, b.tensor, runner, "", None)
            if run is None or over:
                break
            beat()
            seen.append(taken(run.result, outcome.shape))
    if over:
        lane.passed_over[over[0]] += 1
        return None
    lane.launches += len(seen)
    if outcome.raised is not None and outcome.raised.kind == "internal":
        lane.lacks.append(f"gemmproof itself failed at {case}: {outcome.raised.text}")
        return None
    if outcome.raised is None:
        outcome.touched = tuple(_changed(a, b))
        outcome.result, outcome.out = seen[0]
    results = tuple(x if fmt is seen[0][1] else None for x, fmt in seen)
    return _Calls(outcome, results, made, choices is None)


def _changed(*places: Any) -> Iterator[Touched]:
    for place in places:
        yield from changed(place)


def _judge(
    lane: _Lane,
    calls: _Calls,
    prediction: Prediction | None,
    applied: list[str],
    ratios: dict[str, float],
) -> None:
    """Judge the launches of one case beside its prediction, and count what was judged."""
    outcome = calls.outcome
    results, predicted = calls.results, None
    if prediction is not None:
        lacks = prediction.lacks
        if lacks is None and len(calls.choices) != len(prediction.choices):
            lacks = "the wrapper launches other kernels on the device than when simulated"
        if lacks is not None:
            lane.lacks.append(lacks)
        elif prediction.free is not None:
            lane.free[prediction.free] += 1
        else:
            predicted = prediction.outcome.result
            if prediction.outcome.out is not outcome.out:
                results = tuple(None for _ in results)
    if outcome.raised is None and any(result is None for result in results):
        outcome.result = None
    how = ", ".join(str(choice) for choice in calls.choices if choice.among > 1)
    by = "the tuner's configuration" if calls.tuned else "configuration"
    one = Launched(outcome, lane.device.name, how and f", in {by} {how}", results, DIRT, predicted)
    found, names, measured = judge(one)
    lane.found(found)
    applied += names
    for name, ratio in measured.items():
        ratios[name] = max(ratio, ratios.get(name, ratio))
        lane.ratios[name] = max(ratio, lane.ratios.get(name, ratio))
    lane.broken = outcome.raised is not None and is_cuda_error(outcome.raised.text)


def _not_launched(kernel: KernelUnderTest, report: Report, why: str) -> Report:
    """The report of a run that was to launch and did not: it lacks the strongest claim."""
    strongest = owed(kernel)[-1]
    result = PropertyResult(strongest.name, strongest.claim, "not run", 0)
    return replace(
        report,
        verdict="incomplete" if report.verdict == "pass" else report.verdict,
        properties=(*report.properties, result),
        note="; ".join(filter(None, [report.note, f"--device cuda: {why}"])),
    )


def _report(lane: _Lane, report: Report, drawn: int) -> Report:
    failed = {finding.property for finding in lane.findings.values()}
    results = []
    for each in owed(lane.kernel):
        judged = lane.examples[each.name]
        ran = judged > 0 and not (each.name == PREDICTED and lane.lacks)
        status = "fail" if each.name in failed else "pass" if ran else "not run"
        ratio = lane.ratios.get(each.name)
        results.append(PropertyResult(each.name, each.claim, status, judged, ratio))
    simulated = (replace(p, status="fail") if p.name in failed else p for p in report.properties)
    asked = {p.name: p.status for p in results}
    lacking = "not run" in (asked[ENDS], asked[PREDICTED])
    return replace(
        report,
        verdict="fail" if lane.findings else "incomplete" if lacking else report.verdict,
        properties=(*simulated, *results),
        findings=tuple(sorted(lane.findings.values(), key=lambda f: f.cause is not None)),
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
