"""A contract checked format by format, each in a worker of its own, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.desk.progress import progress
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.report.facts import Coverage
from gemmproof.report.report import GRAVEST_FIRST, PropertyResult, Report
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import Limits, open_pool
from gemmproof.worker.verdict import judge


@dataclass(slots=True)
class Checks:
    """The checks of one kernel, `jobs` at a time.

    `known` are the reports by contracts of one format. What a format draws does not depend on the
    others, so a report stays true where others are added or given up.
    """

    request: Request
    limits: Limits
    jobs: int
    quiet: bool = False
    known: dict[Contract, Report] = field(default_factory=dict)

    def check(
        self, contract: Contract, title: str, kept: Collection[str] = ()
    ) -> dict[str, Report]:
        """The report of each format of a contract; the first one is tried beyond it, too.

        Where a format of `kept` fails, which kept a narrower contract, those that have not begun
        are left out: they would fail too, for what they have in common.
        """
        asked = {name: replace(contract, formats=(name,)) for name in contract.formats}
        new = [name for name, one in asked.items() if one not in self.known]
        stop = threading.Event()
        shown = progress(title, self.quiet, len(new), "formats")
        with shown as course, open_pool(self.jobs) as pool:

            def judge_one(name: str) -> None:
                if stop.is_set():
                    return
                limits = name == contract.formats[0]
                request = replace(self.request, contract=asked[name].to_dict(), limits=limits)
                with course.follow(name) as listener:
                    report = self.known[asked[name]] = judge(request, self.limits, listener)[0]
                if report.verdict != "pass" and name in kept:
                    stop.set()

            list(pool.map(judge_one, new))
        return {name: self.known[one] for name, one in asked.items() if one in self.known}


def merge(reports: dict[str, Report]) -> Report:
    """One report of those of each format; what lies beyond the first one, other formats aside."""
    first = next(iter(reports.values()))
    gravest = min(reports.values(), key=lambda report: GRAVEST_FIRST.index(report.verdict))
    return replace(
        first,
        verdict=gravest.verdict,
        note=gravest.note,
        properties=_merge_properties(p for r in reports.values() for p in r.properties),
        findings=_merge_findings(f for r in reports.values() for f in r.findings),
        seconds=round(sum(report.seconds for report in reports.values()), 2),
        limits=tuple(limit for limit in first.limits if limit.name not in reports),
        facts=None if first.facts is None else first.facts.of_formats(reports),
        coverage=Coverage.merge(report.coverage for report in reports.values()),
    )


def _merge_properties(results: Iterable[PropertyResult]) -> tuple[PropertyResult, ...]:
    found: dict[str, PropertyResult] = {}
    for one in results:
        other = found.setdefault(one.label, one)
        if other is not one:
            status = next(
                s
                for s in ("fail", "expected", "pass", "not run")
                if s in (one.status, other.status)
            )
            ratio = max((r.ratio for r in (one, other) if r.ratio is not None), default=None)
            examples = one.examples + other.examples
            found[one.label] = replace(one, status=status, ratio=ratio, examples=examples)
    return tuple(found.values())


def _merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each fault once, at its simplest case, root causes first."""
    found: dict[Any, Finding] = {}
    for one in sorted(findings, key=lambda f: (f.cause is not None, f.case.rank)):
        found.setdefault(one.key, one)
    return tuple(found.values())
