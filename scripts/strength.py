"""How many mutants the suite catches, and by what."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mutants.table import CLASSES, MUTANTS, SURVIVORS, Mutant
from scripts.markdown import settle, table_of

from gemmproof.engine.check import check
from gemmproof.properties.finding import Finding

PAGE = Path(__file__).parents[1] / "docs" / "strength.md"
OPENING = """\
# How strong the suite is

{count} kernels of [tests/corpora/mutants](../tests/corpora/mutants) are wrong in one way each. A
mutant counts as caught when the first finding names the property, the kind of fault, the operand,
the axis and the smallest case that [table.py](../tests/corpora/mutants/table.py) states.
{caught} of {count} are, with up to {examples} cases before the first finding;
median {median:.2f} s, slowest {slowest:.2f} s.

The other half of the claim is in [tests/corpora/no_false_alarm](../tests/corpora/no_false_alarm):
right kernels that look wrong, of which none may be accused.
"""
CLOSING = """\
Written by `python scripts/pages.py strength`; `tests/corpora/test_mutants.py` holds every row.
Seconds are those of one check in a process that has loaded everything, on the machine that wrote
this page.
"""


@dataclass(frozen=True, slots=True)
class MutantVerdict:
    """A mutant, the first finding of its check (None where it passed), and the check's seconds."""

    mutant: Mutant
    found: Finding | None
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether the first finding is the one that was stated."""
        return self.found is not None and self.mutant.is_stated(self.found)


def judge(mutant: Mutant, examples: int) -> MutantVerdict:
    """The first finding of a mutant's check."""
    report = check(mutant.kernel, max_examples=examples, target=mutant.target)
    found = report.findings[0] if report.findings else None
    return MutantVerdict(mutant, found, report.seconds)


def by_class(rows: list[MutantVerdict]) -> str:
    """A table with a row for each class of mutants."""
    cells = []
    for letter, name in CLASSES.items():
        own = [row for row in rows if row.mutant.letter == letter]
        if not own:
            continue
        properties = Counter(row.found.property for row in own if row.found is not None)
        found_by = ", ".join(f"{p} ({n})" if n > 1 else p for p, n in properties.most_common())
        times = [row.seconds for row in own]
        seconds = f"{statistics.median(times):.2f}, {max(times):.2f}"
        caught = sum(row.caught for row in own)
        cells.append([f"{letter}. {name}", str(len(own)), str(caught), found_by, seconds])
    return table_of(("class", "mutants", "caught", "found by", "median, slowest s"), cells)


def by_mutant(rows: list[MutantVerdict]) -> str:
    """A table with a row for each mutant."""
    cells = []
    for row in rows:
        f, found = row.found, ["missed", "", "", ""]
        if f is not None:
            blamed = ", ".join(word for word in (f.operand, f.axis) if word)
            other = "" if row.caught else " (another than stated)"
            found = [f.property + other, f.fault, blamed, str(f.case)]
        cells.append([row.mutant.letter, f"`{row.mutant.name}`", *found, f"{row.seconds:.2f}"])
    head = ("class", "mutant", "property", "fault", "operand, axis", "smallest case", "s")
    return table_of(head, cells)


def make_page(examples: int, check: bool, out: Path | None) -> int:
    """Judge every mutant and make docs/strength.md of what was found.

    Exit 1 where a mutant is missed that tests/corpora/mutants/table.py says is caught, or is
    found for another reason than it states.
    """
    rows = [judge(m, examples) for m in (*MUTANTS, *SURVIVORS)]
    rows.sort(key=lambda row: (row.mutant.letter, not row.caught))
    times = [row.seconds for row in rows]
    opening = OPENING.format(
        count=len(rows),
        caught=sum(row.caught for row in rows),
        median=statistics.median(times),
        slowest=max(times),
        examples=examples,
    )
    parts = (opening, by_class(rows), "\n## Each mutant\n", by_mutant(rows), "\n" + CLOSING)
    missed = [row.mutant for row in rows if not row.caught]
    print(f"{len(rows) - len(missed)} of {len(rows)} caught {' '.join(m.name for m in missed)}")
    return settle(PAGE, "\n".join(parts), check, out) or int(not set(missed) <= set(SURVIVORS))
