"""The results of the mutants of a kernel: outcomes, the score, and the baseline's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from gemmproof.engine.request import CheckRequest
from gemmproof.report.record import EXIT, Report

KILLED, SURVIVED, EQUIVALENT = "killed", "survived", "equivalent"
# no difference in any case, and no proof that there is none
UNSEEN, INVALID, UNJUDGED = "no difference seen", "invalid", "not judged"
OUTCOMES = (KILLED, SURVIVED, UNSEEN, EQUIVALENT, INVALID, UNJUDGED)


@dataclass(frozen=True, slots=True)
class MutantResult:
    """The result of one mutant: its outcome, with the reason, the property and the case of a kill.

    `key` is short, and the same for the same change anywhere in its file (changed_source.py).
    """

    key: str
    file: str
    line: int
    operator: str
    where: str = ""
    diff: str = ""
    outcome: str = UNJUDGED
    why: str = ""
    by: str = ""
    case: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """The mutants of one kernel: those that were judged, of `asked` that were to be.

    `reached` mutants exist; `source` is the hash of the kernel's source. `note` is "" unless the
    run was cut short.
    """

    target: str
    mutants: tuple[MutantResult, ...]
    asked: int
    seconds: float
    formats: tuple[str, ...] = ()
    seed: int = 0
    max_examples: int = 0
    proof: bool = False
    reached: int = 0
    source: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    derived: ClassVar = ("score", "score_if_unseen_survive", "counts", "whole", "operators")

    @property
    def counts(self) -> dict[str, int]:
        """The number of mutants by outcome."""
        counts = Counter(mutant.outcome for mutant in self.mutants)
        return {outcome: counts[outcome] for outcome in OUTCOMES}

    @property
    def score(self) -> float | None:
        """The killed share of those that were killed or survived, or None if there are none."""
        counts = self.counts
        decided = counts[KILLED] + counts[SURVIVED]
        return counts[KILLED] / decided if decided else None

    @property
    def score_if_unseen_survive(self) -> float | None:
        """The score if mutants that show no difference count as survivors."""
        counts = self.counts
        decided = counts[KILLED] + counts[SURVIVED] + counts[UNSEEN]
        return counts[KILLED] / decided if decided else None

    @property
    def whole(self) -> bool:
        """True if every mutant was judged."""
        return len(self.mutants) == self.asked and not self.counts[UNJUDGED] and not self.note

    @property
    def operators(self) -> Mapping[str, Mapping[str, int]]:
        """The outcomes of each operator, in the order of the operators."""
        outcomes: dict[str, Counter[str]] = {}
        for mutant in self.mutants:
            outcomes.setdefault(mutant.operator, Counter())[mutant.outcome] += 1
        return outcomes


@dataclass(frozen=True, slots=True)
class MutationReport:
    """The document of a run: a score for each kernel, and what is worse than was asked for."""

    schema: Literal[1] = field(default=1, kw_only=True)
    kernels: tuple[Score, ...]
    drops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run's scores by kernel, and the mutants that it killed, by key."""

    scores: Mapping[str, float]
    killed: Mapping[str, frozenset[str]]

    @staticmethod
    def of(report: MutationReport) -> Baseline:
        """Return the scores of an earlier run."""
        scores = {kernel.target: kernel.score for kernel in report.kernels}
        killed = {kernel.target: _list_killed(kernel.mutants) for kernel in report.kernels}
        return Baseline({name: score for name, score in scores.items() if score}, killed)

    def list_lost(self, score: Score) -> list[MutantResult]:
        """List the mutants that were killed then and survive now."""
        killed = self.killed.get(score.target, frozenset())
        return [
            mutant
            for mutant in score.mutants
            if mutant.outcome in (SURVIVED, UNSEEN) and mutant.key in killed
        ]


def _list_killed(mutants: Iterable[MutantResult]) -> frozenset[str]:
    """Return the keys of which every mutant was killed: equal lines share a key."""
    killed = {True: set[str](), False: set[str]()}
    for mutant in mutants:
        killed[mutant.outcome == KILLED].add(mutant.key)
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
            low = minimum is not None and (score.score or 0.0) < minimum
            if low and score.whole:
                got = "no mutant to score" if score.score is None else f"{score.score:.4f}"
                drops.append(f"{score.target}: score: got {got}, expected {text.format(minimum)}")
        for lost in baseline.list_lost(score) if baseline is not None else ():
            location = f"{lost.file}:{lost.line}"
            text = f"got {lost.outcome!r} of {lost.operator!r}, expected 'killed' as before"
            drops.append(f"{score.target}: {location}: {text}")
    return drops


def exit_code(scores: list[Score], drops: list[str]) -> int:
    """Return 1 if a score is too low, else 3 if something was not judged."""
    if drops:
        return EXIT["fail"]
    whole = bool(scores) and all(score.whole for score in scores)
    return EXIT["pass"] if whole else EXIT["incomplete"]


# -- requests to workers, and their results -------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Reached:
    """The lines of one file that a target reaches.

    `compiled`: those that Triton translates; `launching`: those that run on the way to a launch;
    `grids`: the first lines of functions that make a grid.
    """

    compiled: frozenset[int]
    launching: frozenset[int]
    grids: frozenset[int]

    def join(self, other: Reached) -> Reached:
        """Return the lines that either reaches."""
        return Reached(
            self.compiled | other.compiled,
            self.launching | other.launching,
            self.grids | other.grids,
        )


@dataclass(frozen=True, slots=True)
class OriginalProgram:
    """The optimised TTIR of one specialisation of a kernel, and the JSON of a case of it."""

    text: str
    case: str


@dataclass(frozen=True, slots=True)
class SeenCase:
    """The digests of one case, given as JSON: of the result's bits, and of all accesses."""

    case: str
    bits: str
    accesses: str


@dataclass(frozen=True, slots=True)
class OriginalSurvey:
    """The original in one format: its report, the lines it reaches, its cases and programs.

    `source` is the hash of its source.
    """

    report: Report
    reached: dict[str, Reached]
    cases: tuple[SeenCase, ...]
    programs: dict[str, OriginalProgram]
    source: str


@dataclass(frozen=True, slots=True)
class MutantRequest:
    """A mutant to be judged as `check` requests: `file` has the `text` instead of its own.

    `is_compiled` is true if the change is in code that Triton compiles. `cases` and `programs` are
    those of the original.
    """

    check: CheckRequest
    file: str
    text: str
    is_compiled: bool
    cases: tuple[SeenCase, ...]
    programs: dict[str, OriginalProgram]


REPORT = "report"  # a part of the result: the report on a mutant, known before its judgement


@dataclass(frozen=True, slots=True)
class MutantJudgement:
    """The judgement of a mutant, besides its report.

    `fate` is its difference from the original, "" with a finding; `reason` the first case or
    message that shows it, `proved` the sizes that it is proved right for, "" for none.
    """

    fate: str = ""
    reason: str = ""
    proved: str = ""
