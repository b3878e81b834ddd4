"""Proofs: their status, their reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmproof.properties.cases.case import Case

# -- verdict -------------------------------------------------------------------------------------
PROVED, REFUTED, NOT_DECIDED = ("proved", "refuted", "not decided")
TIME, DEATH = "time", "death"  # limits that cut a proof short
SECONDS = 10.0  # counted (reference/work.py), for all that is proved of a kernel


@dataclass(frozen=True, slots=True)
class Proof:
    """The solver's result on one property of a kernel.

    `scope`: where it is proved ("every M, N, K, any strides"), under the `assumptions`, one phrase
    each ("M, N, K at most 1048576"). `why`: if refuted, the access and
    its missing condition; if not decided, the line and the reason. `case`, as JSON of a Case: a
    counterexample, which is a finding only if the simulator confirms it; or, if not decided, a
    suspected one, which is a refutation only if the simulator's. `cut`: TIME or DEATH (of the
    worker) if only that left it open, in its own proof or in one that it rests on.
    """

    property: str
    status: str
    scope: str = ""
    why: str = ""
    case: str | None = None
    cut: str = ""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a decision of a wrapper, as text, and whether a case may have taken it.

    `is_known`: there are sizes that take it; else the solver did not decide it.
    """

    text: str
    may_take: Callable[[Case], bool]
    is_known: bool


@dataclass(frozen=True, slots=True)
class Proofs:
    """All results of the proof of a kernel, and the cases that the search is to run because of it.

    `cases`: JSON of a Case on each side of every guard of the wrapper and branch of its kernels;
    `paths`: the paths as text, each with a case that takes it. `seconds` were counted. `defects`
    are differences between the prover's model of a path and the simulation: nothing rests on such a
    path. `sides` are those of the wrapper's decisions that may be taken, `ruled_out` the sides of
    kernels' branches that no program takes: a file, a line, and the truth of the condition. Of
    those `not_laid_out` are on a path for which the contract has no layouts. `is_followed`: all
    paths of the wrapper are known.
    """

    verdicts: tuple[Proof, ...] = ()
    cases: tuple[str, ...] = ()
    seconds: float = 0.0
    paths: tuple[tuple[str, str], ...] = ()
    defects: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    ruled_out: frozenset[tuple[str, int, bool]] = frozenset()
    is_followed: bool = False
    not_laid_out: frozenset[tuple[str, int, bool]] = frozenset()

    def find(self, name: str) -> Proof | None:
        """Return the proof of the property of that name, or None."""
        return next((proof for proof in self.verdicts if proof.property == name), None)
