"""The table of docs/versions.md: the versions on which the whole suite ran."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.docs.markdown import fill, make_table, update

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "versions.md"
DATA = ROOT / "docs" / "evidence" / "versions.json"
HEAD = (
    "Python",
    "torch",
    "Triton",
    "numpy",
    "passed",
    "skipped",
    "failed",
    "minutes",
    "CPUs",
    "date",
)
KEY = ("python", "torch", "triton")


def make_page(check: bool = False, out: Path | None = None, junit: Path | None = None) -> int:
    """Make the table of docs/versions.md from docs/evidence/versions.json.

    With --junit FILE a run of the suite in this environment is added first, from pytest's report.
    A row replaces an earlier one of the same Python, torch and Triton.
    """
    rows = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else []
    if junit is not None:
        rows = add_row(rows, describe_run(junit))
        text = ",\n".join(json.dumps(row) for row in rows)
        DATA.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return update(PAGE, fill(PAGE, {"versions": format_table(rows)}), check, out)


def describe_run(junit: Path) -> dict[str, Any]:
    """Return the versions of this environment with the counts and the time of a JUnit report."""
    from junitparser import JUnitXml, TestSuite

    report = JUnitXml.fromfile(str(junit))
    suites = [report] if isinstance(report, TestSuite) else list(report)
    tests, skipped = (sum(getattr(s, name) for s in suites) for name in ("tests", "skipped"))
    failed = sum(s.failures + s.errors for s in suites)
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
        "numpy": version("numpy"),
        "passed": tests - skipped - failed,
        "skipped": skipped,
        "failed": failed,
        "minutes": round(sum(s.time for s in suites) / 60, 1),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def add_row(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with this one, which replaces one of the same versions, in order."""
    others = [r for r in rows if any(r[name] != row[name] for name in KEY)]

    def order(row: dict[str, Any]) -> list[list[int]]:
        plain = (row[name].partition("+")[0] for name in ("triton", "torch", "python"))
        return [[int(n) for n in text.split(".")] for text in plain]

    return sorted([*others, row], key=order)


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    return make_table(HEAD, ([str(row[name.lower()]) for name in HEAD] for row in rows))
