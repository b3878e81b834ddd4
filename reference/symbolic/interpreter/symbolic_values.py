"""Values of a symbolic program: integers, pointers, tiles, loop variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemmproof.reference.simulation import Where
from gemmproof.reference.symbolic.lemmas import LANE, lane
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    flag,
    le,
    lt,
    make,
    new_symbol,
    substitute,
    term,
)

if TYPE_CHECKING:
    from gemmproof.reference.symbolic.interpreter.interpret import Machine

# -- values --------------------------------------------------------------------------------------
Shape = tuple[int, ...]
Step = tuple[Poly, Cond]
# the number of a hint, and the condition that it is true of a lane
Hinted = tuple[Any, Cond]


def map_hints(hints: tuple[Hinted, ...], change: Callable[[Any], Any]) -> tuple[Hinted, ...]:
    """Return hints for other lanes."""
    return tuple((number, change(cond)) for number, cond in hints)


@dataclass(frozen=True, slots=True)
class Ints:
    """Integers: a term of the lanes, exact; the kernel's own have so many `bits`.

    `is_given`: an argument, whose type Triton chooses by its value. `hints` are those on the values
    that they are computed from.
    """

    term: Poly
    shape: Shape = ()
    bits: int = 32
    is_given: bool = False
    hints: tuple[Hinted, ...] = ()

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Ints:
        hints = map_hints(self.hints, change)
        return replace(self, term=change(self.term), shape=shape, hints=hints)


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

    `steps` are the terms in 32 bits that were added on the way, each with the condition under which
    this happened: they must fit where the pointer is used. `hints` are as those of integers.
    """

    tensor: Any
    term: Poly
    shape: Shape = ()
    steps: tuple[Step, ...] = ()
    hints: tuple[Hinted, ...] = ()

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Pointers:
        steps = tuple((change(step), change(cond)) for step, cond in self.steps)
        hints = map_hints(self.hints, change)
        return replace(self, term=change(self.term), shape=shape, steps=steps, hints=hints)


@dataclass(frozen=True, slots=True)
class BlockWindow:
    """A block pointer or a descriptor: a parent's sizes and strides, and where its block begins.

    `starts` is empty for a descriptor, which receives them from each access. `fill`: the number in
    a lane outside, if that is defined.
    """

    base: Pointers
    sizes: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    starts: tuple[Poly, ...]
    block: Shape
    fill: Data | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """Numbers that are no addresses, as the operations that compute them.

    `kind`: "number" (`word` is its text), "load" (`access`), "dot" and "reduce" (the parts are
    contracted over `over`, a lane that no other value names), "sum" (the part is summed over the
    trips of a loop, `over`), "choice" (by `cond`), "hole" (what a loop carries, in its lane
    `lanes`), "undefined", "unknown", or the name of an operation on the parts.
    """

    kind: str
    shape: Shape = ()
    parts: tuple[Data, ...] = ()
    word: str = ""
    cond: Cond = TRUE
    access: Any = None
    over: Atom | None = None
    lanes: tuple[Poly, ...] = ()

    def map(self, change: Callable[[Any], Any], shape: Shape) -> Data:
        parts = tuple(part.map(change, ()) for part in self.parts)
        access = None if self.access is None else self.access.map(change)
        cond, lanes = change(self.cond), tuple(map(change, self.lanes))
        return replace(self, shape=shape, parts=parts, cond=cond, access=access, lanes=lanes)


Value = Ints | Bools | Pointers | BlockWindow | Data


@dataclass(frozen=True, slots=True)
class SymbolicAccess:
    """A load, store or atomic of a block: which elements of which tensor, under which mask.

    `term` counts elements from the tensor's first; `mask` holds for the lanes that touch memory,
    `path` for the programs and trips that reach it; `trips` are the loops around it. `other` is
    what a load returns where the mask is off, or None if that is undefined; `value` is what is
    stored. `word` names an atomic; `hints` are those on values that the address is computed from.
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
    hints: tuple[Hinted, ...] = ()

    @property
    def footprint(self) -> tuple[Any, ...]:
        """The elements and lanes: equal for accesses that differ only in what they move."""
        own = (self.tensor.offset, self.tensor.owner_shape, self.tensor.owner_strides)
        return (self.term, self.mask, self.path, self.shape, self.trips, self.launch, *own)

    def map(self, change: Callable[[Any], Any]) -> SymbolicAccess:
        """Return the same for other lanes."""
        other = None if self.other is None else self.other.map(change, self.other.shape)
        return replace(
            self, term=change(self.term), mask=change(self.mask), path=change(self.path),
            steps=tuple((change(step), change(cond)) for step, cond in self.steps), other=other,
            hints=map_hints(self.hints, change),
        )  # fmt: skip


def list_named(value: Data) -> Iterator[Poly | Cond]:
    """Yield the terms and conditions that a number names, those of its parts too."""
    yield value.cond
    yield from value.lanes
    if value.over is not None:
        yield term(value.over)
    if value.access is not None:
        yield from (value.access.term, value.access.mask, value.access.path)
        yield from (cond for _, cond in value.access.hints)
    other = value.access.other if value.access is not None else None
    for part in value.parts if other is None else (*value.parts, other):
        yield from list_named(part)


def rebind(value: Data, swaps: Mapping[Atom, Poly]) -> Data:
    """Return a number for other programs, trips and lanes, also those that its sums run over."""
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
    lanes = tuple(substitute(x, swaps, memo) for x in value.lanes)
    return replace(value, parts=parts, cond=cond, access=access, over=over, lanes=lanes)


def swap_lanes(value: Any, swaps: Mapping[Atom, Poly], shape: Shape) -> Any:
    """Return a value with other terms for its lanes."""
    memo: dict[Any, Any] = {}
    return value.map(lambda x: substitute(x, swaps, memo), shape)


def permute(value: Any, order: tuple[int, ...]) -> Any:
    """Return a value with its axes in another order: the result's axis i was order[i]."""
    shape = tuple(value.shape[i] for i in order)
    swaps = {}
    for new, old in enumerate(order):
        atom = lane(old, value.shape[old]).atom
        if atom is not None:
            swaps[atom] = lane(new, shape[new])
    return swap_lanes(value, swaps, shape)


def insert_axis(value: Any, axis: int) -> Any:
    """Return a value with an axis of one lane at `axis`."""
    shape = (*value.shape[:axis], 1, *value.shape[axis:])
    swaps = {}
    for old, n in enumerate(value.shape):
        atom = lane(old, n).atom
        if old >= axis and atom is not None:
            swaps[atom] = lane(old + 1, n)
    return swap_lanes(value, swaps, shape)


def fresh_lane(number: int, size: int) -> Poly:
    """Return a lane that no block has, for a contraction to run over."""
    return term(Atom("symbol", LANE, f"k{number}", size, is_natural=True, most=size - 1))


# -- loop variables ------------------------------------------------------------------------------
def terms_of(value: Any) -> tuple[Poly, ...]:
    """Return the integers of a value that a loop may carry."""
    if isinstance(value, Ints | Pointers):
        return (value.term,)
    if isinstance(value, BlockWindow):
        return (value.base.term, *value.starts)
    if isinstance(value, Bools):
        return (value.number,)
    return ()


def fixed_of(value: Any) -> Any:
    """Return the parts of a value that a loop must not change: its tensor, a window's layout."""
    if isinstance(value, Pointers):
        return value.tensor
    if isinstance(value, BlockWindow):
        return (value.base.tensor, value.sizes, value.strides, value.block, value.fill)
    return None


class LoopVariable:
    """A carried value with a symbol for what earlier trips added to it."""

    def __init__(self, init: Any) -> None:
        self.init = init
        self.first = terms_of(init)
        self.symbols = [new_symbol("carried") for _ in self.first]
        self.atoms = [x.atom for x in self.symbols if x.atom is not None]
        if isinstance(init, Data):
            lanes = tuple(lane(i, n) for i, n in enumerate(init.shape))
            word = str(new_symbol("hole").named[0].number)
            self.value: Any = Data("hole", init.shape, word=word, lanes=lanes)
        elif isinstance(init, Bools):
            self.value = Bools(~_zero(init.number + self.symbols[0]), init.shape)
        else:
            self.value = self.fill(self.symbols)

    def fill(self, added: Sequence[Poly]) -> Any:
        """Return the value with these terms added to its first one."""
        if isinstance(self.init, Ints):  # only an argument that no trip changes remains one
            is_given = self.init.is_given and added[0] == term(0)
            return replace(self.init, term=self.init.term + added[0], is_given=is_given)
        if isinstance(self.init, Pointers):
            return replace(self.init, term=self.init.term + added[0])
        if isinstance(self.init, BlockWindow):
            base = replace(self.init.base, term=self.init.base.term + added[0])
            starts = (x + y for x, y in zip(self.init.starts, added[1:], strict=True))
            return replace(self.init, base=base, starts=tuple(starts))
        return Bools(~_zero(self.init.number + added[0]), self.init.shape)

    def unknown(self, machine: Machine) -> Any:
        """Return the value if nothing is known of what the trips add."""
        if isinstance(self.init, Data):
            return self.value
        shape = () if isinstance(self.init, BlockWindow) else self.init.shape
        why = "a value that a loop carries"
        return self.fill([machine.unknown(why, shape) for _ in self.first])


def _zero(number: Poly) -> Cond:
    return eq(number, 0)


# -- integers ------------------------------------------------------------------------------------
_RING: dict[str, Callable[[Poly, Poly], Poly]] = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
}
_OTHERS = {
    "arith.divsi": "div",
    "arith.remsi": "rem",
    "arith.minsi": "min",
    "arith.maxsi": "max",
    "arith.floordivsi": "floordiv",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    "arith.shrsi": "shr",
}
# unsigned: the same if nothing is negative
_UNSIGNED = {
    "arith.divui": "div",
    "arith.remui": "rem",
    "arith.minui": "min",
    "arith.maxui": "max",
    "arith.shrui": "shr",
}
ARITHMETIC = (*_RING, *_OTHERS, *_UNSIGNED, "arith.shli")


def is_ring(name: str) -> bool:
    """Return whether an operation is exact modulo a power of two, so that overflow is harmless."""
    return name in _RING or name == "arith.shli"


def compute(name: str, x: Poly, y: Poly) -> Poly | None:
    """Return an operation on two exact integers, or None if no term expresses it."""
    if name in _RING:
        return _RING[name](x, y)
    if name == "arith.shli":
        n = y.constant
        return x * (1 << n) if n is not None and 0 <= n < 64 else None
    if name in _UNSIGNED:
        if x.is_natural and y.is_natural:
            return make(_UNSIGNED[name], x, y)
        return None
    return make(_OTHERS[name], x, y)


def compare(predicate: str, x: Poly, y: Poly) -> Cond | None:
    """Return a comparison of two exact integers, or None if no condition expresses it."""
    if predicate.startswith("u"):
        if not y.is_natural:
            return None
        signed = compare(f"s{predicate[1:]}", x, y)
        if x.is_natural or signed is None:
            return signed
        # a negative number is larger than any other
        inside = le(term(0), x)
        return every((inside, signed)) if predicate in ("ult", "ule") else ~inside | signed
    table: dict[str, Callable[[], Cond]] = {
        "eq": lambda: eq(x, y),
        "ne": lambda: ~eq(x, y),
        "slt": lambda: lt(x, y),
        "sle": lambda: le(x, y),
        "sgt": lambda: lt(y, x),
        "sge": lambda: le(y, x),
    }
    return table[predicate]()
