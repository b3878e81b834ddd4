"""The number of mutants that the suite catches, and the properties that catch them."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from scripts.docs.markdown import fill, make_table, update
from tests.corpora.mutant import CLASSES, Mutant
from tests.corpora.mutants.table import MUTANTS, SURVIVORS

from gemmproof.engine.kernel_check import check
from gemmproof.properties.finding import Finding

PAGE = Path(__file__).parents[2] / "docs" / "strength.md"


class Row(NamedTuple):
    """A mutant, the first finding of its check (None if it passed), and the check's seconds."""

    mutant: Mutant
    finding: Finding | None
    seconds: float

    @property
    def caught(self) -> bool:
        """True if the first finding is the declared one."""
        return self.finding is not None and self.mutant.is_stated(self.finding)


def judge(mutant: Mutant, examples: int) -> Row:
    """The first finding of a mutant's check."""
    report = check(mutant.kernel, max_examples=examples, target=mutant.target)
    return Row(mutant, next(iter(report.findings), None), report.seconds)


def tabulate_classes(rows: list[Row]) -> str:
    """A table with a row for each class of mutants, from rows in the order of the classes."""
    cells = []
    for letter, group in groupby(rows, lambda row: row.mutant.letter):
        own = list(group)
        properties = Counter(row.finding.property for row in own if row.finding is not None)
        found_by = ", ".join(f"{p} ({n})" if n > 1 else p for p, n in properties.most_common())
        times = [row.seconds for row in own]
        seconds = f"{statistics.median(times):.2f}, {max(times):.2f}"
        caught = sum(row.caught for row in own)
        name = f"{letter}. {CLASSES[letter]}"
        cells.append([name, str(len(own)), str(caught), found_by, seconds])
    return make_table(("class", "mutants", "caught", "found by", "median, slowest s"), cells)


def tabulate_mutants(rows: list[Row]) -> str:
    """A table with a row for each mutant."""
    cells = []
    for row in rows:
        f, finding_cells = row.finding, ["missed", "", "", ""]
        if f is not None:
            operands = ", ".join(word for word in (f.operand, f.axis) if word)
            other = "" if row.caught else " (not as stated)"
            finding_cells = [f.property + other, f.fault, operands, str(f.case)]
        cells.append(
            [row.mutant.letter, f"`{row.mutant.name}`", *finding_cells, f"{row.seconds:.2f}"]
        )
    head = ("class", "mutant", "property", "fault", "operand, axis", "smallest case", "s")
    return make_table(head, cells)


def make_page(examples: int = 100, check: bool = False, out: Path | None = None) -> int:
    """Judge every mutant by --examples cases and make the tables of docs/strength.md.

    Exits with 1 where a mutant is missed that tests/corpora/mutants/table.py says is caught, or is
    found for another reason than it states.
    """
    rows = [judge(m, examples) for m in (*MUTANTS, *SURVIVORS)]
    rows.sort(key=lambda row: (row.mutant.letter, not row.caught))
    times = [row.seconds for row in rows]
    missed = [row.mutant for row in rows if not row.caught]
    tables = {
        "caught": f"{len(rows) - len(missed)} of {len(rows)} are caught, with up to {examples}"
        f" cases before the first finding; median {statistics.median(times):.2f} s,"
        f" slowest {max(times):.2f} s.",
        "classes": tabulate_classes(rows),
        "mutants": tabulate_mutants(rows),
    }
    print(tables["caught"], *(mutant.name for mutant in missed))
    return update(PAGE, fill(PAGE, tables), check, out) or int(not set(missed) <= set(SURVIVORS))
