"""From compiled launches to a report: how each claim fared, and what nothing is known of.

What was not compiled, or not recognised, leaves a claim open, and the check incomplete. A call
needs tensor cores in one of its launches: another may sum parts, or fill a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gemmproof.lowering.claims.record import LaunchPlan, Weighed
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER, TENSOR_CORES
from gemmproof.properties.finding import UNEXPECTED, Finding, Key, find_reasons
from gemmproof.properties.help.pages import CLAIMS
from gemmproof.reference.provenance import say_count
from gemmproof.report.report import PropertyResult, Report


@dataclass(slots=True)
class Outcome:
    """What is known of a plan: of launches by their numbers what they say, or how they `failed`.

    `mistake` is why nothing could be planned, or not all of it be compiled, in a line; where it was
    interrupted it is `halted`.
    """

    plan: LaunchPlan = field(default_factory=LaunchPlan)
    weighed: dict[int, Weighed] = field(default_factory=dict)
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
    return _tell_passes(report, outcome, expected) if is_whole else report


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
        count = say_count(len(others), "launch").replace(" ", " more ")
        more = f"; the same in {count}" if others else ""
        more += f", on {' '.join(gpus)} too" if gpus else ""
        told.append(replace(first, message=f"{first.message}{more}"))
    return told


def _tell_passes(report: Report, outcome: Outcome, expected: Mapping[str, str]) -> Report:
    """The report with a finding for each claim that held and was expected not to."""
    if report.verdict != "pass" or not outcome.plan.launches:
        return report
    found, properties = [], []
    for result in report.properties:
        why = expected.get(result.name)
        if result.backend == COMPILER and result.status == "pass" and why is not None:
            got = f"{say_count(result.examples, 'launch')} that held"
            message = f"all launches: got {got}, expected it to fail: {why}"
            case = Case.from_json(outcome.plan.launches[0].case)
            more = {"got": got, "expected": "it to fail", "backend": COMPILER}
            found.append(Finding(result.name, UNEXPECTED, message, case, **more))  # type: ignore[arg-type]
            result = replace(result, status="fail")
        properties.append(result)
    verdict = "fail" if found else report.verdict
    return replace(report, verdict=verdict, findings=tuple(found), properties=tuple(properties))
