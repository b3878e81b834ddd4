"""The widest contract that a kernel keeps: the steps beyond the declared one that hold."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.commands.init import write_contract
from gemmproof.contract_search.steps import list_beyond
from gemmproof.engine.assemble import judge
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey, is_admitted
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.report.record import (
    GRAVEST_FIRST,
    NOT_APPLICABLE,
    NOT_EXERCISED,
    NOT_RUN,
    Coverage,
    Limit,
    PropertyResult,
    Report,
)
from gemmproof.terminal import progress, say
from gemmproof.worker.supervisor import Limits, open_pool

TILE = Survey().tiles[0][0]


# -- one check for each format -------------------------------------------------------------------
@dataclass(slots=True)
class Checks:
    """The checks of one kernel, `jobs` at a time.

    `known` are the reports by contracts of one format. A format's cases do not depend on the other
    formats, so a report stays valid if others are added or dropped.
    """

    request: CheckRequest
    limits: Limits
    jobs: int
    quiet: bool = False
    known: dict[Contract, Report] = field(default_factory=dict)

    def check(
        self, contract: Contract, title: str, kept: Collection[str] = ()
    ) -> dict[str, Report]:
        """Return the report of each format of a contract; the first one is tried beyond it, too.

        If a format of `kept`, which kept a narrower contract, fails, formats not yet begun are
        skipped: they would fail too, for what they have in common.
        """
        asked = {name: replace(contract, formats=(name,)) for name in contract.formats}
        new = [name for name, narrow in asked.items() if narrow not in self.known]
        stop = threading.Event()
        shown = progress(title, self.quiet, len(new), "formats")
        with shown as course, open_pool(self.jobs) as pool:

            def judge_one(name: str) -> None:
                if stop.is_set():
                    return
                limits = name == contract.formats[0]
                kernel = replace(self.request.kernel, contract=asked[name])
                request = replace(self.request, kernel=kernel, limits=limits)
                with course.follow(name) as listener:
                    report = self.known[asked[name]] = judge(request, self.limits, listener)[0]
                if report.verdict != "pass" and name in kept:
                    stop.set()

            list(pool.map(judge_one, new))
        return {name: self.known[narrow] for name, narrow in asked.items() if narrow in self.known}


# of a property in several formats
GRAVEST_STATUS = ("fail", "expected", NOT_EXERCISED, "pass", NOT_APPLICABLE, NOT_RUN)


def merge(reports: dict[str, Report]) -> Report:
    """Return one report for all formats; limits are the first format's, without other formats."""
    first = next(iter(reports.values()))
    gravest = min(reports.values(), key=lambda report: GRAVEST_FIRST.index(report.verdict))
    return replace(
        first,
        notes=gravest.notes,
        properties=_merge_properties(
            _add_format(p, name) if len(reports) > 1 else p
            for name, report in reports.items()
            for p in report.properties
        ),
        unvisited=tuple(dict.fromkeys(x for r in reports.values() for x in r.unvisited)),
        findings=_merge_findings(f for r in reports.values() for f in r.findings),
        seconds=round(sum(report.seconds for report in reports.values()), 2),
        limits=tuple(limit for limit in first.limits if limit.name not in reports),
        identity=None if first.identity is None else first.identity.of_formats(reports),
        coverage=Coverage.merge(report.coverage for report in reports.values()),
    )


def _add_format(result: PropertyResult, name: str) -> PropertyResult:
    """Return the result with the name of its format at what was not exercised in it."""
    if result.status != NOT_EXERCISED:
        return result
    missing = tuple(f"{part} in {name}" for part in result.missing) or (name,)
    return replace(result, missing=missing)


def _merge_properties(results: Iterable[PropertyResult]) -> tuple[PropertyResult, ...]:
    merged: dict[str, PropertyResult] = {}
    for result in results:
        other = merged.setdefault(result.label, result)
        if other is not result:
            status = next(s for s in GRAVEST_STATUS if s in (result.status, other.status))
            ratio = max((r.ratio for r in (result, other) if r.ratio is not None), default=None)
            merged[result.label] = replace(
                result,
                status=status,
                ratio=ratio,
                examples=result.examples + other.examples,
                why=next((r.why for r in (other, result) if r.status == status), ""),
                parts=dict(Counter(other.parts) + Counter(result.parts)),
                missing=(*other.missing, *result.missing),
            )
    return tuple(merged.values())


def _merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each fault once, at its simplest case, root causes first."""
    merged: dict[Any, Finding] = {}
    for finding in sorted(findings, key=lambda f: (f.cause is not None, f.case.rank)):
        merged.setdefault(finding.key, finding)
    return tuple(merged.values())


# -- the widest contract ---------------------------------------------------------------------------
def find_widest(contract: Contract, checks: Checks) -> tuple[Contract, Report]:
    """Return the widest kept contract, with the limits beyond it; the declared one if it fails."""
    report = merge(_check(contract, checks))
    broken: dict[str, Limit] = {}
    while _holds(report):
        held = {limit.name for limit in report.limits if limit.status == "holds"} - set(broken)
        wider = _widen(contract, held)
        if wider == contract:
            break
        tried = _check(wider, checks, contract.formats)
        if len(tried) == len(wider.formats) and all(map(_holds, tried.values())):
            contract, report = wider, merge(tried)
        else:
            broken |= _find_broken(contract, held, tried)
    beyond = tuple(x for x in report.limits if x.name not in broken)
    return contract, replace(report, limits=(*beyond, *broken.values()))


def _check(contract: Contract, checks: Checks, kept: Collection[str] = ()) -> dict[str, Report]:
    """Return the reports on a contract, by format; print the outcome on stderr."""
    began, text = time.monotonic(), f"Contract({write_contract(contract)})"
    tried = checks.check(contract, f"{checks.request.name} with {text}", kept)
    failed = [f"{report.verdict} at {name}" for name, report in tried.items() if not _holds(report)]
    how = ", ".join(failed) or "kept"
    say(f"{text}: {how} ({time.monotonic() - began:.1f} s)")
    return tried


def _holds(report: Report) -> bool:
    return report.verdict == "pass"


def _widen(contract: Contract, held: set[str]) -> Contract:
    """Return the contract with every step added that held."""
    for step in list_beyond(contract, TILE):
        if step.name in held:
            formats = dict.fromkeys((*contract.formats, *step.changes.get("formats", ())))
            contract = replace(contract, **{**step.changes, "formats": tuple(formats)})
    return contract


def _find_broken(
    contract: Contract, held: set[str], reports: dict[str, Report]
) -> dict[str, Limit]:
    """Return the step to drop, for each finding: one without which its case is not admitted.

    If a case needs several, views are dropped first, then formats, then sizes: any of them may
    be what the kernel does not support. If no finding decides, the format that failed is dropped,
    or all steps if it is one of the declared formats.
    """
    broken: dict[str, Limit] = {}
    steps = [step for step in list_beyond(contract, TILE) if step.name in held]
    steps.sort(key=lambda step: ("layouts" not in step.changes, "formats" not in step.changes))
    for dtype, report in reports.items():
        causes: dict[str, Limit] = {}
        for finding in report.findings:
            for step in steps:
                if not _admits(_widen(contract, held - {step.name}), finding.case):
                    more = ("limit", finding.message, finding.case)
                    causes.setdefault(step.name, Limit(step.name, step.option, *more))
                    break
        if not causes and not _holds(report):
            reason = report.note or "the kernel does not satisfy several such steps at once"
            names = held & {dtype} or held
            causes = {name: Limit(name, "", "not tried", reason) for name in sorted(names)}
        for name, limit in causes.items():
            broken.setdefault(name, limit)
    return broken


def _admits(contract: Contract, case: Case) -> bool:
    # b^T a^T uses transposed views if the contract admits any, else copies
    turned = case.compare == "transposed" and contract.layouts != ANY
    return is_admitted(case, contract) and not turned
