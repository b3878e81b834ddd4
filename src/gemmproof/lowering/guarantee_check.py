"""A check of guarantees in a worker, and its part of a report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmproof.lowering.captured_output import find_last_words
from gemmproof.lowering.compile import can_compile_here
from gemmproof.lowering.guarantees import LaunchAssessment, LaunchPlan, plan_launches, weigh
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER, TENSOR_CORES, list_promised
from gemmproof.properties.finding import UNEXPECTED, Finding, Key, find_reasons
from gemmproof.properties.help.pages import CLAIMS
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import PropertyResult, Report
from gemmproof.worker.protocol import Listener, Request, WorkerExit
from gemmproof.worker.supervisor import Limits, watch


# -- conclusion ----------------------------------------------------------------------------------
@dataclass(slots=True)
class Outcome:
    """What is known of a plan: of launches by their numbers what they say, or how they `failed`.

    `mistake` is why nothing could be planned, or not all of it be compiled, in a line; where it was
    interrupted it is `halted`.
    """

    plan: LaunchPlan = field(default_factory=LaunchPlan)
    weighed: dict[int, LaunchAssessment] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    mistake: str = ""
    halted: bool = False

    def list_open(self, name: str) -> Iterator[str]:
        """Why nothing is known of a claim, of each launch of which that is so."""
        yield from filter(None, [self.mistake])
        yield from self.plan.lacks
        if not self.plan.launches and not self.mistake and not self.plan.lacks:
            yield "got no launch of a Triton kernel, expected one"
        for number, planned in enumerate(self.plan.launches):
            if number in self.failed:
                yield self.failed[number]
            elif number not in self.weighed:
                if not self.mistake:
                    yield f"{planned.name}: not compiled"
            elif name in self.weighed[number].unknown:
                yield self.weighed[number].unknown[name]

    def list_findings(self, name: str) -> Iterator[tuple[int, Finding]]:
        """What speaks against a claim, each with the number of its launch."""
        for number, one in sorted(self.weighed.items()):
            yield from ((number, f) for f in one.findings if f.property == name)
        if name == TENSOR_CORES:
            yield from self._list_dotless()

    def _list_dotless(self) -> Iterator[tuple[int, Finding]]:
        """Calls of which no launch multiplies matrices, in a configuration of their tuners."""
        told: set[frozenset[int]] = set()
        for call in self.plan.calls:
            for number in call:
                with_it = frozenset(x for x in call if self._is_launched_with(x, number))
                known = [self.weighed[x].has_dot if x in self.weighed else None for x in with_it]
                if with_it not in told and all(x is False for x in known):
                    told.add(with_it)
                    yield min(with_it), self._find_dotless(min(with_it))

    def _is_launched_with(self, other: int, number: int) -> bool:
        one, two = self.plan.launches[number], self.plan.launches[other]
        return one.kernel != two.kernel or one.configuration == two.configuration

    def _find_dotless(self, number: int) -> Finding:
        planned = self.plan.launches[number]
        got = f"{planned.kernel} without any dot on {planned.gpu}"
        tuned = f" ({planned.configuration})" if planned.configuration else ""
        place = planned.where or planned.kernel
        return Finding(
            TENSOR_CORES,
            "no_dot",
            f"{place}: got {got}, expected tensor cores{tuned}",
            Case.from_json(planned.case),
            where=planned.where or None,
            got=got,
            expected="tensor cores",
            backend=COMPILER,
            file=planned.file or None,
        )


def conclude(
    report: Report,
    outcome: Outcome,
    promised: Iterable[str],
    expected: Mapping[str, str],
    is_whole: bool = True,
) -> Report:
    """The report with how what is promised fared; `expected` is why some of it is to fail.

    That one of those holds after all is told only where the check `is_whole`.
    """
    found, lines, named = list[Finding](), dict[str, None](), list[str]()
    properties = list(report.properties)
    for name in promised:
        own = _gather(list(outcome.list_findings(name)), outcome.plan)
        open_ = list(outcome.list_open(name))
        found += own
        lines |= dict.fromkeys(open_)
        named += [name] if open_ else []
        properties.append(_tell(name, outcome, own, bool(open_), expected))
    reasons = find_reasons(found, expected)
    unexpected = [f for f in found if f not in reasons]
    verdict = report.verdict
    if unexpected:
        verdict = "fail"
    elif verdict == "pass" and lines:
        verdict = "incomplete"
    notes = [report.note] if report.note else []
    if lines:
        first, *more = lines
        others = f" and {len(more)} more" if more else ""
        notes.append(f"not judged wholly: {', '.join(named)}: {first}{others}")
    report = replace(
        report,
        verdict=verdict,
        properties=tuple(properties),
        findings=(*report.findings, *unexpected),
        expected=(*report.expected, *reasons),
        note="; ".join(notes) or None,
    )
    return _describe_passes(report, outcome, expected) if is_whole else report


def _tell(
    name: str,
    outcome: Outcome,
    found: list[Finding],
    is_open: bool,
    expected: Mapping[str, str],
) -> PropertyResult:
    """How one claim fared: it holds only where every launch was judged by it."""
    reason = expected.get(name)
    count = sum(name in one.judged for one in outcome.weighed.values())
    status = "not run" if is_open or not count else "pass"
    if found:
        status = "fail" if reason is None else "expected"
    return PropertyResult(name, CLAIMS[name], status, count, None, COMPILER, reason=reason)


def _gather(found: list[tuple[int, Finding]], plan: LaunchPlan) -> list[Finding]:
    """Each fault once, as the first launch shows it, with how many others do."""
    groups: dict[Key, list[tuple[int, Finding]]] = {}
    for number, finding in found:
        groups.setdefault(finding.key, []).append((number, finding))
    told = []
    for (number, first), *others in groups.values():
        gpus = dict.fromkeys(plan.launches[x].gpu for x, _ in others)
        gpus.pop(plan.launches[number].gpu, None)
        count = format_count(len(others), "launch").replace(" ", " more ")
        more = f"; the same in {count}" if others else ""
        more += f", on {' '.join(gpus)} too" if gpus else ""
        told.append(replace(first, message=f"{first.message}{more}"))
    return told


def _describe_passes(report: Report, outcome: Outcome, expected: Mapping[str, str]) -> Report:
    """The report with a finding for each claim that held and was expected not to."""
    if report.verdict != "pass" or not outcome.plan.launches:
        return report
    found, properties = [], []
    for result in report.properties:
        why = expected.get(result.name)
        if result.backend == COMPILER and result.status == "pass" and why is not None:
            got = f"{format_count(result.examples, 'launch')} that held"
            message = f"all launches: got {got}, expected it to fail: {why}"
            case = Case.from_json(outcome.plan.launches[0].case)
            more = {"got": got, "expected": "it to fail", "backend": COMPILER}
            found.append(Finding(result.name, UNEXPECTED, message, case, **more))  # type: ignore[arg-type]
            result = replace(result, status="fail")
        properties.append(result)
    verdict = "fail" if found else report.verdict
    return replace(report, verdict=verdict, findings=tuple(found), properties=tuple(properties))


# -- compilation ---------------------------------------------------------------------------------
def weigh_launches(
    kernel: KernelUnderTest,
    target: str | None,
    case: Case | None,
    most: int,
    room: Path,
    tell: Listener,
    done: int = 0,
) -> Outcome:
    """What each launch says, told as it is known; the first `done` of them were told before.

    A launch is announced before it is compiled, so that who listens knows of which one this
    process died. It ends before the first launch that needs a process of its own.
    """
    plan, captured = plan_launches(kernel, target, case, most)
    tell({"event": "planned", "plan": plan.to_dict()})
    outcome = Outcome(plan)
    for index, (planned, launch) in enumerate(zip(plan.launches, captured, strict=True)):
        if index < done:
            continue
        if not can_compile_here(launch):
            words = "not compiled: Triton 3.6 compiles fp8 for one GPU in a process"
            outcome.mistake = f"{planned.name}: {words}"
            break
        about = {"case": planned.name, "phase": "compile", "index": index, "of": len(captured)}
        tell({"event": "case", **about})
        outcome.weighed[index] = one = weigh(kernel.contract, launch, planned, room)
        tell({"event": "weighed", "index": index, "weighed": one.to_dict()})
    return outcome


def compile_claims(
    report: Report, kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> Report:
    """The report with what becomes of the claims, judged here: no compilation is cut short."""
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as room:
        outcome = weigh_launches(kernel, target, case, most, Path(room), lambda event: None)
    contract = kernel.contract
    promised = list_promised(contract)
    return conclude(report, outcome, promised, contract.reasons, is_whole=case is None)


# -- serve ---------------------------------------------------------------------------------------
def serve(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """In the worker: every launch of the kernel that the request names, for each of its GPUs.

    `plan`: `room` for files, and `done`, how many launches an earlier worker told of.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    case = None if request.case is None else Case.from_json(request.case)
    room, done = Path(request.plan["room"]), request.plan["done"]
    outcome = weigh_launches(kernel, request.gpu, case, request.max_examples, room, emit, done)
    emit({"event": "compiled", "launches": len(outcome.plan.launches)})


# -- supervision ---------------------------------------------------------------------------------
PATIENCE = 4  # times as long as a simulated call may a compilation take


def add_claims(
    report: Report,
    promised: Mapping[str, Any],
    request: Request,
    limits: Limits,
    listener: Listener,
) -> tuple[Report, bool]:
    """The report on the kernel that is asked for, with what becomes of what is `promised`.

    That is the event of the worker that loaded it. Besides, whether it was interrupted.
    """
    started = time.monotonic()
    # so many compilations as there are have no end in common
    allowed = replace(limits, case=PATIENCE * limits.case, total=float("inf"))
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as room:
        plan = {"room": room, "done": 0}
        asked = replace(request, ask="claims", launch=False, proof=False, kept=(), plan=plan)
        outcome = _compile(asked, allowed, listener)
    names, expected = promised["names"], promised["expected"]
    report = conclude(report, outcome, names, expected, is_whole=request.case is None)
    seconds = round(report.seconds + time.monotonic() - started, 2)
    return replace(report, seconds=seconds), outcome.halted


def _compile(request: Request, limits: Limits, listener: Listener) -> Outcome:
    """What is known: of one worker, and another after each that ends before the last launch."""
    outcome = Outcome()
    done = 0

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "planned":
            outcome.plan = LaunchPlan.from_dict(event["plan"])
        elif event["event"] == "weighed":
            outcome.weighed[event["index"]] = LaunchAssessment.from_dict(event["weighed"])
        listener(event)

    while True:
        asked = replace(request, plan={**request.plan, "done": done})
        worker = watch(asked, limits, hear)
        if "compiled" in worker.events:
            known = {*outcome.weighed, *outcome.failed}
            left = [x for x in range(done, len(outcome.plan.launches)) if x not in known]
            if not left or left[0] == done:  # all are known, or a new process does no better
                return outcome
            done = left[0]
            continue
        index = worker.events.get("case", {}).get("index", -1)
        if worker.end == "halted" or index < done:
            how = worker.explain_failure(request.name) or f"{request.name}: {worker.how}"
            outcome.mistake, outcome.halted = how, worker.end == "halted"
            return outcome
        if failure := worker.explain_failure(request.name):  # of gemmproof itself
            outcome.mistake = failure
            return outcome
        planned = outcome.plan.launches[index]
        said = find_last_words(Path(request.plan["room"]), planned.gpu)
        how = f"{_describe_end(worker, limits)}{said and f' ({said})'}"
        outcome.failed[index] = f"{planned.name}: got {how}, expected a binary"
        done = index + 1


def _describe_end(worker: WorkerExit, limits: Limits) -> str:
    """How a worker ended while it compiled."""
    late = f"no end after {limits.case:g} s, with a larger --time-limit more"
    return late if worker.end in ("slow", "hang", "time") else worker.how
