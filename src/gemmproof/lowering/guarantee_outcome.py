"""The outcome of a plan of launches: which guarantees hold, as a part of the report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gemmproof.lowering.compile import can_compile_here
from gemmproof.lowering.guarantees import LaunchAssessment, LaunchPlan, plan_launches, weigh
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER, TENSOR_CORES, list_promised
from gemmproof.properties.finding import UNEXPECTED, Finding, Key, find_reasons
from gemmproof.properties.help import read_claim
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import PropertyResult, Report

if TYPE_CHECKING:
    from gemmproof.worker.protocol import Listener


# -- conclusion ----------------------------------------------------------------------------------
@dataclass(slots=True)
class Outcome:
    """The outcome of a plan: the assessments of launches by their numbers, or how they `failed`.

    `mistake` is the reason, in a line, why nothing could be planned or not all of it be compiled;
    it is `halted` if it was interrupted.
    """

    plan: LaunchPlan = field(default_factory=LaunchPlan)
    weighed: dict[int, LaunchAssessment] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    mistake: str = ""
    halted: bool = False

    def list_open(self, name: str) -> Iterator[str]:
        """Yield the reason why a guarantee is undecided, for each launch that leaves it so."""
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
        """Yield the violations of a guarantee, each with the number of its launch."""
        for number, assessment in sorted(self.weighed.items()):
            yield from ((number, f) for f in assessment.findings if f.property == name)
        if name == TENSOR_CORES:
            yield from self._list_dotless()

    def _list_dotless(self) -> Iterator[tuple[int, Finding]]:
        """Yield calls without a launch that multiplies matrices, per configuration of a tuner."""
        seen: set[frozenset[int]] = set()
        for call in self.plan.calls:
            for number in call:
                launches = frozenset(x for x in call if self._is_launched_with(x, number))
                have_dots = [
                    self.weighed[x].has_dot if x in self.weighed else None for x in launches
                ]
                if launches not in seen and all(x is False for x in have_dots):
                    seen.add(launches)
                    yield min(launches), self._find_dotless(min(launches))

    def _is_launched_with(self, other: int, number: int) -> bool:
        planned, other_planned = self.plan.launches[number], self.plan.launches[other]
        return (
            planned.kernel != other_planned.kernel
            or planned.configuration == other_planned.configuration
        )

    def _find_dotless(self, number: int) -> Finding:
        planned = self.plan.launches[number]
        got = f"{planned.kernel} without any dot on {planned.gpu}"
        tuned = f" ({planned.configuration})" if planned.configuration else ""
        prefix = planned.where or planned.kernel
        return Finding(
            TENSOR_CORES,
            "no_dot",
            f"{prefix}: got {got}, expected tensor cores{tuned}",
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
    """Add the outcome of the guarantees; `expected` has reasons for those expected to fail.

    That one of them holds after all is reported only if the check `is_whole`.
    """
    findings, lines, undecided = list[Finding](), dict[str, None](), list[str]()
    properties = list(report.properties)
    for name in promised:
        own_findings = _gather(list(outcome.list_findings(name)), outcome.plan)
        reasons = list(outcome.list_open(name))
        findings += own_findings
        lines |= dict.fromkeys(reasons)
        undecided += [name] if reasons else []
        properties.append(_tell(name, outcome, own_findings, bool(reasons), expected))
    expected_findings = find_reasons(findings, expected)
    unexpected = [f for f in findings if f not in expected_findings]
    if lines:
        first, *more = lines
        others = f" and {len(more)} more" if more else ""
        text = f"not judged wholly: {', '.join(undecided)}: {first}{others}"
        report = report.with_note(text, "incomplete")
    report = replace(
        report,
        properties=tuple(properties),
        findings=(*report.findings, *unexpected),
        expected=(*report.expected, *expected_findings),
    )
    return _describe_passes(report, outcome, expected) if is_whole else report


def _tell(
    name: str,
    outcome: Outcome,
    findings: list[Finding],
    is_open: bool,
    expected: Mapping[str, str],
) -> PropertyResult:
    """Summarise one guarantee: it holds only if every launch was assessed for it."""
    reason = expected.get(name)
    count = sum(name in assessment.judged for assessment in outcome.weighed.values())
    status = "not run" if is_open or not count else "pass"
    if findings:
        status = "fail" if reason is None else "expected"
    return PropertyResult(name, read_claim(name), status, count, None, COMPILER, reason=reason)


def _gather(findings: list[tuple[int, Finding]], plan: LaunchPlan) -> list[Finding]:
    """Merge equal faults: the first launch's finding, with the number of other launches."""
    groups: dict[Key, list[tuple[int, Finding]]] = {}
    for number, finding in findings:
        groups.setdefault(finding.key, []).append((number, finding))
    merged = []
    for (number, first), *others in groups.values():
        gpus = dict.fromkeys(plan.launches[x].gpu for x, _ in others)
        gpus.pop(plan.launches[number].gpu, None)
        count = format_count(len(others), "launch").replace(" ", " more ")
        more = f"; the same in {count}" if others else ""
        more += f", on {' '.join(gpus)} too" if gpus else ""
        merged.append(replace(first, message=f"{first.message}{more}"))
    return merged


def _describe_passes(report: Report, outcome: Outcome, expected: Mapping[str, str]) -> Report:
    """Add a finding for each guarantee that held and was expected not to."""
    if report.verdict != "pass" or not outcome.plan.launches:
        return report
    findings, properties = [], []
    for result in report.properties:
        reason = expected.get(result.name)
        if result.backend == COMPILER and result.status == "pass" and reason is not None:
            got = f"{format_count(result.examples, 'launch')} that held"
            message = f"all launches: got {got}, expected it to fail: {reason}"
            case = Case.from_json(outcome.plan.launches[0].case)
            more = {"got": got, "expected": "it to fail", "backend": COMPILER}
            findings.append(Finding(result.name, UNEXPECTED, message, case, **more))  # type: ignore[arg-type]
            result = replace(result, status="fail")
        properties.append(result)
    return replace(report, findings=tuple(findings), properties=tuple(properties))


# -- compilation ---------------------------------------------------------------------------------
def weigh_launches(
    kernel: KernelUnderTest,
    target: str | None,
    case: Case | None,
    most: int,
    workdir: Path,
    tell: Listener,
    done: int = 0,
) -> Outcome:
    """Assess each launch and report it at once; the first `done` of them were reported before.

    A launch is announced before it is compiled, so that the listener knows which one this process
    died of. It ends before the first launch that needs a new process.
    """
    plan, captured = plan_launches(kernel, target, case, most)
    tell({"event": "planned", "plan": plan.to_dict()})
    outcome = Outcome(plan)
    for index, (planned, launch) in enumerate(zip(plan.launches, captured, strict=True)):
        if index < done:
            continue
        if not can_compile_here(launch):
            reason = "not compiled: Triton 3.6 compiles fp8 for one GPU in a process"
            outcome.mistake = f"{planned.name}: {reason}"
            break
        about = {"case": planned.name, "phase": "compile", "index": index, "of": len(captured)}
        tell({"event": "case", **about})
        outcome.weighed[index] = assessment = weigh(kernel.contract, launch, planned, workdir)
        tell({"event": "weighed", "index": index, "weighed": assessment.to_dict()})
    return outcome


def compile_claims(
    report: Report, kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> Report:
    """Add the outcome of the guarantees, assessed in this process without a time limit."""
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as workdir:
        outcome = weigh_launches(kernel, target, case, most, Path(workdir), lambda event: None)
    contract = kernel.contract
    promised = list_promised(contract)
    return conclude(report, outcome, promised, contract.reasons, is_whole=case is None)
