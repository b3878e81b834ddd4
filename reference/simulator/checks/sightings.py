"""Sightings: what must not happen in a launch, joined into faults when the call ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.observation import Where
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.memory import Argument, Storage


@dataclass(slots=True)
class Sighting:
    """One thing seen at one access of some programs.

    `low`..`high` are the stray indices along the operand's axis; `between` says that lanes step by
    `low` along an axis of stride `high` instead. `tests` are the axes its mask varies along (None:
    there is no mask, or its axes are unclear), `box` the words for a block pointer or descriptor
    that it goes through. `elements` are byte offsets into `storage` where it
    matters which elements were hit, `bits` the poison stored there.
    """

    kind: str
    access: str
    programs: np.ndarray
    lanes: int
    where: Where | None
    operand: Argument | None = None
    axis: int | None = None
    got: str = ""
    expected: str = ""
    low: int = 0
    high: int = 0
    masked: bool = True
    tests: tuple[int, ...] | None = None
    between: bool = False
    box: str = ""
    storage: Storage | None = None
    elements: np.ndarray | None = None
    bits: np.ndarray | None = None


def note(kind: str, access: str, programs: np.ndarray, lanes: int, **more: Any) -> None:
    """Note a sighting of the running launch, on the line that runs where no other is given."""
    where = more.pop("where", context.where())
    context.current().sightings.append(Sighting(kind, access, programs, lanes, where, **more))


def note_lanes(kind: str, access: str, marked: np.ndarray, **more: Any) -> None:
    """Note a sighting of the marked lanes (programs or 1, *block)."""
    note(kind, access, programs_of(marked), int((marked != 0).sum()), **more)


def count_programs(sightings: list[Sighting]) -> int:
    """How many programs the sightings involve."""
    return len(np.unique(np.concatenate([s.programs for s in sightings])))


def programs_of(marked: np.ndarray) -> np.ndarray:
    """Ids of the running programs that have a marked lane (programs or 1, *block)."""
    programs = context.current().programs
    if len(marked) == 1:
        return programs
    return programs[(marked != 0).reshape(len(marked), -1).any(axis=1)]
