"""Proofs: their status, their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# -- verdict -------------------------------------------------------------------------------------
PROVED, REFUTED, NOT_DECIDED = STATUSES = ("proved", "refuted", "not decided")
TIME, DEATH = "time", "death"  # what a proof is cut short by
SECONDS = 10.0  # counted (reference/work.py), for all that is proved of a kernel


@dataclass(frozen=True, slots=True)
class Proof:
    """What a solver says of one property of a kernel.

    `scope`: where it is proved ("every M, N, K, any strides"). `why`: of what was refuted, the
    access and what it lacks; of what was not decided, the line and the reason. `case`, as JSON of a
    Case: where a refutation shows, which is a finding only when the simulator says so too; or where
    what was not decided is suspected not to hold, which is refuted only by the simulator. `cut`:
    TIME or DEATH (of the worker) where only that left it open, its own or what it rests on.
    """

    property: str
    status: str
    scope: str = ""
    why: str = ""
    case: str | None = None
    cut: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without what is empty."""
        return {name: x for name, x in asdict(self).items() if x not in ("", None)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Proof:
        return Proof(**data)


@dataclass(frozen=True, slots=True)
class Proofs:
    """All that was proved of a kernel, and what the search is to look at because of it.

    `cases`: JSON of a Case on each side of every guard of the wrapper and branch of its kernels;
    `unvisited`: the paths that no case could be found for, in words. `seconds` were counted.
    `paths`: the others in words, each with a case that takes it.
    """

    verdicts: tuple[Proof, ...] = ()
    cases: tuple[str, ...] = ()
    unvisited: tuple[str, ...] = ()
    seconds: float = 0.0
    paths: tuple[tuple[str, str], ...] = ()

    def find(self, name: str) -> Proof | None:
        """What was said of the property of a name, None for one that no proof is about."""
        return next((proof for proof in self.verdicts if proof.property == name), None)
