"""The tables of docs/results/other-tools.md, from docs/evidence/other-tools.json."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.docs.markdown import ROOT, make_table, update_tables
from tests.corpora.mutant import CLASSES
from tests.corpora.mutants.table import MUTANTS, SURVIVORS

EVIDENCE = ROOT / "docs" / "evidence" / "other-tools.json"
PAGE = ROOT / "docs" / "results" / "other-tools.md"
#: The tools as the evidence names them, with the shape of the call.
COLUMNS = {
    "assert_close, 512³": ("assert_close", "square"),
    "assert_close, odd": ("assert_close", "odd"),
    "interpreter, odd": ("interpreter", "odd"),
    "memcheck, 512³": ("memcheck", "square"),
    "memcheck, odd": ("memcheck", "odd"),
}
#: Answers of the interpreter that concern what it does not support, not the kernel.
UNSUPPORTED = ("object has no attribute", "Expected a cuda device")


def read_reports() -> dict[str, dict[tuple[str, str], bool]]:
    """Return, for each mutant, True for each tool and shape that reported a fault of the kernel."""
    reports: dict[str, dict[tuple[str, str], bool]] = {}
    for row in json.loads(EVIDENCE.read_text(encoding="utf-8"))["kernels"]:
        is_unsupported = any(text in row["answer"] for text in UNSUPPORTED)
        reported = row["answer"] != "nothing" and not is_unsupported
        reports.setdefault(row["kernel"], {})[row["tool"], row["shape"]] = reported
    return reports


def count_unsupported() -> int:
    """Return the number of mutants that the interpreter does not support."""
    rows = json.loads(EVIDENCE.read_text(encoding="utf-8"))["kernels"]
    return sum(any(text in row["answer"] for text in UNSUPPORTED) for row in rows)


def tabulate() -> str:
    """Return the table of reported mutants by class."""
    reports = read_reports()
    letters = {m.name: m.letter for m in (*MUTANTS, *SURVIVORS) if m.name in reports}
    caught = {mutant.name for mutant in MUTANTS}
    head = ["class", "kernels", "gemmproof", "all other tools", *COLUMNS]
    rows = []
    for letter in [*sorted(set(letters.values())), ""]:
        names = [name for name in reports if letters[name] == letter or not letter]
        counts = [sum(reports[name][key] for name in names) for key in COLUMNS.values()]
        together = sum(any(reports[name].values()) for name in names)
        title = f"{letter}. {CLASSES[letter]}" if letter else "all"
        ours = sum(name in caught for name in names)
        rows.append([title, *map(str, (len(names), ours, together, *counts))])
    return make_table(head, rows, ["---", *["--:"] * (len(head) - 1)])


def make_page(check: bool = False, out: Path | None = None) -> int:
    """Make the tables of docs/results/other-tools.md from docs/evidence/other-tools.json."""
    facts = json.loads(EVIDENCE.read_text(encoding="utf-8"))
    run = (
        f"Measured on {facts['date']} on one {facts['device']}: driver {facts['driver']}, torch"
        f" {facts['torch']}, Triton {facts['triton']}. The interpreter does not support"
        f" {count_unsupported()} of the kernels; they count as not reported."
    )
    return update_tables(PAGE, {"tools": tabulate(), "run": run}, check, out)
