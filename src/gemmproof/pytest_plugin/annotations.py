"""Annotations of failed items at the end of a run, in the form that a forge reads."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

import pytest

from gemmproof.properties.codec import Plain, decode, encode

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.finding import Finding
    from gemmproof.report.record import Report


class Annotations:
    """A plugin: each failed item's findings, written at the end of the run.

    They are attached to the reports of items, which pytest-xdist sends as plain data.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        test_report = yield
        if call.when != "call" or not test_report.failed:
            return test_report
        report = getattr(item, "funcargs", {}).get("gemm_report")
        failure = None if report is None else _describe_failure(item, report)
        if failure := failure or getattr(item, "gemm_failure", None):  # of a Hypothesis item
            test_report.gemm_found = failure  # type: ignore[attr-defined]
        return test_report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        failed = terminalreporter.stats.get("failed", [])
        items = [report.gemm_found for report in failed if hasattr(report, "gemm_found")]
        for line in _annotate(items):
            terminalreporter.write_line(line)


class FailedItem(TypedDict):
    """An item's findings as plain data, which cross to the process that reports them."""

    item: str
    findings: list[Plain]
    commands: list[str]
    note: str


def _describe_failure(item: pytest.Item, report: Report) -> FailedItem:
    """Return the item's findings as plain data, or why there are none."""
    from gemmproof.suite import list_findings

    funcargs = item.funcargs  # type: ignore[attr-defined]
    findings = list_findings(funcargs["gemm_item"], report)
    return make_failure(item.nodeid, findings, funcargs["gemm_reproduce"], report.note or "")


def make_failure(
    nodeid: str, findings: list[Finding], reproduce: Callable[[Case], str], note: str
) -> FailedItem:
    """Return the findings of an item as plain data."""
    commands = [reproduce(finding.case) for finding in findings]
    dicts = [encode(finding) for finding in findings]
    return {"item": nodeid, "findings": dicts, "commands": commands, "note": note}


def _annotate(items: list[FailedItem]) -> list[str]:
    from gemmproof.engine.assemble import make_unjudged
    from gemmproof.properties.finding import Finding
    from gemmproof.report.github import list_annotations
    from gemmproof.report.located_findings import list_placed

    reports, commands, notes = [], {}, set[str]()
    for failure in items:
        findings = decode(tuple[Finding, ...], failure["findings"], "findings")
        if not findings and failure["note"] in notes:
            continue  # one line for all items of a kernel that was not judged
        notes |= set() if findings else {failure["note"]}
        report = make_unjudged(failure["item"], failure["note"] or "no case tested it")
        reports.append(replace(report, findings=findings))
        by_case = dict(zip((f.case for f in findings), failure["commands"], strict=True))
        commands[failure["item"]] = by_case.__getitem__
    located = list_placed(reports, commands)
    # an item has the findings of one property, whose causes belong to another item
    located = [replace(entry, follows=entry.finding.cause is not None) for entry in located]
    return list(list_annotations("pytest", reports, located))
