"""What a TTIR value is over symbols: integers, conditions, pointers, windows, and data.

A block's value is a term of its lanes: `lane(axis, size)` stands for the index along an axis, so
blocks that meet along an axis share its lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.reference.observation import Where
from gemmproof.reference.symbolic.definitions import LANE, lane
from gemmproof.reference.symbolic.terms import TRUE, Atom, Cond, Poly, flag, substitute, term

Shape = tuple[int, ...]
Step = tuple[Poly, Cond]


@dataclass(frozen=True, slots=True)
class Ints:
    """Integers: a term of the lanes, exact; the kernel's own have so many `bits`.

    `is_given`: an argument, whose type Triton chooses by its value.
    """

    term: Poly
    shape: Shape = ()
    bits: int = 32
    is_given: bool = False

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Ints:
        return replace(self, term=change(self.term), shape=shape)


@dataclass(frozen=True, slots=True)
class Bools:
    """Conditions on the lanes."""

    cond: Cond
    shape: Shape = ()

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Bools:
        return Bools(change(self.cond), shape)

    @property
    def number(self) -> Poly:
        return flag(self.cond)


@dataclass(frozen=True, slots=True)
class Pointers:
    """Pointers into a tensor: elements from its first one.

    `steps` are the terms in 32 bits that were added on the way, each with the condition under
    which it was: they must fit where the pointer is used.
    """

    tensor: Any
    term: Poly
    shape: Shape = ()
    steps: tuple[Step, ...] = ()

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Pointers:
        steps = tuple((change(step), change(cond)) for step, cond in self.steps)
        return replace(self, term=change(self.term), shape=shape, steps=steps)


@dataclass(frozen=True, slots=True)
class BlockWindow:
    """A block pointer or a descriptor: a parent's sizes and strides, and where its block begins.

    `starts` is empty for a descriptor, which is told them by each access. `fill`: whether a lane
    outside holds a defined number.
    """

    base: Pointers
    sizes: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    starts: tuple[Poly, ...]
    block: Shape
    fill: Data | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """Numbers that are no addresses, as what they were computed from.

    `kind`: "number" (`word` is its text), "load" (`access`), "dot" and "reduce" (the parts are
    contracted over `over`, a lane that no other value names), "sum" (the part is summed over the
    trips of a loop, `over`), "choice" (by `cond`), "hole" (what a loop carries), "undefined",
    "unknown", or the name of an operation on the parts.
    """

    kind: str
    shape: Shape = ()
    parts: tuple[Data, ...] = ()
    word: str = ""
    cond: Cond = TRUE
    access: Any = None
    over: Atom | None = None

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Data:
        parts = tuple(part.map(change, ()) for part in self.parts)
        access = None if self.access is None else self.access.map(change)
        return replace(self, shape=shape, parts=parts, cond=change(self.cond), access=access)


Value = Ints | Bools | Pointers | BlockWindow | Data


@dataclass(frozen=True, slots=True)
class Access:
    """A load, store or atomic of a block: which elements of which tensor, under which mask.

    `term` counts elements from the tensor's first; `mask` holds for the lanes that touch memory,
    `path` for the programs and trips that come there; `trips` are the loops around it. `other` is
    what a load gives where the mask is off, None where that is undefined; `value` what is stored.
    `word` names an atomic.
    """

    kind: str
    tensor: Any
    term: Poly
    mask: Cond
    path: Cond
    shape: Shape
    where: Where | None
    trips: tuple[Atom, ...] = ()
    steps: tuple[Step, ...] = ()
    other: Data | None = None
    value: Data | None = None
    word: str = ""
    launch: int = 0
    number: int = 0

    @property
    def place(self) -> tuple[Any, ...]:
        """Which elements, of which lanes: equal for accesses that differ in what they move."""
        own = (self.tensor.offset, self.tensor.owner_shape, self.tensor.owner_strides)
        return (self.term, self.mask, self.path, self.shape, self.trips, self.launch, *own)

    def map(self, change: Callable[[Any], Any]) -> Access:
        """The same for other lanes."""
        other = None if self.other is None else self.other.map(change, self.other.shape)
        return replace(
            self, term=change(self.term), mask=change(self.mask), path=change(self.path),
            steps=tuple((change(step), change(cond)) for step, cond in self.steps), other=other,
        )  # fmt: skip


def list_named(value: Data) -> Iterator[Poly | Cond]:
    """The terms and conditions that a number speaks of, those of its parts too."""
    yield value.cond
    if value.over is not None:
        yield term(value.over)
    if value.access is not None:
        yield from (value.access.term, value.access.mask, value.access.path)
    other = value.access.other if value.access is not None else None
    for part in value.parts if other is None else (*value.parts, other):
        yield from list_named(part)


def rebind(value: Data, swaps: Mapping[Atom, Poly]) -> Data:
    """A number of other programs, trips and lanes, those that its sums run over renamed too."""
    memo: dict[Any, Any] = {}
    access = value.access
    if access is not None:
        other = None if access.other is None else rebind(access.other, swaps)
        access = replace(access.map(lambda x: substitute(x, swaps, memo)), other=other)
    over = value.over
    if over is not None and over in swaps:
        over = swaps[over].atom
    parts = tuple(rebind(part, swaps) for part in value.parts)
    cond = substitute(value.cond, swaps, memo)
    return replace(value, parts=parts, cond=cond, access=access, over=over)


def swap_lanes(value: Any, swaps: Mapping[Atom, Poly], shape: Shape) -> Any:
    """A value with other terms for its lanes."""
    memo: dict[Any, Any] = {}
    return value.map(lambda x: substitute(x, swaps, memo), shape)


def permute(value: Any, order: tuple[int, ...]) -> Any:
    """A value with its axes in another order: the result's axis i was order[i]."""
    shape = tuple(value.shape[i] for i in order)
    swaps = {}
    for new, old in enumerate(order):
        atom = lane(old, value.shape[old]).atom
        if atom is not None:
            swaps[atom] = lane(new, shape[new])
    return swap_lanes(value, swaps, shape)


def insert_axis(value: Any, axis: int) -> Any:
    """A value with an axis of one lane at `axis`."""
    shape = (*value.shape[:axis], 1, *value.shape[axis:])
    swaps = {}
    for old, n in enumerate(value.shape):
        atom = lane(old, n).atom
        if old >= axis and atom is not None:
            swaps[atom] = lane(old + 1, n)
    return swap_lanes(value, swaps, shape)


def fresh_lane(number: int, size: int) -> Poly:
    """A lane that no block has: what a contraction runs over."""
    return term(Atom("symbol", LANE, f"k{number}", size, is_natural=True, most=size - 1))
