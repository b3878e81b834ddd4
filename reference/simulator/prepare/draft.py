"""A program under construction: its blocks, its instructions, and what is known where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.observation import Where
from gemmproof.reference.simulator.program import Exit, Moves
from gemmproof.reference.ttir.module import Op


@dataclass(slots=True, eq=False)
class Instr:
    """An operation on slots: `compute` takes the values of `sources` and gives those of
    `results`."""

    op: Op
    compute: Callable[..., Any]
    sources: tuple[int, ...]
    results: tuple[int, ...]
    where: Where | None
    pure: bool


@dataclass(slots=True, eq=False)
class Draft:
    """A block under construction; the edges of its exit lead to other drafts."""

    instrs: list[Instr] = field(default_factory=list)
    end: Exit = field(default_factory=lambda: Exit("end"))


@dataclass(slots=True)
class Scope:
    """What has been computed on every path to here: (operation, operands) -> results."""

    known: dict[Any, tuple[int, ...]] = field(default_factory=dict)
    outer: Scope | None = None

    def find(self, key: Any) -> tuple[int, ...] | None:
        scope: Scope | None = self
        while scope is not None:
            if key in scope.known:
                return scope.known[key]
            scope = scope.outer
        return None


@dataclass(slots=True)
class Frame:
    """A function that is being inlined: its slots by SSA name, and the line that calls it."""

    function: str
    caller: Where | None
    slots: dict[str, int] = field(default_factory=dict)

    def find(self, names: Iterable[str]) -> tuple[int, ...]:
        """The slots of these values."""
        return tuple(self.slots[name] for name in names)

    def moves(self, names: Iterable[str], to: Iterable[int]) -> Moves:
        """The moves of these values to other slots."""
        return tuple(zip(to, self.find(names), strict=True))
