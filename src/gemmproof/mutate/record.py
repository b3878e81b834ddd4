"""What became of the mutants of a kernel: outcomes, the score, and what a baseline had."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmproof.report.record import EXIT

MUTANTS_SCHEMA = 1
KILLED, SURVIVED, EQUIVALENT = "killed", "survived", "equivalent"
# it shows no difference in any case, and nothing proves that there is none
UNSEEN, INVALID, UNJUDGED = "no difference seen", "invalid", "not judged"
OUTCOMES = (KILLED, SURVIVED, UNSEEN, EQUIVALENT, INVALID, UNJUDGED)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One mutant: what it is (Mutant.to_dict), its outcome, and why, by what and at which case."""

    mutant: Mapping[str, Any]
    outcome: str
    why: str = ""
    by: str = ""
    case: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        said = {"outcome": self.outcome, "why": self.why, "by": self.by, "case": self.case}
        return {**self.mutant, **{name: text for name, text in said.items() if text}}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Judgement:
        """What `to_dict` gave."""
        own = ("outcome", "why", "by", "case")
        mutant = {name: x for name, x in data.items() if name not in own}
        return Judgement(mutant, **{name: data.get(name, "") for name in own})


@dataclass(frozen=True, slots=True)
class Score:
    """The mutants of one kernel: those that were `judged`, and how many there were to judge."""

    target: str
    judged: tuple[Judgement, ...]
    asked: int
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def counts(self) -> Counter[str]:
        """How many had each outcome."""
        return Counter(one.outcome for one in self.judged)

    @property
    def value(self) -> float | None:
        """Killed of those that were killed or survived; None where there are none."""
        counts = self.counts
        known = counts[KILLED] + counts[SURVIVED]
        return counts[KILLED] / known if known else None

    @property
    def least(self) -> float | None:
        """The same where all that show no difference survived."""
        counts = self.counts
        known = counts[KILLED] + counts[SURVIVED] + counts[UNSEEN]
        return counts[KILLED] / known if known else None

    @property
    def is_whole(self) -> bool:
        """Whether every mutant was judged."""
        return len(self.judged) == self.asked and not self.counts[UNJUDGED] and not self.note

    def by_operator(self) -> dict[str, Counter[str]]:
        """The outcomes of each operator, in the order of the operators."""
        found: dict[str, Counter[str]] = {}
        for one in self.judged:
            found.setdefault(one.mutant["operator"], Counter())[one.outcome] += 1
        return found

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "target": self.target,
            "score": self.value,
            "score_if_unseen_survive": self.least,
            "counts": {name: self.counts[name] for name in OUTCOMES},
            "asked": self.asked,
            "whole": self.is_whole,
            "note": self.note,
            "seconds": self.seconds,
            **self.facts,
            "operators": {name: dict(counts) for name, counts in self.by_operator().items()},
            "mutants": [one.to_dict() for one in self.judged],
        }


@dataclass(frozen=True, slots=True)
class Baseline:
    """The scores that an earlier run had by kernel, and the mutants that it killed, by key."""

    scores: Mapping[str, float]
    killed: Mapping[str, frozenset[str]]

    @staticmethod
    def read(path: str) -> Baseline:
        """Raises ValueError, in one line, for what is no record of this command."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            if data["schema"] != MUTANTS_SCHEMA:
                raise ValueError(f"schema {data['schema']}")
            kernels = {one["target"]: one for one in data["kernels"]}
            scores = {name: float(x["score"]) for name, x in kernels.items() if x["score"]}
            killed = {name: _list_killed(x["mutants"]) for name, x in kernels.items()}
        except OSError as mistake:
            got = mistake.strerror or str(mistake)
            raise ValueError(f"--baseline: got {path!r} ({got}), expected a record") from None
        except (KeyError, TypeError, ValueError) as mistake:
            got = " ".join(str(mistake).split())
            raise ValueError(
                f"--baseline: got {path!r} ({got}), expected what mutate --json writes"
            ) from None
        return Baseline(scores, killed)

    def list_lost(self, score: Score) -> list[Judgement]:
        """The mutants that were killed then and survive now."""
        killed = self.killed.get(score.target, frozenset())
        return [
            one
            for one in score.judged
            if one.outcome in (SURVIVED, UNSEEN) and one.mutant["key"] in killed
        ]


def _list_killed(mutants: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """The keys of which every mutant was killed: equal lines share one."""
    killed = {True: set[str](), False: set[str]()}
    for one in mutants:
        killed[one["outcome"] == KILLED].add(one["key"])
    return frozenset(killed[True] - killed[False])


def find_drops(
    scores: Iterable[Score], least: float | None, baseline: Baseline | None
) -> list[str]:
    """One line on each score that is lower than it must be, and on each mutant that lives again.

    A score of some of the mutants says nothing of the whole.
    """
    found = []
    for score in scores:
        then = baseline.scores.get(score.target) if baseline is not None else None
        for wanted, words in ((least, "at least {:g}"), (then, "{:.4f} as before")):
            low = wanted is not None and (score.value or 0.0) < wanted
            if low and score.is_whole:
                what = "no mutant to score" if score.value is None else f"{score.value:.4f}"
                found.append(f"{score.target}: score: got {what}, expected {words.format(wanted)}")
        for one in baseline.list_lost(score) if baseline is not None else ():
            place = f"{one.mutant['file']}:{one.mutant['line']}"
            words = (
                f"got {one.outcome!r} of {one.mutant['operator']!r}, expected 'killed' as before"
            )
            found.append(f"{score.target}: {place}: {words}")
    return found


def exit_code(scores: list[Score], drops: list[str]) -> int:
    """1 where a score is too low, else 3 where something was not judged."""
    if drops:
        return EXIT["fail"]
    whole = bool(scores) and all(score.is_whole for score in scores)
    return EXIT["pass"] if whole else EXIT["incomplete"]


def document(scores: list[Score], drops: list[str]) -> dict[str, Any]:
    """All of it as one JSON document."""
    return {
        "schema": MUTANTS_SCHEMA,
        "kernels": [score.to_dict() for score in scores],
        "drops": drops,
    }
