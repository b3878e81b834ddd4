"""Judge every mutant and write docs/strength.md from what was found: no figure is typed by hand.

    PYTHONPATH=src:tests python scripts/strength.py [--examples 100] [--out docs/strength.md]

Exit 1 where a mutant is missed or found for another reason than tests/mutants/table.py states.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mutants.table import CLASSES, MUTANTS, SURVIVORS, Mutant

from gemmproof.check import check
from gemmproof.properties.finding import Finding

ROOT = Path(__file__).parent.parent
OPENING = """\
# How strong the suite is

{count} kernels of [tests/mutants](../tests/mutants) are wrong in one way each. A mutant counts as
caught when the first finding names the property, the kind of fault, the operand, the axis and the
smallest case that [table.py](../tests/mutants/table.py) states. {caught} of {count} are, with
up to {examples} cases before the first finding; median {median:.2f} s, slowest {slowest:.2f} s.

The other half of the claim is in [tests/odd_but_right](../tests/odd_but_right): right kernels that
look wrong, of which none may be accused.
"""
CLOSING = """\
Written by `PYTHONPATH=src:tests python scripts/strength.py`; `tests/test_mutants.py` holds every
row. Seconds are those of one check in a process that has loaded everything, on the machine that
wrote this page.
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant, the first finding of its check (None where it passed), and the check's seconds."""

    mutant: Mutant
    found: Finding | None
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether the first finding is the one that was stated."""
        return self.found is not None and self.mutant.is_stated(self.found)


def judged(mutant: Mutant, examples: int) -> Judged:
    report = check(mutant.kernel, max_examples=examples, target=mutant.target)
    found = report.findings[0] if report.findings else None
    return Judged(mutant, found, report.seconds)


def by_class(rows: list[Judged]) -> str:
    lines = [
        "| class | mutants | caught | found by | median, slowest s |",
        "|---|---|---|---|---|",
    ]
    for letter, name in CLASSES.items():
        own = [row for row in rows if row.mutant.letter == letter]
        if not own:
            continue
        properties = Counter(row.found.property for row in own if row.found is not None)
        found_by = ", ".join(f"{p} ({n})" if n > 1 else p for p, n in properties.most_common())
        times = [row.seconds for row in own]
        lines.append(
            f"| {letter}. {name} | {len(own)} | {sum(row.caught for row in own)} | {found_by} |"
            f" {statistics.median(times):.2f}, {max(times):.2f} |"
        )
    return "\n".join(lines)


def by_mutant(rows: list[Judged]) -> str:
    lines = [
        "| class | mutant | property | fault | operand, axis | smallest case | s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        f, cells = row.found, [row.mutant.letter, f"`{row.mutant.name}`"]
        if f is None:
            cells += ["missed", "", "", ""]
        else:
            blamed = ", ".join(word for word in (f.operand, f.axis) if word)
            other = "" if row.caught else " (another than stated)"
            cells += [f.property + other, f.fault, blamed, str(f.case)]
        lines.append(f"| {' | '.join(cells)} | {row.seconds:.2f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "strength.md")
    options = parser.parse_args()
    rows = [judged(m, options.examples) for m in (*MUTANTS, *SURVIVORS)]
    rows.sort(key=lambda row: (row.mutant.letter, not row.caught))
    times = [row.seconds for row in rows]
    opening = OPENING.format(
        count=len(rows),
        caught=sum(row.caught for row in rows),
        median=statistics.median(times),
        slowest=max(times),
        examples=options.examples,
    )
    parts = (opening, by_class(rows), "\n## Each mutant\n", by_mutant(rows), "\n" + CLOSING)
    options.out.write_text("\n".join(parts), encoding="utf-8")
    missed = [row.mutant.name for row in rows if not row.caught]
    print(f"{options.out}: {len(rows) - len(missed)} of {len(rows)} caught {' '.join(missed)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
