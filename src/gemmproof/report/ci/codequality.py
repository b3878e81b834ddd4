"""Findings as GitLab's code quality report: a list of issues, each with its file and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmproof.report.ci.placed import PlacedFinding
from gemmproof.report.files import write_json
from gemmproof.report.text import clean


def write(place: Path, placed: Sequence[PlacedFinding]) -> None:
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
