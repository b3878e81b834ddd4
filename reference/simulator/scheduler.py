"""Programs of a grid run in lockstep, all of them or a sample."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gemmproof.reference.provenance import calling_line, reserve
from gemmproof.reference.simulation import Exhausted, LimitExceeded, SimulatorError, Unsupported
from gemmproof.reference.simulator import session as contexts
from gemmproof.reference.simulator.access_checks import check_defined
from gemmproof.reference.simulator.memory import view_of
from gemmproof.reference.simulator.program import BasicBlock, Env, Exit, Moves, Program
from gemmproof.reference.simulator.session import Context, Enough, Session, TooWide
from gemmproof.reference.simulator.value import is_same, merge
from gemmproof.reference.work import METER

# -- sampled programs ----------------------------------------------------------------------------
LARGE = 2**24  # elements; a tensor of more is address space
KINDS = ("out_of_bounds", "wrapped_offset")  # of events that a single program shows
MOST_PROGRAMS = 24  # of a launch, if it has more
_READERS = ("cpu", "tolist", "numpy", "__array__", "__dlpack__")  # torch hides their reads


def pick_programs(grid: tuple[int, int, int]) -> np.ndarray:
    """Pick the linear ids of programs to run: the ends of every axis, the last, some between.

    Wherever a scheduler puts the far end of c, one of them works there or near it.
    """
    x, y, z = grid
    total = x * y * z
    if total <= MOST_PROGRAMS:
        return np.arange(total)
    ends = [(k * y + j) * x + i for k in {0, z - 1} for j in {0, y - 1} for i in {0, x - 1}]
    last = range(total - 4, total)
    between = np.linspace(0, total - 1, MOST_PROGRAMS - 12).astype(np.int64)
    return np.unique(np.concatenate([ends, last, between]))


class HostReads(TorchFunctionMode):
    """Ends a sampled call when the wrapper reads what launches may have written."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.session.partial and getattr(func, "__name__", "") in _READERS:
            raise Enough
        return func(*args, **(kwargs or {}))


def perform(session: Session, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a torch operator in a sampled call: large tensors have a shape and no elements.

    Raises Enough for a number, or for a shape, that depends on elements, and for a large result
    whose shape is not known here. (torch's own functions of shapes take seconds to load.)
    """
    schema = func._schema
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    large = any(x.numel() > LARGE for x in tensors)
    if schema.is_mutable:
        if not large:
            return func(*args, **kwargs)
        session.partial = True
        return _written(schema, args, kwargs)
    if any(r.alias_info for r in schema.returns):
        return func(*args, **kwargs)  # a view
    if (large or session.partial) and _DEPENDS & set(func.tags):
        raise Enough
    if large or _bound_result(schema.name, args, tensors) > LARGE:
        session.partial |= large
        return _shape_result(schema.name, func, args, kwargs)
    return func(*args, **kwargs)


_DEPENDS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_MADE = ("empty", "empty_strided", "zeros", "ones", "full")
_ALIKE = ("clone", "_to_copy", *(f"{name}_like" for name in ("empty", "zeros", "ones", "full")))
_NEW = tuple(f"new_{name}" for name in _MADE)
_KEPT = (None, torch.preserve_format)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


def _written(schema: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operator that writes to a large tensor: that tensor, unchanged."""
    named = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    targets = (a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write)
    written = tuple(named[name] for name in targets)
    return written[0] if len(schema.returns) == 1 else written if schema.returns else None


def _bound_result(name: str, args: Any, tensors: list[torch.Tensor]) -> int:
    """Return a limit on the number of elements of a result, from sizes among the arguments."""
    most = max((x.numel() for x in tensors), default=1)
    if name.removeprefix("aten::") in _PRODUCTS:
        *_, a, b = tensors
        return math.prod(a.shape[:-1]) * b.shape[-1]
    with suppress(ValueError):
        most = max(most, math.prod(np.broadcast_shapes(*(x.shape for x in tensors))))
    for x in args:
        if isinstance(x, list | tuple) and x and all(isinstance(n, int) for n in x):
            count = math.prod(max(abs(n), 1) for n in x)
        elif isinstance(x, int | float) and (not tensors or "repeat" in name):
            count = int(abs(x))
        else:
            continue
        most = most * count if "repeat" in name else max(most, count)
    return most


def _shape_result(name: str, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """Return a large result of torch: a new tensor, a copy, or sums along axes."""
    name = name.removeprefix("aten::")
    if name in _MADE:
        return _reserve(func(*args, **{**kwargs, "device": "meta"}))
    if name not in (*_ALIKE, *_NEW, "sum"):
        raise Enough
    x, dtype = args[0], kwargs.get("dtype") or args[0].dtype
    shape = list(x.shape)
    if name in _NEW:
        shape = args[1]
    elif name == "sum":
        keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        axes = {n % x.dim() for n in args[1]} if len(args) > 1 and args[1] else range(x.dim())
        shape = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    elif kwargs.get("memory_format") in _KEPT and view_of(x).span == x.numel():
        return _reserve(torch.empty_strided(shape, x.stride(), dtype=dtype, device="meta"))
    return _reserve(torch.empty(shape, dtype=dtype, device="meta"))


def _reserve(shape: torch.Tensor) -> torch.Tensor:
    """Return a tensor of this shape in newly reserved memory, of which nothing is committed."""
    nbytes = max(shape.untyped_storage().nbytes(), shape.element_size())
    try:
        memory = reserve(nbytes)
    except (OSError, OverflowError):
        reason = f"this machine cannot reserve {nbytes:,} bytes of addresses"
        raise Exhausted(reason, calling_line()) from None
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(shape.dtype)
    return torch.as_strided(flat, shape.shape, shape.stride())


# -- scheduler -----------------------------------------------------------------------------------
MOST_WIDTH = 1 << 16  # programs of a group

# Iterations of a loop that a group may take, while memory does not change, before it yields: only
# retrying with more distinguishes a long loop from one that waits for another program.
FIRST_PATIENCE = 64
MOST_PATIENCE = FIRST_PATIENCE * 8**5


@dataclass(slots=True, eq=False)
class Group:
    """Programs (linear ids, ascending) at one position: block, step in it, and their values."""

    programs: np.ndarray
    env: Env
    block: int = 0
    step: int = 0
    spins: int = 0
    changes: int = 0
    before: tuple[int, list[Any]] | None = None  # the last iteration but one of a loop that waits
    still: bool = False  # the last iteration changed nothing: only other programs can end it

    def select(self, rows: np.ndarray) -> Group:
        """Return some of the programs, at the same position."""
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

        Raises LimitExceeded if nothing else can change what they wait for.
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
        """Return the group that is furthest behind, joined by those at the same position."""
        if len(self.ready) == 1:
            return self.ready.pop()
        position = min((g.block, g.step) for g in self.ready)
        selected, rest, width = [], [], 0
        for group in self.ready:
            fits = width == 0 or width + len(group.programs) <= self.limit
            if (group.block, group.step) == position and fits and (width == 0 or not group.step):
                selected.append(group)
                width += len(group.programs)
            else:
                rest.append(group)
        self.ready = rest
        return selected[0] if len(selected) == 1 else self._join(selected)

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
        """Take a branch; return the two groups if programs diverge, else None."""
        value = group.env[end.uses[0]]
        check_defined(value, "a branch")
        if value.loaded:
            self.context.ordered = True
            self.context.awaited |= end.spins
            if end.spins and end.repeats and self.owners is None:
                # the turns of a loop that waits are the schedule's
                self.context.sides.add((group.block, True))
        truth = value.data.reshape(-1) != 0
        if truth.all() or not truth.any():
            if self.owners is None:
                self.context.sides.add((group.block, bool(truth[0])))
            group.block, moves = end.edges[0 if truth[0] else 1]
            _move(group.env, moves)
            return None
        if self.owners is None:  # not of a region's lanes
            self.context.sides |= {(group.block, True), (group.block, False)}
        spins = group.spins
        parts = [group.select(np.flatnonzero(truth)), group.select(np.flatnonzero(~truth))]
        for part, (target, moves) in zip(parts, end.edges, strict=True):
            _move(part.env, moves)
            part.block, part.step, part.spins = target, 0, spins
        return parts

    def _count_spin(self, group: Group, polls: bool = False) -> bool:
        """Count an iteration of a loop that may wait; return whether the group waits now."""
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
    """Run a block's steps from the group's own on; if one raises, the group stays at it."""
    env = group.env
    METER.values += 1  # a store creates none
    for run, where, dead in block.steps[group.step :] if group.step else block.steps:
        context.where = where
        run(env)
        for slot in dead:
            env[slot] = None
        group.step += 1


def _same_state(x: tuple[int, list[Any]], y: tuple[int, list[Any]]) -> bool:
    """Return whether two iterations saw the same clock and carried the same values."""
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


# -- grids ---------------------------------------------------------------------------------------
# The first group is narrow, to see how large the kernel's values are; then groups grow.
FIRST_WIDTH = 256


def run_grid(program: Program, context: Context, args: list[Any]) -> None:
    """Run a kernel for every program of the context's grid, x fastest, in ascending order.

    In a sampled call only some run. Raises Unsupported, LimitExceeded for a kernel that never ends,
    Exhausted if time or memory ran out.
    """
    x, y, z = context.grid
    chosen = pick_programs(context.grid) if context.session.sampled else None
    total, begin, width = x * y * z if chosen is None else len(chosen), 0, FIRST_WIDTH
    scheduler = Scheduler(program, context)
    before = contexts.enter(context)
    try:
        with np.errstate(all="ignore"):
            while begin < total or scheduler.waiting:
                if begin >= total:
                    scheduler.wake()
                    continue
                name = f"{context.kernel}, at program {begin:,} of {total:,},"
                context.session.progress.check(name, None)
                end = min(total, begin + min(width, scheduler.limit))
                METER.programs += end - begin
                programs = np.arange(begin, end, dtype=np.int64)
                programs = programs if chosen is None else chosen[programs]
                scheduler.run(Group(programs, program.enter(args)))
                scheduler.done.clear()
                begin, width = end, min(2 * width, MOST_WIDTH)
    except SimulatorError:
        raise
    except MemoryError:
        reason = "this machine has no memory left to simulate this line"
        raise Exhausted(f"{context.kernel}: {reason}", context.where) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise Unsupported(
            f"the tile simulator failed here, please report it: {reason[:300]}", context.where
        ) from error
    finally:
        contexts.enter(before)
    # if programs wait or use atomics, a branch on loaded data may order them; that is not proved
    if context.ordered and (context.awaited or context.atomics):
        context.violations = [s for s in context.violations if s.kind != "race"]


def run_region(program: Program, values: list[Any], rows: int, lanes: int) -> list[Any]:
    """Run a region over `lanes` lanes at once, each as a separate program.

    They are those of `rows` programs in turn, or of every program if that is 1.
    """
    context = contexts.current()
    programs, where, seen = context.programs, context.where, len(context.violations)
    owners = np.repeat(programs[:rows], lanes // rows)
    scheduler = Scheduler(program, context, owners)
    scheduler.limit = lanes
    try:
        scheduler.run(Group(np.arange(lanes, dtype=np.int64), program.enter(values)))
        while scheduler.waiting:
            scheduler.wake()
    finally:
        context.programs, context.where = programs, where
    if rows == 1:
        for violation in context.violations[seen:]:
            violation.programs = programs
    groups = scheduler.done
    sizes = [len(g.programs) for g in groups]
    order = np.argsort(np.concatenate([g.programs for g in groups]))
    end = program.blocks[groups[0].block].end
    return [merge_slots([g.env[s] for g in groups], sizes, order) for s in end.uses]
