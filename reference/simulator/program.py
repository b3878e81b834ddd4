"""A flat program, from drafts of its blocks to numbered instructions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmproof.reference.simulation import BranchSides, Where
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.axis_analysis import Vectors, find_widened
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir import I1, I64, Dtype, Function, Op, Type

# -- program -------------------------------------------------------------------------------------
LONG, FEW = 64, 2  # turns of a loop of a sampled call: of more than LONG, FEW at each end run

# in the TTIR of a kernel that asserts facts to the compiler: conditions, and descriptors
CLAIMS = ("llvm.intr.assume", "tt.make_tensor_descriptor", "tt.tensordesc")

Env = list[Any]
Moves = tuple[tuple[int, int], ...]  # (to, from), simultaneous
Step = tuple[Callable[[Env], None], "Where | None", tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """The end of a block: `edges` out of it, each a block and the moves on the way there.

    `kind` is "jump"; "branch", each program by the condition in `uses`, the edge for true first; or
    "end", with a region's results in `uses`. `spins`: backwards, in a loop that may wait for other
    programs. `polls`: it only reads, so reading again is useless before memory changes. `repeats`:
    the edge for true begins a turn of a loop.
    """

    kind: str
    edges: tuple[tuple[Any, Moves], ...] = ()
    uses: tuple[int, ...] = ()
    where: Where | None = None
    spins: bool = False
    polls: bool = False
    repeats: bool = False


@dataclass(slots=True)
class BasicBlock:
    """Steps, the end of the block, and the slots that are alive at its start."""

    steps: list[Step]
    end: Exit
    live: tuple[int, ...] = ()


@dataclass(slots=True)
class Program:
    """A prepared kernel or region.

    `template` is an environment that holds the constants, `args` the slots of its arguments.
    `asks_place`: it reads its position in the grid, so that no two programs are alike.
    `may_contract`: a compiler may fuse a product and a sum of it. `hinted` are the functions of a
    kernel whose source has hints on values, and `vectors` the vectors that these grant, by
    specialisation.
    """

    blocks: list[BasicBlock]
    template: Env
    args: tuple[int, ...]
    arg_types: tuple[Type, ...]
    text: str = field(repr=False, default="")
    asks_place: bool = False
    may_contract: bool = False
    hinted: Mapping[str, Function] = field(default_factory=dict, repr=False)
    vectors: dict[Any, Mapping[str, Vectors]] = field(default_factory=dict, repr=False)

    @property
    def has_hints(self) -> bool:
        """True if a kernel has hints on values, assumptions, or tensor descriptors."""
        return bool(self.hinted) or any(name in self.text for name in CLAIMS)

    def find_widened(self, arguments: tuple[int, ...], warps: int) -> Mapping[str, Vectors]:
        """Return the vectors that accesses have only because of hints, by their TTIR."""
        if not self.hinted:
            return {}
        key = arguments, warps
        if key not in self.vectors:
            self.vectors[key] = find_widened(self.hinted, *key)
        return self.vectors[key]

    def list_sides(self, visited: Container[tuple[int, bool]]) -> BranchSides:
        """Return the sides of each line's branches that were visited: pairs of a block and a side.

        A condition that is a constant of this specialisation has no sides, a poll neither, and the
        end of a loop is no side of it.
        """
        sides: dict[Where, tuple[bool, bool, bool]] = {}
        for i, block in enumerate(self.blocks):
            end = block.end
            if end.kind != "branch" or end.polls or end.where is None:
                continue
            if self.template[end.uses[0]] is None:
                before = sides.get(end.where, (False, False, False))
                own = ((i, True) in visited, end.repeats or (i, False) in visited, end.repeats)
                first, second, third = (x or y for x, y in zip(before, own, strict=True))
                sides[end.where] = first, second, third
        return sides

    def enter(self, values: list[Any]) -> Env:
        """Return the initial environment for these arguments."""
        env = list(self.template)
        for slot, value in zip(self.args, values, strict=True):
            env[slot] = value
        return env


def start_count(low: Value, high: Value, step: Value, unsigned: bool) -> tuple[Value, ...]:
    """Return first index, step, turns in all and turns done of `for _ in range(low, high, step)`.

    They are int64 scalars. Raises KernelError for a step that is not positive if there are turns.
    """
    first, last, pace = (_scalars(x, unsigned) for x in (low, high, step))
    some = first < last
    if (some & (pace <= 0)).any():
        bad = int(np.where(some, pace, 1).min())
        raise session.kernel_error(f"range: got step {bad}, expected a positive one")
    turns = np.where(some, -((first - last) // np.where(pace == 0, 1, pace)), 0)
    return tuple(Value(x, I64) for x in (first, pace, turns, np.zeros(1, np.int64)))


def count_turn(
    dtype: Dtype, first: Value, step: Value, turns: Value, done: Value
) -> tuple[Value, Value, Value]:
    """Return whether there is another turn, its index, and the turns done after it."""
    wide = first.data + done.data * step.data
    data = wide.astype(dtype.numpy)
    index = Value(data, dtype, None, wide if (wide != data).any() else None)
    if len(data) > 1 and index.exact is None:
        index.span = int(wide.min()), int(wide.max())
    return Value(done.data < turns.data, I1), index, Value(done.data + 1, I64)


def leap(turns: Value, done: Value) -> tuple[Value, Value]:
    """Skip turns of a long loop, at its head: return the turns done then, and the turns skipped.

    The first FEW turns and the last FEW are run.
    """
    far = (done.data == FEW) & (turns.data > LONG)
    after = np.where(far, turns.data - FEW, done.data)
    return Value(after, I64), Value(after - done.data, I64)


def carry_over(steps: tuple[bool | None, ...], skipped: Value, *values: Value) -> Any:
    """Return the carried values of a loop after skipped turns; a single value without a tuple.

    `steps` is True for each carried value to which every turn adds a step, which then follows the
    carried ones in `values`; None if no turn changes it. Any other becomes unknown.
    """
    carried, added = values[: len(steps)], iter(values[len(steps) :])
    if skipped.data.any():
        carried = tuple(
            x if step is None else _carry(x, skipped.data, next(added) if step else None)
            for x, step in zip(carried, steps, strict=True)
        )
    return carried[0] if len(carried) == 1 else carried


def _carry(x: Value, count: np.ndarray, step: Value | None) -> Value:
    count = count.reshape(-1, *(1,) * (x.data.ndim - 1))
    if step is None:
        rows = max(len(x.data), len(count))
        data = np.broadcast_to(x.data, (rows, *x.data.shape[1:]))
        bits = np.where(count > 0, session.poison_bit("turns of a sampled call"), np.uint8(0))
        return Value(data, x.dtype, union(x.poison, np.broadcast_to(bits, data.shape)), base=x.base)
    wide = x.unbounded() + count * step.unbounded()
    data = wide.astype(x.dtype.numpy)
    exact = wide if (wide != data).any() else None
    return Value(data, x.dtype, union(x.poison, step.poison), exact)


def _scalars(x: Value, unsigned: bool) -> np.ndarray:
    data = x.data.reshape(len(x.data))
    if unsigned:
        data = data.view(f"u{data.dtype.itemsize}")
    return data.astype(np.int64)


# -- drafts of a program -------------------------------------------------------------------------
@dataclass(slots=True, eq=False)
class Instr:
    """An operation on slots: `compute` maps the values of `sources` to those of `results`."""

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
    """The operations computed on every path to here: (operation, operands) -> results."""

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
        """Return the slots of these values."""
        return tuple(self.slots[name] for name in names)

    def moves(self, names: Iterable[str], to: Iterable[int]) -> Moves:
        """Return the moves of these values to other slots."""
        return tuple(zip(to, self.find(names), strict=True))
