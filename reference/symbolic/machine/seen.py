"""What a launch over symbols is seen to claim, where it branches, and why it is not followed."""

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


class NotFollowed(Exception):
    """An operation that is not known over symbols; `where` is its line."""

    def __init__(self, words: str, where: Where | None = None) -> None:
        super().__init__(words)
        self.where = where
