"""A kernel prepared to run: blocks of steps, each a function over the values of a group.

Control flow is flat. A block ends in a jump, a branch, a loop's turn or the end; blocks stand in
the order of the source, so that the group that is furthest behind is the one with the lowest block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmproof.reference.observation import Where
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.value import Value, merge_lanes
from gemmproof.reference.ttir.dtypes import Dtype, Type

Env = list[Any]
Moves = tuple[tuple[int, int], ...]  # (to, from), done at once
Step = tuple[Callable[[Env], None], "Where | None", tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """How a block ends: `ways` out of it, each a block and the moves on the way there.

    `kind` is "jump"; "branch", each program as the condition in `uses` says, the way for true
    first; "turn", the head of a counted loop, whose Count is in `uses` and whose index goes to
    `makes`, the way into the body first; or "end", with a region's results in `uses`. `spins`:
    backwards, in a loop that may wait for other programs. `polls`: it only looks, so that looking
    again is of no use before memory changes.
    """

    kind: str
    ways: tuple[tuple[Any, Moves], ...] = ()
    uses: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    where: Where | None = None
    spins: bool = False
    polls: bool = False


@dataclass(slots=True)
class BasicBlock:
    """Steps, how the block ends, and the slots that are alive where it begins."""

    steps: list[Step]
    end: Exit
    live: tuple[int, ...] = ()


@dataclass(slots=True)
class Program:
    """A prepared kernel or region.

    `template` is an environment that holds the constants, `args` the slots of its arguments.
    """

    name: str
    blocks: list[BasicBlock]
    template: Env
    args: tuple[int, ...]
    arg_types: tuple[Type, ...]
    text: str = field(repr=False, default="")

    def enter(self, values: list[Any]) -> Env:
        """The environment in which it starts with these arguments."""
        env = list(self.template)
        for slot, value in zip(self.args, values, strict=True):
            env[slot] = value
        return env

    @property
    def is_straight(self) -> bool:
        """Whether it runs from its first step to its last."""
        return len(self.blocks) == 1


class Count:
    """A counted loop's progress: first index, step, turns in all and turns done, as int64 arrays
    (programs or 1)."""

    __slots__ = ("done", "dtype", "first", "step", "turns")

    def __init__(self, dtype: Dtype, *parts: np.ndarray) -> None:
        self.dtype = dtype
        self.first, self.step, self.turns, self.done = parts

    def index(self) -> Value:
        """The index of this turn."""
        wide = self.first + self.done * self.step
        data = wide.astype(self.dtype.numpy)
        made = Value(data, self.dtype, None, wide if (wide != data).any() else None)
        if len(data) > 1 and made.exact is None:
            made.span = int(wide.min()), int(wide.max())
        return made

    def next(self) -> Count:
        return Count(self.dtype, self.first, self.step, self.turns, self.done + 1)

    def _parts(self) -> tuple[np.ndarray, ...]:
        return (self.first, self.step, self.turns, self.done)

    def select(self, rows: np.ndarray) -> Count:
        return Count(self.dtype, *(p if len(p) == 1 else p[rows] for p in self._parts()))

    @staticmethod
    def merge(counts: list[Count], sizes: list[int], order: np.ndarray | None) -> Count:
        parts = []
        for several in zip(*(c._parts() for c in counts), strict=True):
            if all(len(p) == 1 and p[0] == several[0][0] for p in several):
                parts.append(several[0])
                continue
            parts.append(merge_lanes(several, sizes, order))
        return Count(counts[0].dtype, *parts)


def start_count(low: Value, high: Value, step: Value, dtype: Dtype, unsigned: bool) -> Count:
    """The count of `for index in range(low, high, step)`.

    Raises KernelError for a step that is not positive while there are turns to take.
    """
    first, last, pace = (_scalars(x, unsigned) for x in (low, high, step))
    some = first < last
    if (some & (pace <= 0)).any():
        bad = int(np.broadcast_to(pace, some.shape)[some].min())
        raise context.kernel_error(f"range: got step {bad}, expected a positive one")
    turns = np.where(some, -((first - last) // np.where(pace == 0, 1, pace)), 0)
    return Count(dtype, first, pace, turns, np.zeros(1, np.int64))


def _scalars(x: Value, unsigned: bool) -> np.ndarray:
    data = x.data.reshape(len(x.data))
    if unsigned:
        data = data.view(f"u{data.dtype.itemsize}")
    return data.astype(np.int64)
