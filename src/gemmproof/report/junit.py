"""Reports as JUnit XML: a suite for each kernel, a test case for each property."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from gemmproof.report.record import (
    NOT_APPLICABLE,
    NOT_EXERCISED,
    NOT_JUDGED,
    NOT_RUN,
    PropertyResult,
    Regression,
    Report,
)
from gemmproof.report.text import Reproduce, clean, finding_text, kernel_name, proof_text


def write_junit(
    path: Path,
    reports: list[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> None:
    """Write one document; `reproduce` is looked up by a report's target."""
    xml = JUnitXml("gemmproof")
    for report in reports:
        xml.add_testsuite(_suite(report, reproduce[report.target]))
    if lost:
        xml.add_testsuite(_suite_of_lost(lost))
    path.write_bytes(xml.tostring())  # type: ignore[no-untyped-call]  # it has no types


def _suite(report: Report, reproduce: Reproduce) -> TestSuite:
    suite = TestSuite(clean(report.target))
    # A suite without a case is green, even if the kernel could not be judged.
    no_case = report.verdict == "incomplete" and not report.properties
    if report.verdict in ("error", "draft") or no_case:
        case = TestCase("check", clean(kernel_name(report)))
        case.result = [Error(clean(report.note or "error"), report.verdict)]
        suite.add_testcase(case)
    for branch in report.unvisited:
        case = TestCase("branch", clean(f"{kernel_name(report)}: {branch}"))
        case.result = [Failure("never ran") if _is_strict(report) else Skipped("never ran")]
        suite.add_testcase(case)
    for result in report.properties:
        suite.add_testcase(_case(report, result, reproduce))
        if proof := proof_text(result):
            suite.add_property(f"proof of {result.label}", proof)
    suite.time = report.seconds
    return suite


def _suite_of_lost(lost: Sequence[Regression]) -> TestSuite:
    """Return the suite of a baseline's regressions: the kernels may all be green, or gone."""
    suite = TestSuite("baseline")
    for regression in lost:
        # readers merge cases of the same name
        case = TestCase(
            clean(f"{regression.kind}: {regression.text}"),
            clean(regression.kernel or "all kernels"),
        )
        outcome = Failure if regression.is_refused else Error
        case.result = [outcome(clean(regression.text), regression.kind)]
        suite.add_testcase(case)
    return suite


def _is_strict(report: Report) -> bool:
    """Return whether --strict makes the gaps of a report failures."""
    return report.verdict == "fail" and not report.findings


def _case(report: Report, result: PropertyResult, reproduce: Reproduce) -> TestCase:
    name = kernel_name(report)
    case = TestCase(result.label, clean(name))
    outcomes: list[Any] = []
    for finding in report.findings:
        if (finding.property, finding.backend) == (result.name, result.backend):
            failure = Failure(clean(finding.message), clean(finding.fault))
            failure.text = finding_text(name, finding, result.claim, reproduce)
            outcomes.append(failure)
    if result.status == "expected":
        outcomes.append(Skipped(clean(f"fails as expected: {result.reason}")))
    if result.is_disputed:
        outcomes.append(Error(clean(report.note or "error"), "error"))
    elif result.status == NOT_EXERCISED:
        outcome = Failure if _is_strict(report) else Skipped
        outcomes.append(outcome(clean(f"{result.status}: {result.why}")))
    elif result.status in (NOT_APPLICABLE, NOT_JUDGED):
        outcomes.append(Skipped(clean(f"{result.status}: {result.why}")))
    elif result.status == NOT_RUN:
        # The note of a check that did not pass explains what could not run: it fails the build.
        if report.note is not None and report.verdict != "pass":
            outcomes.append(Error(clean(report.note), "incomplete"))
        else:
            outcomes.append(Skipped("it applies to no case"))
    case.result = outcomes
    return case
