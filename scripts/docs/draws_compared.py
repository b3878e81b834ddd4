"""The tables of decision 6, from docs/evidence/drawn-cases.json."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from scripts.docs.markdown import ROOT, make_table, update_tables

EVIDENCE = ROOT / "docs" / "evidence" / "drawn-cases.json"
PAGE = ROOT / "docs" / "decisions" / "0006-two-ways-to-draw-cases.md"
BUDGETS = (10, 25, 50, 100)
WAYS = {"check": "`check`, seeded generator", "hypothesis": "`gemmproof.strategies`, Hypothesis"}


def read_facts() -> dict[str, Any]:
    """Return the evidence."""
    facts: dict[str, Any] = json.loads(EVIDENCE.read_text(encoding="utf-8"))
    return facts


def tabulate_counts() -> str:
    """Return the table of mutants that show their fault within a number of cases."""
    rows = read_facts()["mutants"]
    cells = []
    for way, title in WAYS.items():
        counts = [sum(r[way] is not None and r[way] <= budget for r in rows) for budget in BUDGETS]
        milliseconds = median(r[f"{way} ms"] for r in rows)
        cells.append([title, *map(str, counts), f"{milliseconds:.0f} ms"])
    head = ["drawn by", *(f"{n} cases" for n in BUDGETS), "a case, median"]
    return make_table(head, cells, ["---", *["--:"] * (len(head) - 1)])


def tabulate_smallest() -> str:
    """Return the table of the cases to which Hypothesis shrinks."""
    facts = read_facts()
    rows = [row for row in facts["mutants"] if row["smallest"] is not None]
    cells = [
        ["mutants with a case to shrink", str(len(rows))],
        [f"at a boundary after {facts['calls']} calls", str(sum(r["boundary"] for r in rows))],
        ["sides that sum to no more than those of `check`", str(sum(r["as small"] for r in rows))],
        ["calls until Hypothesis stops, median", f"{median(r['calls'] for r in rows):.0f}"],
        ["calls until Hypothesis stops, most", str(max(r["calls"] for r in rows))],
    ]
    return make_table(["smallest case", "mutants or calls"], cells, ["---", "--:"])


def make_page(check: bool = False, out: Path | None = None) -> int:
    """Make the tables of decision 6 from docs/evidence/drawn-cases.json."""
    facts = read_facts()
    run = (
        f"Measured on {facts['date']} on {len(facts['mutants'])} mutants of `tests/corpora`, with"
        f" Hypothesis {facts['hypothesis']}, Triton {facts['triton']} and Python {facts['python']}."
    )
    tables = {"run": run, "found": tabulate_counts(), "smallest": tabulate_smallest()}
    return update_tables(PAGE, tables, check, out)
