"""A launch at given sizes: its iteration space, its numbers, its memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemmproof.reference.formats import FORMATS
from gemmproof.reference.symbolic.interpreter.interpret import Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import Data, SymbolicAccess
from gemmproof.reference.symbolic.lemmas import LANE
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, evaluate, every, le, term, walk
from gemmproof.reference.ttir import DTYPES
from gemmproof.reference.work import METER

# -- iteration space -----------------------------------------------------------------------------
MOST_TRIPS = 512
MOST_LANES = 1 << 22  # of one array

Values = Mapping[Atom, Any]
Shape = tuple[int, ...]


class Undetermined(Exception):
    """An effect of a call that its formulas do not determine; the message says why."""


class OtherPath(Exception):
    """The path is not taken with these sizes."""


@dataclass(slots=True)
class IterationSpace:
    """The values that atoms have within a block of `rank` axes, as arrays that broadcast.

    `axes` are the sizes of the array's axes from the last one; `when` marks the elements that
    exist: a trip that a program does not run does not.
    """

    machine: Machine
    values: dict[Atom, Any]
    axes: tuple[int, ...]
    when: Any = True
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        return self.axes[::-1]

    def evaluate(self, what: Poly | Cond) -> Any:
        """Return the values of a term or condition. Raises Undetermined."""
        self._count(what)
        METER.trials += len(self.values)
        METER.trial_lanes += math.prod(self.axes)
        try:
            if not _is_wide(what):
                return evaluate(what, self.values, self.memo)
            # 64 bits do not hold all of its numbers
            exact = evaluate(what, {x: np.asarray(n, object) for x, n in self.values.items()})
            return np.asarray(exact, np.bool_ if isinstance(what, Cond) else np.int64)
        except OverflowError:
            raise Undetermined("an offset of more than 64 bits") from None
        except KeyError as atom:
            raise Undetermined(f"{atom} has no value") from None

    def along(self, numbers: Any, position: int) -> Any:
        """Return one number for each index along an axis, counted from the last."""
        return np.asarray(numbers).reshape((-1,) + (1,) * position)

    def bind(self, atom: Atom, size: int, runs: Cond | None = None) -> IterationSpace:
        """Return the same with a leading axis for the values 0 to size - 1 of an atom."""
        axes = (*self.axes, size)
        if math.prod(axes) > MOST_LANES:
            raise Undetermined("too many lanes")
        values = {**self.values, atom: self.along(np.arange(size), len(self.axes))}
        space = replace(self, values=values, axes=axes, memo={})
        if runs is not None:
            active = space.evaluate(runs)
            flat = (size,) + (1,) * len(self.axes)
            here = np.broadcast_to(active, np.broadcast_shapes(np.shape(active), flat))
            if np.any(here[1:] > here[:-1]):  # a loop ends with the first trip that does not run
                here = np.logical_and.accumulate(here, axis=0)
            space.when = np.logical_and(here, self.when)
        return space

    def select(self, which: np.ndarray, rank: int) -> IterationSpace:
        """Return the same for some of the programs, if blocks have so many axes."""

        def take(x: Any) -> Any:
            if np.ndim(x) <= rank or np.shape(x)[-1 - rank] == 1:
                return x
            return np.take(x, which, axis=-1 - rank)

        values = {atom: take(x) for atom, x in self.values.items()}
        axes = (*self.axes[:rank], len(which), *self.axes[rank + 1 :])
        return replace(self, values=values, axes=axes, when=take(self.when), memo={})

    def run_trips(self, trip: Atom) -> IterationSpace:
        """Return the same with a leading axis for every trip of a loop that some program runs."""
        runs = self.machine.known.get(trip)
        if runs is None:
            raise Undetermined(f"{trip} of no known loop")
        size = 4
        while np.any((space := self.bind(trip, size, runs)).when[-1]):
            if size == MOST_TRIPS:
                raise Undetermined("too many trips")
            size = min(4 * size, MOST_TRIPS)
        ran = np.any(space.when, axis=tuple(range(1, space.when.ndim)))
        return self.bind(trip, max(1, int(ran.sum())), runs)

    def _count(self, what: Poly | Cond) -> None:
        """Compute the number of trips of each while loop that a term or condition names."""
        counts = [x for x in walk(what) if x.kind == "symbol" and x.args[0] == "trips"]
        for count in reversed(counts):
            if count in self.values:
                continue
            if count not in self.machine.known:
                raise Undetermined("a loop that is not known")
            others = (x for x in walk(self.machine.known[count]) if x is not count)
            self._count(every(le(0, term(x)) for x in others if x.args[0] == "trips"))
            for n in range(MOST_TRIPS):
                ends = self.bind(count, n + 1).evaluate(self.machine.known[count])
                ends = np.broadcast_to(ends, (n + 1, *self.shape))
                if np.all(np.any(ends, axis=0) | ~np.broadcast_to(self.when, self.shape)):
                    self.values[count] = np.argmax(ends, axis=0)
                    self.memo.clear()
                    break
            else:
                raise Undetermined("too many trips")


WIDE = 2**32


def _is_wide(what: Poly | Cond) -> bool:
    """Return whether a term or condition names numbers whose products may leave 64 bits."""
    waiting: list[Any] = [what]
    while waiting:
        x = waiting.pop()
        if isinstance(x, Poly):
            if any(abs(c) >= WIDE for c in x.terms.values()):
                return True
            waiting += [part for atom in x.named if not atom.is_leaf for part in atom.args]
        elif isinstance(x, Cond):
            waiting += x.parts if x.term is None else [x.term]
    return False


def make_lattice(machine: Machine, values: Values, programs: Any, shape: Shape) -> IterationSpace:
    """Return the lattice of a block of a launch's programs, given as three lists of coordinates."""
    lattice = IterationSpace(machine, dict(values), (*reversed(shape), len(programs[0])))
    if math.prod(lattice.axes) > MOST_LANES:
        raise Undetermined("too many lanes")
    for pid, at in zip(machine.pids, programs, strict=True):
        if pid.atom is not None:
            lattice.values[pid.atom] = lattice.along(at, len(shape))
    for axis, n in enumerate(shape):
        if n > 1:
            index = lattice.along(np.arange(n), len(shape) - 1 - axis)
            lattice.values[Atom("symbol", LANE, axis, n, is_natural=True, most=n - 1)] = index
    return lattice


def run_loops(lattice: IterationSpace, trips: Iterable[Atom]) -> IterationSpace:
    """Return the lattice within loops, from the outermost."""
    for trip in trips:
        lattice = lattice.run_trips(trip)
    return lattice


# -- numbers -------------------------------------------------------------------------------------
# the numbers that an access reads at elements of its tensor, and whether they are undefined
Read = Callable[[SymbolicAccess, np.ndarray], tuple[np.ndarray, np.ndarray]]
Number = tuple[Any, Any]

_SUMS = ("add", "arith.addi", "arith.addf")
_PRODUCTS = ("mul", "arith.muli", "arith.mulf", "dot")
_COMPUTED: dict[str, Callable[..., Any]] = {
    "arith.subf": np.subtract,
    "arith.subi": np.subtract,
    "arith.maximumf": np.maximum,
    "arith.maxnumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.minnumf": np.minimum,
    "arith.extsi": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Computes the values of data within a lattice; `read` returns the contents of memory."""

    read: Read

    def of(self, data: Data, lattice: IterationSpace) -> Number:
        """Return numbers, and whether each depends on an undefined lane. Raises Undetermined."""
        match data.kind:
            case "number":
                return _parse(data.word), False
            case "load":
                return self._load(data.access, lattice)
            case "cast":
                x, bad = self.of(data.parts[0], lattice)
                return keep(x, data.word), bad
            case "choice":
                cond = lattice.evaluate(data.cond)
                (x, bad_x), (y, bad_y) = (self.of(part, lattice) for part in data.parts)
                return np.where(cond, x, y), np.where(cond, bad_x, bad_y)
            case "sum":
                assert data.over is not None
                inner = lattice.run_trips(data.over)
                return self._sum(inner, *self.of(data.parts[0], inner))
            case "reduce" | "dot" if data.over is not None:
                inner = lattice.bind(data.over, data.over.args[2])
                parts = [self.of(part, inner) for part in data.parts]
                return self._sum(inner, *_join(np.multiply, parts))
            case kind if kind in _SUMS:
                return _join(np.add, [self.of(part, lattice) for part in data.parts])
            case kind if kind in _PRODUCTS:
                return _join(np.multiply, [self.of(part, lattice) for part in data.parts])
            case kind if kind in _COMPUTED:
                return _join(_COMPUTED[kind], [self.of(part, lattice) for part in data.parts])
            case "undefined":
                return 0.0, True
        raise Undetermined(f"{data.kind} of numbers")

    def _load(self, access: SymbolicAccess, lattice: IterationSpace) -> Number:
        here = lattice.evaluate(access.path) & lattice.evaluate(access.mask) & lattice.when
        at = np.where(here, lattice.evaluate(access.term), -1)
        x, bad = self.read(access, at)
        other: Number = (0.0, True) if access.other is None else self.of(access.other, lattice)
        return np.where(here, x, other[0]), np.where(here, bad, other[1])

    def _sum(self, inner: IterationSpace, x: Any, bad: Any) -> Number:
        """Return the sum over the front axis of a lattice, of the elements that exist."""
        x, bad, when = (
            np.broadcast_to(part, _shape(inner, x, bad)) for part in (x, bad, inner.when)
        )
        return np.where(when, x, 0).sum(axis=0), (bad & when).any(axis=0)


def _shape(inner: IterationSpace, *parts: Any) -> tuple[int, ...]:
    """Return the shape of a sum's parts, 1 along axes that none of them has, except the front."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in (*parts, inner.when)))
    missing = len(inner.axes) - len(shape)
    return (inner.axes[-1], *((1,) * missing + shape)[1:])


def _join(compute: Callable[..., Any], parts: Sequence[Number]) -> Number:
    bad: Any = False
    for _, part_bad in parts:
        bad = np.logical_or(bad, part_bad)
    if len(parts) == 1 and compute in (np.add, np.multiply):
        return parts[0][0], bad
    return compute(*(x for x, _ in parts)), bad


def _parse(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise Undetermined(f"the number {word}") from None


def keep(x: Any, name: str) -> Any:
    """Return numbers that a type holds exactly. Raises Undetermined if it may not."""
    kind = DTYPES.get(name)
    fmt = FORMATS.get(kind.format) if kind is not None else None
    if kind is None or fmt is None:
        raise Undetermined(f"a cast to {name}")
    exact = np.isnan(x)
    if kind.is_float:
        exact |= (np.abs(x) <= min(2.0**fmt.p, fmt.max)) & (x == np.floor(x))
    else:
        exact |= np.abs(x) < 2 ** (kind.bits - 1)
    if not np.all(exact):
        raise Undetermined(f"numbers that {name} does not hold")
    return x


# -- memory --------------------------------------------------------------------------------------
MOST_ELEMENTS = 1 << 22
Count = Callable[[Poly], int]


@dataclass(slots=True)
class Buffer:
    """A memory's elements from its first: numbers, which are not stored, which are undefined.

    `unclear`: the reason why its numbers are not known, or "" if they are.
    """

    data: np.ndarray
    empty: np.ndarray
    bad: np.ndarray
    unclear: str = ""


def make_buffer(span: int, defined: bool) -> Buffer:
    """Return a memory of so many elements. Raises Undetermined if it is too large."""
    if span > MOST_ELEMENTS:
        raise Undetermined("a memory of too many elements")
    return Buffer(np.zeros(span), np.full(span, not defined), np.full(span, not defined))


def element_offsets(view: Any, count: Count, own: bool = False) -> np.ndarray:
    """Return the offsets of a view's elements from its memory's first, or those of its memory."""
    shape = view.owner_shape if own else view.shape
    strides = view.owner_strides if own else view.strides
    sides = tuple(map(count, shape))
    if np.prod(sides, dtype=np.float64) > MOST_ELEMENTS:
        raise Undetermined("a view of too many elements")
    total: Any = np.zeros(sides, np.int64) + (0 if own else count(view.offset))
    for axis, (n, step) in enumerate(zip(sides, map(count, strides), strict=True)):
        total = total + (np.arange(n) * step).reshape((-1,) + (1,) * (len(sides) - axis - 1))
    return np.asarray(total)


def measure(memory: Any, count: Count) -> int:
    """Return the distance from a memory's first element to one past its last."""
    shape, strides = (tuple(map(count, x)) for x in (memory.shape, memory.strides))
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


# -- stores --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Store:
    access: SymbolicAccess
    lattice: IterationSpace
    here: np.ndarray
    at: np.ndarray

    @property
    def programs(self) -> np.ndarray:
        """The program of each element that touches memory."""
        axis = self.here.ndim - 1 - len(self.access.shape)
        return np.broadcast_to(self._count(axis, 1), self.here.shape)[self.here]

    @property
    def trips(self) -> np.ndarray:
        """The trip of each element that touches memory."""
        axis = self.here.ndim - 1 - len(self.access.shape)
        return np.broadcast_to(self._count(0, axis), self.here.shape)[self.here]

    def _count(self, first: int, many: int) -> np.ndarray:
        shape = self.here.shape
        own = shape[first : first + many]
        numbers = np.arange(int(np.prod(own, dtype=np.int64)))
        return numbers.reshape((1,) * first + own + (1,) * (len(shape) - first - many))


@dataclass(slots=True)
class Stores:
    """The stores and atomics of a launch, in the order of the source."""

    entries: list[_Store] = field(default_factory=list)

    def add(
        self, access: SymbolicAccess, lattice: IterationSpace, here: np.ndarray, at: np.ndarray
    ) -> None:
        self.entries.append(_Store(access, lattice, here, at))

    @property
    def accesses(self) -> list[SymbolicAccess]:
        return [x.access for x in self.entries]

    def find_twice(self, storage: int, among: np.ndarray | None) -> SymbolicAccess | None:
        """Return a store of an element that another program or lane stores too, or None."""
        if among is None:
            return None
        pairs = np.zeros(0, np.int64)
        most = max(int(x.lattice.shape[-1 - len(x.access.shape)]) for x in self.entries)
        for store in self.entries:
            if store.access.tensor.storage != storage or store.access.kind != "store":
                continue
            own = np.isin(store.at[store.here], among)
            at, programs, trips = store.at[store.here][own], store.programs[own], store.trips[own]
            keys = at * most + programs
            if len(np.unique(keys * (int(trips.max(initial=0)) + 1) + trips)) < at.size:
                return store.access
            pairs = np.union1d(pairs, keys)
            if len(np.unique(pairs // most)) < pairs.size:
                return store.access
        return None

    def write(
        self, find: Callable[[Any], Buffer], numbers: Numbers
    ) -> Iterator[tuple[SymbolicAccess, Undetermined]]:
        """Write the stored values to the buffers; yield the accesses whose values are not known."""
        stored: dict[int, np.ndarray] = {}
        for store in self.entries:
            access, at = store.access, store.at[store.here]
            buffer = find(access.tensor)
            try:
                x, bad = self._compute(store, numbers)
                if access.kind == "store":
                    before = stored.get(access.tensor.storage, at[:0])
                    if np.isin(at, before).any():
                        raise Undetermined("elements that two lines store")
                    stored[access.tensor.storage] = np.concatenate([before, at])
                    buffer.data[at], buffer.bad[at] = x, bad
                elif access.word in ("add", "fadd"):
                    np.add.at(buffer.data, at, x)
                    np.logical_or.at(buffer.bad, at, bad)
                else:
                    raise Undetermined(f"atomic {access.word}")
            except Undetermined as error:
                buffer.unclear = buffer.unclear or str(error)
                yield access, error
            if access.kind == "store":
                buffer.empty[at] = False

    @staticmethod
    def _compute(store: _Store, numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
        assert store.access.value is not None
        rank = len(store.access.shape)
        axis = store.here.ndim - 1 - rank
        storing = np.flatnonzero(
            store.here.any(axis=(*range(axis), *range(axis + 1, store.here.ndim)))
        )
        here = np.take(store.here, storing, axis=axis)
        x, bad = numbers.of(store.access.value, store.lattice.select(storing, rank))
        x, bad = (np.broadcast_to(part, here.shape)[here] for part in (x, bad))
        return x, bad
