"""The table of docs/versions.md: the versions on which the whole suite ran."""

from __future__ import annotations

import os
import platform
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from scripts.docs.markdown import fill, make_table, update

from gemmproof.properties.codec import dump, parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "versions.md"
DATA = ROOT / "docs" / "evidence" / "versions.json"
LABELS = {"python": "Python", "triton": "Triton", "cpus": "CPUs"}  # others are named as the field


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of the whole suite: the versions, the counts of tests, and the time."""

    python: str
    torch: str
    triton: str
    numpy: str
    passed: int
    skipped: int
    failed: int
    minutes: float
    cpus: int | None
    date: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The versions that distinguish runs."""
        return self.triton, self.torch, self.python


def make_page(check: bool = False, out: Path | None = None, junit: Path | None = None) -> int:
    """Make the table of docs/versions.md from docs/evidence/versions.json.

    With --junit FILE a run of the suite in this environment is added first, from pytest's report.
    A row replaces an earlier one of the same Python, torch and Triton.
    """
    text = DATA.read_text(encoding="utf-8") if DATA.exists() else "[]"
    runs = parse(list[SuiteRun], text, str(DATA))
    if junit is not None:
        runs = add_run(runs, describe_run(junit))
        text = ",\n".join(map(dump, runs))
        DATA.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return update(PAGE, fill(PAGE, {"versions": format_table(runs)}), check, out)


def describe_run(junit: Path) -> SuiteRun:
    """Return the versions of this environment with the counts and the time of a JUnit report."""
    from junitparser import JUnitXml, TestSuite

    report = JUnitXml.fromfile(str(junit))
    suites = [report] if isinstance(report, TestSuite) else list(report)
    tests, skipped = (sum(getattr(s, name) for s in suites) for name in ("tests", "skipped"))
    failed = sum(s.failures + s.errors for s in suites)
    return SuiteRun(
        python=platform.python_version(),
        torch=version("torch"),
        triton=version("triton"),
        numpy=version("numpy"),
        passed=tests - skipped - failed,
        skipped=skipped,
        failed=failed,
        minutes=round(sum(s.time for s in suites) / 60, 1),
        cpus=os.cpu_count(),
        date=datetime.now(UTC).date().isoformat(),
    )


def add_run(runs: list[SuiteRun], run: SuiteRun) -> list[SuiteRun]:
    """Return the runs with this one, which replaces one of the same versions, in order."""

    def order(run: SuiteRun) -> list[list[int]]:
        plain = (text.partition("+")[0] for text in run.key)
        return [[int(n) for n in text.split(".")] for text in plain]

    return sorted([*(x for x in runs if x.key != run.key), run], key=order)


def format_table(runs: list[SuiteRun]) -> str:
    """Return the table in Markdown."""
    head = [LABELS.get(f.name, f.name) for f in fields(SuiteRun)]
    return make_table(head, ([*map(str, astuple(run))] for run in runs))
