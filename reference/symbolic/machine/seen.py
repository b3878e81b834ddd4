"""What a launch over symbols is seen to claim, and where it branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmproof.reference.observation import Where
from gemmproof.reference.symbolic.terms import Cond


@dataclass(frozen=True, slots=True)
class Claim:
    """What must hold of a kernel's integers: a hint, an assumption, or that a number fits its type.

    `cond` must hold wherever `path` does, for every lane; of a hint that has a `number` it is
    enough that what accesses keep under this number holds of the lanes that matter.
    """

    kind: str
    words: str
    cond: Cond
    path: Cond
    where: Where | None
    number: Any = None


@dataclass(frozen=True, slots=True)
class Branch:
    """One side of a branch: programs take it where `cond` holds."""

    cond: Cond
    where: Where | None
    is_taken: bool
