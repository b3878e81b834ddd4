"""Reports for CI: SARIF and code quality."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gemmproof import __version__
from gemmproof.report.files import write_json
from gemmproof.report.located_findings import PlacedFinding
from gemmproof.report.record import Regression, Report
from gemmproof.report.text import clean, kernel_name


# -- code quality --------------------------------------------------------------------------------
def write_codequality(place: Path, placed: Sequence[PlacedFinding]) -> None:
    """Write one document; it has no room for a finding without a line."""
    write_json(place, make_issues(placed))


def make_issues(placed: Sequence[PlacedFinding]) -> list[dict[str, Any]]:
    """The issues as plain data: a root cause is critical, what follows from one is major."""
    return [
        {
            "description": f"{clean(one.kernel)}: {one.text}",
            "check_name": one.finding.property,
            "fingerprint": one.fingerprint,
            "severity": "major" if one.follows else "critical",
            "location": {"path": clean(one.path), "lines": {"begin": one.line}},
        }
        for one in placed
        if one.path is not None
    ]


# -- SARIF ---------------------------------------------------------------------------------------
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "gemmproof/v1"  # a new number where fingerprints are made of something else


def write_sarif(
    place: Path,
    reports: Sequence[Report],
    placed: Sequence[PlacedFinding],
    lost: Sequence[Regression] = (),
) -> None:
    """Write one document."""
    write_json(place, make_document(reports, placed, lost))


def make_document(
    reports: Sequence[Report], placed: Sequence[PlacedFinding], lost: Sequence[Regression] = ()
) -> dict[str, Any]:
    """The document as plain data; what has no line is told by a notification."""
    claims = {result.name: result.claim for report in reports for result in report.properties}
    claims |= {one.finding.property: "" for one in placed if one.finding.property not in claims}
    names = list(claims)
    results = [_make_result(one, names) for one in placed if one.path is not None]
    driver = {
        "name": "gemmproof",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_make_rule(name, claim) for name, claim in claims.items()],
    }
    invocation = {
        "executionSuccessful": all(r.verdict in ("pass", "fail") for r in reports),
        "toolExecutionNotifications": [
            *_notify_unplaced(placed),
            *_notify_lost(lost),
            *_notify_unjudged(reports),
            *_notify_expected(reports),
        ],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the repository's root"}}},
        "results": results,
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def _make_rule(name: str, claim: str) -> dict[str, Any]:
    said = claim or name
    steps = "A result names the smallest case that shows it, and the command that replays it."
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("_")),
        "shortDescription": {"text": name.replace("_", " ")},
        "fullDescription": {"text": said},
        "help": {"text": f"What must hold: {said}. {steps}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["correctness", "triton", "gemm"]},
    }


def _make_result(one: PlacedFinding, names: Sequence[str]) -> dict[str, Any]:
    # quoted by its bytes: a file may have a name that is no text
    uri = quote(os.fsencode(one.path or ""))
    return {
        "ruleId": one.finding.property,
        "ruleIndex": names.index(one.finding.property),
        "level": "error",
        "message": {"text": f"{clean(one.kernel)}: {one.text}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": one.line},
                },
                "logicalLocations": [{"name": clean(one.kernel), "kind": "function"}],
            }
        ],
        "partialFingerprints": {FINGERPRINT: one.fingerprint},
    }


def _notify_unplaced(placed: Sequence[PlacedFinding]) -> list[dict[str, Any]]:
    """Findings without a line: a result without a location is refused by those who take SARIF."""
    return [
        {
            "level": "error",
            "message": {"text": f"{clean(one.kernel)}: {one.finding.property}: {one.text}"},
            "associatedRule": {"id": one.finding.property},
        }
        for one in placed
        if one.path is None
    ]


def _notify_lost(lost: Sequence[Regression]) -> list[dict[str, Any]]:
    """What a baseline has against the run: it is of no line."""
    return [
        {"level": "error" if one.is_refused else "warning", "message": {"text": clean(one.words)}}
        for one in lost
    ]


def _notify_expected(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """What fails as a contract expects: a result would be an alert, suppressed or not."""
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


def _notify_unjudged(reports: Sequence[Report]) -> list[dict[str, Any]]:
    return [
        {
            "level": "error" if report.verdict == "error" else "warning",
            "message": {"text": clean(f"{kernel_name(report)}: {report.verdict}: {report.note}")},
        }
        for report in reports
        if report.verdict in ("error", "incomplete")
    ]
