"""The CUDA backend: a case run on a device."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from gemmproof.backends.autotune import Choice
from gemmproof.backends.cuda_device import CUDA, FILLS, Launches
from gemmproof.backends.predict import Prediction, find_target, predict
from gemmproof.backends.simulate import Simulator
from gemmproof.compiled.assumptions import AssumptionCheck
from gemmproof.engine.draw import list_cases
from gemmproof.engine.findings import dedupe
from gemmproof.engine.observe import CaseNotRunnable, CaseResult, judge, observe
from gemmproof.engine.proofs import NOTHING
from gemmproof.engine.sections import (
    Tally,
    add_model_check,
    begin_report,
    conclude_exercise,
    describe_passes,
    emit_partial,
    judge_compiled,
    make_report,
    update_report,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.judges.determinism import PREDICTED, SAME, count_predicted
from gemmproof.properties.judges.memory_use import ENDS, is_cuda_error
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase
from gemmproof.properties.property_table import BY_NAME, is_predicted, list_unseen
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import Note, PropertyResult, Report, Verdict
from gemmproof.worker.protocol import CaseStarted, Compared, Listener, Started

# -- selection of a backend ----------------------------------------------------------------------
MOST_CASES = 24  # cases launched of each format; compiling them takes most of the time


def select_cases(cases: Iterable[Case]) -> list[Case]:
    """Return up to MOST_CASES cases of each format, with every configuration and layout, by size.

    A case that shows a configuration, layout, fill or multiprocessor count for the first time
    comes before the rest, of which every n-th is taken.
    """
    groups: dict[str, list[Case]] = {}
    for case in dict.fromkeys(replace(c, compare=None, calls=1) for c in cases if not c.is_sampled):
        groups.setdefault(case.dtype, []).append(case)
    selected: list[Case] = []
    for group in groups.values():
        seen: set[tuple[str, Any]] = set()
        new: list[Case] = []
        rest: list[Case] = []
        for case in group:
            facets = {(name, getattr(case, name)) for name in ("config", "fill", "sms")}
            facets |= set(case.layouts)
            (rest if facets <= seen else new).append(case)
            seen |= facets
        chosen = new[:MOST_CASES]
        if left := MOST_CASES - len(chosen):
            chosen += rest[:: max(1, -(-len(rest) // left))]
        selected += sorted(chosen, key=lambda c: (c.M * c.N * c.K, c.M + c.N + c.K))
    return selected


# -- cuda ----------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Lane:
    """The state of one kernel on one device: what was judged, and what could not be.

    `begun` is the report of the simulated cases. `equal` of `outputs` elements have the predicted
    bits. `unseen`: the simulator could not see some launch.
    """

    kernel: KernelUnderTest
    device: Any
    emit: Listener
    target: str | None
    assumptions: AssumptionCheck
    begun: Report
    tally: Tally = field(default_factory=lambda: Tally(CUDA))
    judged: list[CaseResult] = field(default_factory=list)
    cases: int = 0
    launches: int = 0
    lacks: list[str] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    free: Counter[str] = field(default_factory=Counter)
    equal: int = 0
    outputs: int = 0
    unseen: bool = False
    broken: bool = False


def launch_cases(
    kernel: KernelUnderTest,
    report: Report,
    cases: Iterable[Case],
    device: Any,
    emit: Listener,
    assumptions: AssumptionCheck | None = None,
    whole: bool = False,
) -> Report:
    """Return the simulated cases' report with that of their launches; `device` None: there is none.

    `emit` gets the same events of cases, judgements and findings as the engine's listener.
    `assumptions` are what predictions assume: those of bits that differ are checked first.
    `whole`: the cases are all that a check draws.
    """
    if report.verdict == "error":
        return report
    if device is None:
        done = "nothing was checked" if kernel.device_only else "the kernel was simulated only"
        reason = f"torch finds no CUDA GPU here; {done}"
        return explain_no_launch(report, f"--device cuda: {reason}")
    if report.verdict != "pass" or report.expected:
        reason = f"nothing was launched on the {device.name}"
        reason += ": a kernel that fails in simulation could corrupt its memory"
        return explain_no_launch(report, f"--device cuda: {reason}")
    target = find_target(device.capability)
    required = Tally(CUDA).list_results(kernel)
    begun = replace(report, properties=(*report.properties, *required))
    lane = _Lane(kernel, device, emit, target, assumptions or AssumptionCheck(emit), begun)
    if lane.target is None:
        capability = ".".join(map(str, device.capability or ("none",)))
        lane.lacks.append(f"no model for compute capability {capability}")
    drawn = list(cases)
    chosen = select_cases(drawn)
    for position, case in enumerate(chosen):
        # the largest of each format
        last = position + 1 == len(chosen) or chosen[position + 1].dtype != case.dtype
        _judge_case(lane, replace(case, calls=len(FILLS)), tune=last)
        if lane.broken:
            break
    return _report(lane, len(drawn), whole)


def _judge_case(lane: _Lane, case: Case, tune: bool) -> None:
    """Launch one case in its own configuration; if `tune`, in the one that the tuner picks too."""
    lane.emit(CaseStarted(case.to_json(), "launch", lane.cases))
    before = len(lane.judged)
    lane.cases += 1
    prediction = _predict(lane, case, None)
    choices = [] if prediction is None else prediction.choices
    if prediction is None or not prediction.judged.findings:
        backend = _launch(lane, case, choices, prediction)
        tuned = any(choice.among > 1 for choice in backend.ran or choices)
        if tune and not lane.broken and tuned:
            _launch(lane, case, None, None)
    for judged in lane.judged[before:]:
        if judged.backend == CUDA:
            lane.tally.add(judged)
    emit_partial(lane.emit, update_report(lane.begun, lane.kernel, lane.tally, dedupe(lane.judged)))


def _predict(lane: _Lane, case: Case, choices: list[Choice] | None) -> Prediction | None:
    """Return the simulator's prediction for the device; its findings count as the case's."""
    if lane.target is None:
        return None
    find_state(lane.kernel.launch).restore()
    prediction = predict(lane.kernel, case, lane.target, lane.device.multiprocessors, choices)
    if prediction.judged.findings:
        _take(lane, prediction.judged)
    if not prediction.unseen:  # else they are those of its stand-in
        lane.assumptions.note(lane.target, prediction.judged.launches)
    return prediction


def _launch(
    lane: _Lane, case: Case, choices: list[Choice] | None, prediction: Prediction | None
) -> Launches:
    """Call the wrapper over each kind of uninitialised memory, and judge the results."""
    backend = Launches(lane.device, lane.target, choices, lane.emit)
    try:
        observation = observe(lane.kernel, case, backend)
    except CaseNotRunnable as reason:
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
    equal, outputs = count_predicted(observation)
    lane.equal, lane.outputs = lane.equal + equal, lane.outputs + outputs
    calls = len(observation.calls)
    lane.emit(Compared(calls, equal, outputs))
    judged = judge(observation)
    if prediction is not None and prediction.free and prediction.uses_atomics:
        judged = _leave_out(judged, SAME)  # nothing guarantees the order of atomics
    _take(lane, _keep_grounded(lane, judged, prediction))
    lane.broken = raised is not None and is_cuda_error(raised.text)
    return backend


def _compare(
    lane: _Lane, observation: ObservedCase, prediction: Prediction, ran: list[Choice]
) -> None:
    """Give an observation its prediction, or record why there is none."""
    simulated = prediction.observation
    lane.unseen |= prediction.unseen
    if not is_predicted(lane.kernel):
        return
    if prediction.lacks is not None:
        lane.lacks.append(prediction.lacks)
    elif len(ran) != len(prediction.choices) and not prediction.unseen:
        lane.lacks.append("the wrapper launches other kernels on the device than when simulated")
    elif prediction.free is not None:
        lane.free[prediction.free] += 1
    elif simulated.has_result:
        observation.predicted = expected = simulated.calls[0].results
        observation.calls = tuple(
            replace(call, results=tuple(map(_comparable, call.results, expected)))
            for call in observation.calls
        )


def _keep_grounded(lane: _Lane, judged: CaseResult, prediction: Prediction | None) -> CaseResult:
    """Return the result without differing bits if their prediction has a contradicted assumption.

    That is an error of gemmproof's own: nothing is known of the kernel's bits.
    """
    differs = any(f.property == PREDICTED for f in judged.findings)
    if not differs or prediction is None or prediction.unseen or lane.target is None:
        return judged
    assumptions = lane.assumptions.check(lane.target, prediction.judged.launches)
    if not assumptions.contradicted:
        return judged
    lane.lacks += assumptions.contradicted
    return _leave_out(judged, PREDICTED)


def _leave_out(judged: CaseResult, name: str) -> CaseResult:
    """Return the result as if the property of that name did not apply."""
    findings = tuple(f for f in judged.findings if name not in (f.property, f.cause))
    return replace(judged, findings=findings, applied=judged.applied - {name})


def _comparable(result: Array | None, expected: Array | None) -> Array | None:
    """Return a result if it has the expected format, or None."""
    return result if getattr(result, "dtype", None) == getattr(expected, "dtype", 0) else None


def _take(lane: _Lane, judged: CaseResult) -> None:
    lane.judged.append(judged)


def explain_no_launch(report: Report, reason: str) -> Report:
    """Return the report of a run that should launch and did not: it lacks the strongest claim."""
    strongest = BY_NAME[PREDICTED]
    result = PropertyResult(strongest.name, strongest.claim, "not run", 0, None, CUDA)
    report = report.with_note(reason, "incomplete")
    return replace(report, properties=(*report.properties, result))


def _report(lane: _Lane, drawn: int, whole: bool) -> Report:
    report = update_report(lane.begun, lane.kernel, lane.tally, dedupe(lane.judged))
    unpredicted = (PREDICTED, CUDA, "pass" if lane.lacks else "")
    properties = tuple(
        replace(p, status="not run") if (p.name, p.backend, p.status) == unpredicted else p
        for p in report.properties
    )
    launched = (p for p in properties if p.backend == CUDA and p.name in (ENDS, PREDICTED))
    verdict: Verdict = "incomplete" if any(p.status == "not run" for p in launched) else "pass"
    report = replace(
        report,
        properties=properties,
        versions={**report.versions, **lane.device.facts},
        notes=tuple(Note(text, verdict) for text in _notes(lane, drawn)),
    )
    return conclude_exercise(report, lane.kernel, lane.tally) if whole else report


def _notes(lane: _Lane, drawn: int) -> Iterator[str]:
    """Yield what was launched on the device, and everything that was not compared, a line each."""
    facts = ", ".join(f"{k} {v}" for k, v in lane.device.facts.items() if k != "device" and v)
    target = lane.target or "no model"
    cases = f"{lane.cases} of {format_count(drawn, 'case')}"
    yield (
        f"{format_count(lane.launches, 'launch')} of {cases} on the {lane.device.name}"
        f" ({', '.join(filter(None, [target, facts]))})"
    )
    if lane.outputs:
        yield f"{lane.equal:,} of {lane.outputs:,} predicted outputs equal"
    if unseen := list_unseen(lane.kernel):
        yield f"not checked{' (Gluon)' * lane.unseen}: {', '.join(unseen)}"
    if lane.broken:
        yield "stopped there: the CUDA error left the device unusable"
    for what, count in lane.passed_over.items():
        yield f"skipped {count}: {what}"
    for what, count in lane.free.items():
        yield f"{count} without predicted bits: {what}"
    for what in dict.fromkeys(lane.lacks):
        yield f"{PREDICTED} not run: {what}"


# -- device-only kernels -------------------------------------------------------------------------
MOST_DRAWS = 10  # for each requested case: a contract may admit fewer


def check_alone(
    kernel: KernelUnderTest,
    simulator: Simulator,
    max_examples: int,
    seed: int,
    case: Case | None,
    launch: bool,
    device: Any,
    tell: Listener,
    assumptions: AssumptionCheck,
) -> Report:
    """Judge a `device_only` kernel by its launches on `device`; incomplete without `launch`.

    Cases are drawn around the tiles that the simulator sees: those of the kernel's stand-in, if it
    has one.
    """
    began, state = time.perf_counter(), find_state(kernel.launch)
    emit_partial(tell, begin_report(kernel, launch))
    report = make_report(kernel, [], [])
    target = simulator.target
    if not launch:
        reason = "it is not simulated (device_only): check it with --device cuda"
        report = explain_no_launch(report, reason)
        return judge_compiled(report, kernel, target, case, max_examples, began)
    formats = kernel.contract.formats
    tell(Started(1 if case else max_examples * len(formats)))
    cases = [case] if case else []
    if case is None and device is not None:
        seen = _Seen(kernel, simulator)
        for dtype in formats:
            cases += _draw(kernel, seen, dtype, max_examples, random.Random(f"{seed} {dtype}"))
    try:
        report = launch_cases(kernel, report, cases, device, tell, assumptions, case is None)
        report = describe_passes(report, kernel, () if case else cases, max_examples)
        report = add_model_check(report, assumptions, None, ())
    finally:
        state.restore()
    return judge_compiled(report, kernel, target, case, max_examples, began)


class _Seen(dict[Case, CaseResult]):
    """The simulator's results by case, computed on first access."""

    def __init__(self, kernel: KernelUnderTest, simulator: Simulator) -> None:
        super().__init__()
        launch = kernel.predicted_by or kernel.launch
        self._kernel = replace(kernel, launch=launch, device_only=False, predicted_by=None)
        self._simulator = simulator

    def __missing__(self, case: Case) -> CaseResult:
        self[case] = judged = judge(observe(self._kernel, case, self._simulator))
        return judged


def _draw(
    kernel: KernelUnderTest, seen: _Seen, dtype: str, max_examples: int, rng: random.Random
) -> list[Case]:
    cases: dict[Case, None] = {}
    drawn = list_cases(kernel, seen, NOTHING, dtype, rng, max_examples)
    for case in islice(drawn, MOST_DRAWS * max_examples):
        cases[case] = None
        if len(cases) >= max_examples:
            break
    return list(cases)
