"""Compare the cases of check's generator with those of the Hypothesis strategies, on every mutant.

Usage: ./run python scripts/compare_draws.py [--jobs 2] [--only NAME,...] [--out FILE]

Writes docs/evidence/drawn-cases.json: for each mutant of tests/corpora and each way to draw, the
number of the first case that shows its fault, and the smallest case to which Hypothesis shrinks it.
`./run python scripts/pages.py drawn-cases` makes the tables of decision 6 from it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

OUT = ROOT / "docs" / "evidence" / "drawn-cases.json"
CASES = 100  # of each way to draw
MORE = 500  # cases to find what shrinks, where a hundred do not show the fault
CALLS = 60  # to shrink


class Fault(Exception):
    """The case shows the fault of the mutant."""


@dataclass(slots=True)
class Trial:
    """The cases of one mutant that were judged, in order, and those that show its fault."""

    mutant: Any
    cases: dict[Any, Any] = field(default_factory=dict)
    shown: list[Any] = field(default_factory=list)
    first: int | None = None
    seconds: float = 0.0

    def judge(self, case: Any) -> Any:
        """Return the result of a case, judged once."""
        from gemmproof.backends.simulate import Simulator
        from gemmproof.engine.observe import judge, observe_case

        if case not in self.cases:
            began = time.perf_counter()
            backend = Simulator(self.mutant.target)
            self.cases[case] = judge(observe_case(self.mutant.kernel, case, backend))
            self.seconds += time.perf_counter() - began
        return self.cases[case]

    def shows(self, case: Any) -> bool:
        """Return whether a case shows the fault that the mutant has."""
        findings = self.judge(case).findings
        shows = any(f.property == self.mutant.property and f.cause is None for f in findings)
        if shows:
            self.first = self.first or len(self.cases)
            self.shown.append(case)
        return shows


def draw_seeded(mutant: Any) -> Trial:
    """Judge the cases that check draws, until one shows the fault."""
    from gemmproof.engine.draw import list_cases
    from gemmproof.engine.proofs import NOTHING

    trial, dtype = Trial(mutant), mutant.smallest.dtype
    rng = random.Random(f"0 {dtype}")
    for case in list_cases(mutant.kernel, trial.cases, NOTHING, dtype, rng, CASES):
        if trial.shows(case) or len(trial.cases) >= CASES:
            break
    return trial


def draw_by_hypothesis(mutant: Any, most: int = CASES) -> Trial:
    """Judge the cases that Hypothesis draws, until one shows the fault, and smaller ones."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from gemmproof.engine.draw import survey_kernel
    from gemmproof.properties.cases.strategies import cases

    dtype, surveyed, trial = mutant.smallest.dtype, Trial(mutant), Trial(mutant)
    survey = survey_kernel(mutant.kernel, dtype, surveyed.judge)

    @seed(0)
    @settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(mutant.kernel.contract, survey, dtype))
    def find(case: Any) -> None:
        if trial.shows(case):
            raise Fault

    try:
        find()
    except Fault:
        return trial
    return trial


def measure(name: str) -> dict[str, Any]:
    """Return the row of one mutant."""
    from tests.corpora.mutants.table import MUTANTS

    mutant = next(m for m in MUTANTS if m.name == name)
    row: dict[str, Any] = {"mutant": name, "class": mutant.letter, "property": mutant.property}
    shrunk = draw_by_hypothesis(mutant)
    for way, trial in (("check", draw_seeded(mutant)), ("hypothesis", shrunk)):
        row[way] = trial.first
        row[f"{way} ms"] = round(1000 * trial.seconds / len(trial.cases), 1)
    return row | describe_smallest(shrunk if shrunk.shown else draw_by_hypothesis(mutant, MORE))


def describe_smallest(trial: Trial) -> dict[str, Any]:
    """Return the smallest case after CALLS calls of the kernel, and at the end."""
    if not trial.shown:
        return {"smallest": None}
    mutant = trial.mutant
    order = {case: number for number, case in enumerate(trial.cases, 1)}
    allowed = (trial.first or 0) + CALLS
    smallest = [case for case in trial.shown if order[case] <= allowed][-1]
    calls = len(trial.cases) - (trial.first or 0)
    last = trial.shown[-1]
    return {
        "smallest": smallest.to_dict(),
        "stated": mutant.smallest.to_dict(),
        "as small": count_sides(smallest) <= count_sides(mutant.smallest),
        "boundary": is_boundary(trial, smallest),
        "calls": calls,
        "last": last.to_dict(),
    }


def count_sides(case: Any) -> int:
    """Return the sum of the sides."""
    return sum(case.sides.values())


def is_boundary(trial: Trial, case: Any) -> bool:
    """Return whether no side can be one step shorter."""
    contract = trial.mutant.kernel.contract
    for axis, side in case.sides.items():
        sizes = contract.sizes(axis)
        if side - sizes.step < max(1, sizes.fit(0)):
            continue
        shorter = case.with_sides({axis: side - sizes.step})
        if contract.admits(shorter.sides) and trial.shows(shorter):
            return False
    return True


def main() -> int:
    """Measure every mutant, and write the evidence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", metavar="NAME,...", default="")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    import hypothesis
    import triton
    from tests.corpora.mutants.table import MUTANTS

    only = arguments.only.split(",") if arguments.only else [m.name for m in MUTANTS]
    names = [m.name for m in MUTANTS if m.name in only]
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    with get_context("spawn").Pool(arguments.jobs, maxtasksperchild=4) as pool:
        for row in pool.imap_unordered(measure, names):
            rows.append(row)
            print(f"{len(rows)} of {len(names)}: {row['mutant']}", file=sys.stderr)
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "hypothesis": hypothesis.__version__,
        "triton": triton.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "cases": CASES,
        "calls": CALLS,
    }
    rows.sort(key=lambda row: names.index(row["mutant"]))
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(facts, indent=1).removesuffix("\n}")
    arguments.out.write_text(f'{head},\n "mutants": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
