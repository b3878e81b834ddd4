"""Reports for CI: SARIF and code quality."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NotRequired, TypedDict
from urllib.parse import quote

from gemmproof import __version__
from gemmproof.report.files import write_json
from gemmproof.report.located_findings import PlacedFinding
from gemmproof.report.record import MEMORY_ONLY, UNCONFIRMED, Regression, Report
from gemmproof.report.text import clean, kernel_name


# -- code quality --------------------------------------------------------------------------------
def write_codequality(path: Path, located: Sequence[PlacedFinding]) -> None:
    """Write one document, without the findings that have no line."""
    write_json(path, make_issues(located))


def make_issues(located: Sequence[PlacedFinding]) -> list[dict[str, object]]:
    """Return the issues as plain data: a root cause is critical, its consequences are major."""
    return [
        {
            "description": f"{clean(issue.kernel)}: {issue.text}",
            "check_name": issue.finding.property,
            "fingerprint": issue.fingerprint,
            "severity": "major" if issue.follows else "critical",
            "location": {"path": clean(issue.path), "lines": {"begin": issue.line}},
        }
        for issue in located
        if issue.path is not None
    ]


# -- SARIF ---------------------------------------------------------------------------------------
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "gemmproof/v1"  # a new number if fingerprints are computed differently


class Notification(TypedDict):
    """A notification of SARIF: an event of the run, without a line."""

    level: Literal["note", "warning", "error"]
    message: dict[str, str]
    associatedRule: NotRequired[dict[str, str]]


def write_sarif(
    path: Path,
    reports: Sequence[Report],
    located: Sequence[PlacedFinding],
    lost: Sequence[Regression] = (),
) -> None:
    """Write one document."""
    write_json(path, make_document(reports, located, lost))


def make_document(
    reports: Sequence[Report], located: Sequence[PlacedFinding], lost: Sequence[Regression] = ()
) -> dict[str, object]:
    """Return the document as plain data; findings without a line become notifications."""
    claims = {result.name: result.claim for report in reports for result in report.properties}
    claims |= {item.finding.property: "" for item in located if item.finding.property not in claims}
    names = list(claims)
    results = [_make_result(item, names) for item in located if item.path is not None]
    driver = {
        "name": "gemmproof",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_make_rule(name, claim) for name, claim in claims.items()],
    }
    invocation = {
        "executionSuccessful": all(r.verdict in ("pass", "fail") for r in reports),
        "toolExecutionNotifications": [
            *_notify_unplaced(located),
            *_notify_lost(lost),
            *_notify_unjudged(reports),
            *_notify_expected(reports),
            *_notify_memory_only(reports),
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the repository's root"}}},
        "results": results,
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def _make_rule(name: str, claim: str) -> dict[str, object]:
    text = claim or name
    steps = "A result names the smallest case that shows it, and the command that replays it."
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("_")),
        "shortDescription": {"text": name.replace("_", " ")},
        "fullDescription": {"text": text},
        "help": {"text": f"What must hold: {text}. {steps}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["correctness", "triton", "gemm"]},
    }


def _make_result(item: PlacedFinding, names: Sequence[str]) -> dict[str, object]:
    # quoted by its bytes: a file may have a name that is no text
    uri = quote(os.fsencode(item.path or ""))
    return {
        "ruleId": item.finding.property,
        "ruleIndex": names.index(item.finding.property),
        "level": "error",
        "message": {"text": f"{clean(item.kernel)}: {item.text}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": item.line},
                },
                "logicalLocations": [{"name": clean(item.kernel), "kind": "function"}],
            }
        ],
        "partialFingerprints": {FINGERPRINT: item.fingerprint},
    }


def _notify_unplaced(located: Sequence[PlacedFinding]) -> list[Notification]:
    """Return notifications of findings without a line: SARIF readers refuse results without one."""
    return [
        {
            "level": "error",
            "message": {"text": f"{clean(item.kernel)}: {item.finding.property}: {item.text}"},
            "associatedRule": {"id": item.finding.property},
        }
        for item in located
        if item.path is None
    ]


def _notify_lost(lost: Sequence[Regression]) -> list[Notification]:
    """Return notifications of regressions against a baseline, which have no line."""
    return [
        {
            "level": "error" if regression.is_refused else "warning",
            "message": {"text": clean(regression.line)},
        }
        for regression in lost
    ]


def _notify_expected(reports: Sequence[Report]) -> list[Notification]:
    """Return notifications of expected failures: a result would be an alert, suppressed or not."""
    return [
        {
            "level": "note",
            "message": {"text": clean(f"{kernel_name(report)}: {text}")},
            "associatedRule": {"id": result.name},
        }
        for report in reports
        for result in report.properties
        if result.status == "expected"
        for text in (f"{result.label} fails as expected: {result.reason}",)
    ]


def _notify_memory_only(reports: Sequence[Report]) -> list[Notification]:
    return [
        {
            "level": "note",
            "message": {"text": clean(f"{kernel_name(x)}: {x.verdict}, {MEMORY_ONLY}")},
        }
        for x in reports
        if x.memory_only
    ]


def _notify_unjudged(reports: Sequence[Report]) -> list[Notification]:
    return [
        {
            "level": "error" if report.verdict == "error" else "warning",
            "message": {"text": clean(f"{kernel_name(report)}: {report.verdict}: {report.note}")},
        }
        for report in reports
        if report.verdict in UNCONFIRMED
    ]
