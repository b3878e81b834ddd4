"""All programs, trips and lanes of a launch at once: an array axis for each, and terms over them.

Lanes are the last axes, programs the one before them, and what is summed over stands in front.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemmproof.reference.symbolic.definitions import LANE
from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, evaluate, every, le, term, walk
from gemmproof.reference.work import METER

MOST_TRIPS = 512
MOST_LANES = 1 << 22  # of one array

Values = Mapping[Atom, Any]
Shape = tuple[int, ...]


class Unclear(Exception):
    """What a call does is not known from its formulas; the message says why."""


class Elsewhere(Exception):
    """A path is not taken with these sizes."""


@dataclass(slots=True)
class Lattice:
    """The values that atoms have within a block of `rank` axes, as arrays that broadcast.

    `axes` are the sizes of the array's axes from the last one; `when` says which of its places are
    there: a trip that a program does not run is not.
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
        """A term's or condition's values. Raises Unclear."""
        self._count(what)
        METER.trials += len(self.values)
        METER.trial_lanes += math.prod(self.axes)
        try:
            return evaluate(what, self.values, self.memo)
        except KeyError as atom:
            raise Unclear(f"{atom} has no value") from None

    def along(self, numbers: Any, position: int) -> Any:
        """One number for each place along an axis, counted from the last."""
        return np.asarray(numbers).reshape((-1,) + (1,) * position)

    def bind(self, atom: Atom, size: int, runs: Cond | None = None) -> Lattice:
        """The same with an axis in front for the values 0 to size - 1 of an atom."""
        axes = (*self.axes, size)
        if math.prod(axes) > MOST_LANES:
            raise Unclear("too many lanes")
        values = {**self.values, atom: self.along(np.arange(size), len(self.axes))}
        made = replace(self, values=values, axes=axes, memo={})
        if runs is not None:
            found = made.evaluate(runs)
            flat = (size,) + (1,) * len(self.axes)
            here = np.broadcast_to(found, np.broadcast_shapes(np.shape(found), flat))
            if np.any(here[1:] > here[:-1]):  # a loop ends with the first trip that does not run
                here = np.logical_and.accumulate(here, axis=0)
            made.when = np.logical_and(here, self.when)
        return made

    def select(self, which: np.ndarray, rank: int) -> Lattice:
        """The same for some of the programs, where blocks have so many axes."""

        def take(x: Any) -> Any:
            if np.ndim(x) <= rank or np.shape(x)[-1 - rank] == 1:
                return x
            return np.take(x, which, axis=-1 - rank)

        values = {atom: take(x) for atom, x in self.values.items()}
        axes = (*self.axes[:rank], len(which), *self.axes[rank + 1 :])
        return replace(self, values=values, axes=axes, when=take(self.when), memo={})

    def run_trips(self, trip: Atom) -> Lattice:
        """The same with an axis in front for every trip of a loop that some program runs."""
        runs = self.machine.known.get(trip)
        if runs is None:
            raise Unclear(f"{trip} of no known loop")
        size = 4
        while True:
            made = self.bind(trip, size, runs)
            if not np.any(made.when[-1]) or size > MOST_TRIPS:
                break
            size *= 4
        if size > MOST_TRIPS:
            raise Unclear("too many trips")
        ran = np.any(made.when, axis=tuple(range(1, made.when.ndim)))
        return self.bind(trip, max(1, int(ran.sum())), runs)

    def _count(self, what: Poly | Cond) -> None:
        """Give a value to the number of trips of each while loop that is spoken of."""
        counts = [x for x in walk(what) if x.kind == "symbol" and x.args[0] == "trips"]
        for count in reversed(counts):
            if count in self.values:
                continue
            if count not in self.machine.known:
                raise Unclear("a loop that is not known")
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
                raise Unclear("too many trips")


def make_lattice(machine: Machine, values: Values, programs: Any, shape: Shape) -> Lattice:
    """The lattice of a block of a launch's programs, given as three lists of coordinates."""
    made = Lattice(machine, dict(values), (*reversed(shape), len(programs[0])))
    if math.prod(made.axes) > MOST_LANES:
        raise Unclear("too many lanes")
    for pid, at in zip(machine.pids, programs, strict=True):
        if pid.atom is not None:
            made.values[pid.atom] = made.along(at, len(shape))
    for axis, n in enumerate(shape):
        if n > 1:
            index = made.along(np.arange(n), len(shape) - 1 - axis)
            made.values[Atom("symbol", LANE, axis, n, is_natural=True, most=n - 1)] = index
    return made


def run_loops(lattice: Lattice, trips: Iterable[Atom]) -> Lattice:
    """The lattice within loops, from the outermost."""
    for trip in trips:
        lattice = lattice.run_trips(trip)
    return lattice
