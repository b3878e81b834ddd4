"""Groups of programs that run in lockstep while they agree.

Where the programs of a group take different branches it splits. The group that is furthest behind
in the source runs first, so that groups reconverge and are joined. A group that waits for memory
that others write yields to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.observation import LimitExceeded
from gemmproof.reference.simulator import context as contexts
from gemmproof.reference.simulator.checks.judge import check_defined
from gemmproof.reference.simulator.context import Context, TooWide
from gemmproof.reference.simulator.program import BasicBlock, Env, Exit, Moves, Program
from gemmproof.reference.simulator.value import is_same, merge
from gemmproof.reference.work import METER

MOST_WIDTH = 1 << 16  # programs of a group

# Iterations of a loop that a group may take, while memory does not change, before it yields: only
# retrying with more tells a long loop from one that waits for another program.
FIRST_PATIENCE = 64
MOST_PATIENCE = FIRST_PATIENCE * 8**5


@dataclass(slots=True, eq=False)
class Group:
    """Programs (linear ids, ascending) at one place: a block, a step in it, and their values."""

    programs: np.ndarray
    env: Env
    block: int = 0
    step: int = 0
    spins: int = 0
    changes: int = 0
    before: tuple[int, list[Any]] | None = None  # the last iteration but one of a loop that waits
    still: bool = False  # the last iteration changed nothing: only other programs can end it

    def select(self, rows: np.ndarray) -> Group:
        """Some of the programs, at the same place."""
        env = [x if x is None else x.select(rows) for x in self.env]
        return Group(self.programs[rows], env, self.block, self.step)


class Scheduler:
    """The groups of one launch, or of one region over lanes, of which `owners` are the programs."""

    def __init__(
        self, program: Program, context: Context, owners: np.ndarray | None = None
    ) -> None:
        self.program = program
        self.context = context
        self.owners = owners
        self.ready: list[Group] = []
        self.waiting: list[Group] = []
        self.done: list[Group] = []
        self.limit = MOST_WIDTH
        self.patience = FIRST_PATIENCE

    def run(self, group: Group) -> None:
        """Run a group, and what it splits into, as far as it can without other groups."""
        self.ready.append(group)
        while self.ready:
            self._advance(self._take())

    def wake(self) -> None:
        """Retry the waiting groups: with more patience unless memory changed.

        Raises LimitExceeded where nothing else can change what they wait for.
        """
        if all(g.changes == self.context.changes for g in self.waiting):
            self.patience *= 8
            if self.patience > MOST_PATIENCE or all(g.still for g in self.waiting):
                ids = np.concatenate([g.programs for g in self.waiting])
                some = ", ".join(map(str, ids[:5].tolist())) + (", ..." if len(ids) > 5 else "")
                who = f"programs {some} wait" if len(ids) > 1 else f"program {some} waits"
                raise LimitExceeded(f"{self.context.kernel}: {who} for ever", self.context.where)
        waiting, self.waiting = self.waiting, []
        for group in waiting:
            group.spins = 0
            self.run(group)

    # -- groups ----------------------------------------------------------------------------------
    def _take(self) -> Group:
        """The group that is furthest behind, joined by those at the same place."""
        if len(self.ready) == 1:
            return self.ready.pop()
        place = min((g.block, g.step) for g in self.ready)
        taken, rest, width = [], [], 0
        for group in self.ready:
            fits = width == 0 or width + len(group.programs) <= self.limit
            if (group.block, group.step) == place and fits and (width == 0 or not group.step):
                taken.append(group)
                width += len(group.programs)
            else:
                rest.append(group)
        self.ready = rest
        return taken[0] if len(taken) == 1 else self._join(taken)

    def _join(self, groups: list[Group]) -> Group:
        programs = np.concatenate([g.programs for g in groups])
        order = None
        if (np.diff(programs) < 0).any():
            order = np.argsort(programs)
            programs = programs[order]
        env = list(self.program.template)
        sizes = [len(g.programs) for g in groups]
        try:
            for slot in self.program.blocks[groups[0].block].live:
                env[slot] = merge_slots([g.env[slot] for g in groups], sizes, order)
        except TooWide:
            self.limit = max(1, len(programs) - 1)
            self.ready += groups[1:]
            return groups[0]
        return Group(programs, env, groups[0].block)

    def _advance(self, group: Group) -> None:
        """Run a group until it ends, splits, waits, or is no longer the furthest behind."""
        until = min((g.block for g in self.ready), default=None)
        context, blocks = self.context, self.program.blocks
        owners = self.owners
        context.programs = group.programs if owners is None else owners[group.programs]
        while True:
            try:
                run_block(blocks[group.block], group, context)
            except TooWide:
                return self._halve(group)
            end = blocks[group.block].end
            group.step = 0
            if end.kind == "end":
                self.done.append(group)
                return None
            if end.kind == "jump":
                target, moves = end.edges[0]
                _move(group.env, moves)
                back = target <= group.block
                group.block = target
                if back:
                    contexts.check_time()
                    if end.spins and self._count_spin(group):
                        return None
            else:
                context.where = end.where
                split = self._branch(group, end)
                if split is not None:
                    self.ready += split
                    return None
                if end.spins and self._count_spin(group, end.polls):
                    return None
            if until is not None and group.block >= until:
                self.ready.append(group)
                return None

    def _halve(self, group: Group) -> None:
        """Halve a group whose values are too wide, and let no later one be wider."""
        n = len(group.programs)
        half = (n + 1) // 2
        self.limit = min(self.limit, half)
        rows = np.arange(n)
        self.ready += [group.select(rows[:half]), group.select(rows[half:])]

    def _branch(self, group: Group, end: Exit) -> list[Group] | None:
        """Take a branch; returns the two groups where programs diverge, else None."""
        value = group.env[end.uses[0]]
        check_defined(value, "a branch")
        if value.loaded:
            self.context.ordered = True
            self.context.awaited |= end.spins
        truth = value.data.reshape(-1) != 0
        if truth.all() or not truth.any():
            group.block, moves = end.edges[0 if truth[0] else 1]
            _move(group.env, moves)
            return None
        spins = group.spins
        parts = [group.select(np.flatnonzero(truth)), group.select(np.flatnonzero(~truth))]
        for part, (target, moves) in zip(parts, end.edges, strict=True):
            _move(part.env, moves)
            part.block, part.step, part.spins = target, 0, spins
        return parts

    def _count_spin(self, group: Group, polls: bool = False) -> bool:
        """Count an iteration of a loop that may wait; returns whether the group waits now."""
        self.context.session.progress.turn(self.context.where)
        contexts.check_time()
        if group.changes != self.context.changes:
            group.changes, group.spins = self.context.changes, 0
        group.spins += 1
        patience = 1 if polls else self.patience
        if group.spins < patience:
            return False
        live = self.program.blocks[group.block].live
        now = (self.context.ticks, [group.env[slot] for slot in live])
        if group.spins == patience:
            group.before = now
            return False
        group.still = group.before is not None and _same_state(group.before, now)
        group.before = None
        self.waiting.append(group)
        return True


def run_block(block: BasicBlock, group: Group, context: Context) -> None:
    """Run a block's steps from the group's own on; where one raises, the group stays at it."""
    env = group.env
    METER.values += 1  # a store makes none
    for run, where, dead in block.steps[group.step :] if group.step else block.steps:
        context.where = where
        run(env)
        for slot in dead:
            env[slot] = None
        group.step += 1


def _same_state(x: tuple[int, list[Any]], y: tuple[int, list[Any]]) -> bool:
    """Whether two iterations saw the same clock and carried the same values."""
    return x[0] == y[0] and all(v is w or is_same(v, w) for v, w in zip(x[1], y[1], strict=True))


def _move(env: Env, moves: Moves) -> None:
    if len(moves) == 1:
        to, source = moves[0]
        env[to] = env[source]
    elif moves:
        values = [env[source] for _, source in moves]
        for (to, _), value in zip(moves, values, strict=True):
            env[to] = value


def merge_slots(values: list[Any], sizes: list[int], order: np.ndarray | None) -> Any:
    first = values[0]
    if all(v is first for v in values):
        return first
    join = merge if hasattr(first, "data") else first.merge
    return join(values, sizes, order)
