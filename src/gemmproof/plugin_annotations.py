"""Annotations of what a pytest run found, where a job of GitHub's runs it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gemmproof.report.report import Report


class Annotations:
    """A plugin: each failed item's findings, written at the end of the run.

    They travel on the reports of items, which a process of pytest-xdist sends as plain data.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        told = yield
        report = getattr(item, "funcargs", {}).get("gemm_report")
        if call.when == "call" and told.failed and report is not None:
            told.gemm_found = _describe(item, report)  # type: ignore[attr-defined]
        return told

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        failed = terminalreporter.stats.get("failed", [])
        items = [told.gemm_found for told in failed if hasattr(told, "gemm_found")]
        for line in _annotate(items):
            terminalreporter.write_line(line)


def _describe(item: pytest.Item, report: Report) -> dict[str, Any]:
    """The item's findings as plain data, or why there are none."""
    from gemmproof.suite import list_findings

    funcargs = item.funcargs  # type: ignore[attr-defined]
    found = list_findings(funcargs["gemm_item"], report)
    commands = [funcargs["gemm_reproduce"](finding.case) for finding in found]
    told = [finding.to_dict() for finding in found]
    return {"item": item.nodeid, "found": told, "commands": commands, "note": report.note}


def _annotate(items: list[dict[str, Any]]) -> list[str]:
    from gemmproof.properties.finding import Finding
    from gemmproof.report.ci.github import list_annotations
    from gemmproof.report.ci.placed import list_placed
    from gemmproof.worker.verdict import make_error

    reports, commands, notes = [], {}, set[str]()
    for told in items:
        findings = tuple(map(Finding.from_dict, told["found"]))
        if not findings and told["note"] in notes:
            continue  # one line for all items of what was not judged
        notes |= set() if findings else {told["note"]}
        verdict = "fail" if findings else "incomplete"
        report = make_error(told["item"], told["note"] or "no case bore on it")
        reports.append(replace(report, verdict=verdict, findings=findings))
        by_case = dict(zip((f.case for f in findings), told["commands"], strict=True))
        commands[told["item"]] = by_case.__getitem__
    placed = list_placed(reports, commands)
    # an item has the findings of one property, whose causes are another's
    placed = [replace(one, follows=one.finding.cause is not None) for one in placed]
    return list(list_annotations("pytest", reports, placed))
