"""The results of the mutants of a kernel: outcomes, the score, and the baseline's."""

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
# no difference in any case, and no proof that there is none
UNSEEN, INVALID, UNJUDGED = "no difference seen", "invalid", "not judged"
OUTCOMES = (KILLED, SURVIVED, UNSEEN, EQUIVALENT, INVALID, UNJUDGED)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of one mutant (Mutant.to_dict): its outcome, reason, property and case."""

    mutant: Mapping[str, Any]
    outcome: str
    why: str = ""
    by: str = ""
    case: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement as plain data."""
        fields = {"outcome": self.outcome, "why": self.why, "by": self.by, "case": self.case}
        return {**self.mutant, **{name: text for name, text in fields.items() if text}}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Judgement:
        """Rebuild the judgement that `to_dict` gave."""
        names = ("outcome", "why", "by", "case")
        mutant = {name: x for name, x in data.items() if name not in names}
        return Judgement(mutant, **{name: data.get(name, "") for name in names})


@dataclass(frozen=True, slots=True)
class Score:
    """The mutants of one kernel: those that were `judged`, and the number that were to be."""

    target: str
    judged: tuple[Judgement, ...]
    asked: int
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def counts(self) -> Counter[str]:
        """The number of mutants by outcome."""
        return Counter(judgement.outcome for judgement in self.judged)

    @property
    def value(self) -> float | None:
        """The killed share of those that were killed or survived, or None if there are none."""
        counts = self.counts
        decided = counts[KILLED] + counts[SURVIVED]
        return counts[KILLED] / decided if decided else None

    @property
    def least(self) -> float | None:
        """The score if mutants that show no difference count as survivors."""
        counts = self.counts
        decided = counts[KILLED] + counts[SURVIVED] + counts[UNSEEN]
        return counts[KILLED] / decided if decided else None

    @property
    def is_whole(self) -> bool:
        """True if every mutant was judged."""
        return len(self.judged) == self.asked and not self.counts[UNJUDGED] and not self.note

    def by_operator(self) -> dict[str, Counter[str]]:
        """Count the outcomes of each operator, in the order of the operators."""
        outcomes: dict[str, Counter[str]] = {}
        for judgement in self.judged:
            outcomes.setdefault(judgement.mutant["operator"], Counter())[judgement.outcome] += 1
        return outcomes

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain data."""
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
            "mutants": [judgement.to_dict() for judgement in self.judged],
        }


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run's scores by kernel, and the mutants that it killed, by key."""

    scores: Mapping[str, float]
    killed: Mapping[str, frozenset[str]]

    @staticmethod
    def read(path: str) -> Baseline:
        """Read a record. Raises ValueError, in one line, if it is not one of this command."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            if data["schema"] != MUTANTS_SCHEMA:
                raise ValueError(f"schema {data['schema']}")
            kernels = {kernel["target"]: kernel for kernel in data["kernels"]}
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
        """List the mutants that were killed then and survive now."""
        killed = self.killed.get(score.target, frozenset())
        return [
            judgement
            for judgement in score.judged
            if judgement.outcome in (SURVIVED, UNSEEN) and judgement.mutant["key"] in killed
        ]


def _list_killed(mutants: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """Return the keys of which every mutant was killed: equal lines share a key."""
    killed = {True: set[str](), False: set[str]()}
    for mutant in mutants:
        killed[mutant["outcome"] == KILLED].add(mutant["key"])
    return frozenset(killed[True] - killed[False])


def find_drops(
    scores: Iterable[Score], least: float | None, baseline: Baseline | None
) -> list[str]:
    """List a line on each score below its minimum, and on each mutant that survives again.

    The score of a sample says nothing about the whole.
    """
    drops = []
    for score in scores:
        then = baseline.scores.get(score.target) if baseline is not None else None
        for minimum, text in ((least, "at least {:g}"), (then, "{:.4f} as before")):
            low = minimum is not None and (score.value or 0.0) < minimum
            if low and score.is_whole:
                got = "no mutant to score" if score.value is None else f"{score.value:.4f}"
                drops.append(f"{score.target}: score: got {got}, expected {text.format(minimum)}")
        for lost in baseline.list_lost(score) if baseline is not None else ():
            location = f"{lost.mutant['file']}:{lost.mutant['line']}"
            text = (
                f"got {lost.outcome!r} of {lost.mutant['operator']!r}, expected 'killed' as before"
            )
            drops.append(f"{score.target}: {location}: {text}")
    return drops


def exit_code(scores: list[Score], drops: list[str]) -> int:
    """Return 1 if a score is too low, else 3 if something was not judged."""
    if drops:
        return EXIT["fail"]
    whole = bool(scores) and all(score.is_whole for score in scores)
    return EXIT["pass"] if whole else EXIT["incomplete"]


def document(scores: list[Score], drops: list[str]) -> dict[str, Any]:
    """Return the scores as one JSON document."""
    return {
        "schema": MUTANTS_SCHEMA,
        "kernels": [score.to_dict() for score in scores],
        "drops": drops,
    }
