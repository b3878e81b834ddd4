"""The names that a project's test file imports with `*`.

`test_gemm` is an item for each kernel, format and property; `test_gemm_cases` one for each kernel
and format, whose cases Hypothesis draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gemmproof.properties.finding import UNEXPECTED
from gemmproof.report.record import (
    NOT_APPLICABLE,
    NOT_EXERCISED,
    NOT_JUDGED,
    NOT_RUN,
    UNCONFIRMED,
)
from gemmproof.report.text import clean, finding_text, proof_text

if TYPE_CHECKING:
    from gemmproof.plugin import GemmItem
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.finding import Finding
    from gemmproof.pytest_plugin.reports import Reports
    from gemmproof.report.record import PropertyResult, Report

__all__ = ["test_gemm", "test_gemm_cases"]


ENDS = "runs_to_completion"  # whose item stands for the check as a whole
IDLE = (
    "no case tested it: it applies to no case that was drawn, or only to cases that fail otherwise"
)


@pytest.mark.gemm
def test_gemm(
    gemm_item: GemmItem,
    gemm_report: Report,
    gemm_reproduce: Callable[[Case], str],
    request: pytest.FixtureRequest,
    gemm_reports: Reports,
) -> None:
    """The kernel has the property, over the cases of one format."""
    # as pytest's record_property, which warns about --junit-xml: an error in strict projects
    about = (gemm_item.property, gemm_item.backend)
    result = next((p for p in gemm_report.properties if (p.name, p.backend) == about), None)
    if result is None:  # nothing was launched, or not even loaded, and the note has the reason
        pytest.fail(f"{gemm_item.property}: {gemm_report.note or IDLE}", pytrace=False)
    if proof := proof_text(result):
        request.node.user_properties.append(("proof", proof))
    findings = list_findings(gemm_item, gemm_report)
    if result.reason is not None:
        request.node.user_properties.append(("expected", clean(result.reason)))
        if _is_met_elsewhere(gemm_item, findings, gemm_reports):
            return
        if result.status == "expected":
            findings += [f for f in gemm_report.expected if (f.property, f.backend) == about]
            end: Callable[[str], object] = pytest.xfail  # does nothing with --runxfail
            end(clean(result.reason))
    if findings:
        name = gemm_item.kernel.name
        texts = (finding_text(name, each, result.claim, gemm_reproduce) for each in findings)
        pytest.fail("\n\n".join(texts), pytrace=False)
    if _is_incomplete(result, gemm_report):
        pytest.fail(f"{gemm_item.property}: {gemm_report.note or IDLE}", pytrace=False)
    if result.status in (NOT_EXERCISED, NOT_APPLICABLE, NOT_JUDGED):
        pytest.skip(clean(f"{gemm_item}: {result.status}: {result.why}"))
    if result.status == NOT_RUN:
        note = gemm_report.verdict == "fail" and gemm_report.note  # a death has a better reason
        pytest.skip(clean(f"{gemm_item}: {note or IDLE}"))  # -rs lists reasons, not items


def test_gemm_cases() -> None:
    """Every property holds in the cases that Hypothesis draws, of one kernel and format."""
    # the plugin collects an item for each kernel in place of this function
    pytest.fail("the plugin gemmproof.plugin is not loaded: it makes the items", pytrace=False)


def list_findings(item: GemmItem, report: Report) -> list[Finding]:
    """Return the findings that an item reports."""
    about = (item.property, item.backend)
    findings = [f for f in report.findings if (f.property, f.backend) == about]
    if item.kernel.device_only and item.property == ENDS:
        # findings on what the simulator sees of it, which have no separate item
        findings += [f for f in report.findings if f.backend == "simulator"]
    return findings


def _is_met_elsewhere(item: GemmItem, findings: list[Finding], reports: Reports) -> bool:
    """Return whether a property that holds here, but should fail, fails at another format.

    A contract expects the failure of all its formats together, as the commands judge them.
    """
    if [f.fault for f in findings] != [UNEXPECTED]:
        return False
    others = (f for f in item.kernel.contract.formats if f != item.format)
    reports_elsewhere = (reports.find(replace(item, format=other)) for other in others)
    return any(not _holds_in_vain(item, report) for report in reports_elsewhere)


def _holds_in_vain(item: GemmItem, report: Report) -> bool:
    """Return whether the item's property held to the end of a run, or is not judged by the run."""
    about = (item.property, item.backend)
    judged = any((p.name, p.backend) == about for p in report.properties)
    return not judged or UNEXPECTED in [f.fault for f in list_findings(item, report)]


def _is_incomplete(result: PropertyResult, report: Report) -> bool:
    """Return whether this item must fail because something was not run, or is disputed.

    An unfinished check fails the items of what it has not judged; one item in any case.
    """
    unfinished = report.verdict in UNCONFIRMED
    if result.status == NOT_RUN:  # a case that fails when simulated is not launched
        return unfinished or (result.backend == "cuda" and report.verdict != "pass")
    has_unjudged = any(p.status == NOT_RUN for p in report.properties)
    return result.is_disputed or (unfinished and not has_unjudged and result.name == ENDS)
