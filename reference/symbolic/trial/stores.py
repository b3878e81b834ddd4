"""All that a launch stores: which elements twice, and the numbers that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.trial.lattice import Lattice, Unclear
from gemmproof.reference.symbolic.trial.memory import Buffer
from gemmproof.reference.symbolic.trial.numbers import Numbers


@dataclass(frozen=True, slots=True)
class _Store:
    access: Access
    lattice: Lattice
    here: np.ndarray
    at: np.ndarray

    @property
    def programs(self) -> np.ndarray:
        """The program of each place that touches memory."""
        axis = self.here.ndim - 1 - len(self.access.shape)
        return np.broadcast_to(self._count(axis, 1), self.here.shape)[self.here]

    @property
    def trips(self) -> np.ndarray:
        """The trip of each place that touches memory."""
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

    found: list[_Store] = field(default_factory=list)

    def add(self, access: Access, lattice: Lattice, here: np.ndarray, at: np.ndarray) -> None:
        self.found.append(_Store(access, lattice, here, at))

    @property
    def accesses(self) -> list[Access]:
        return [x.access for x in self.found]

    def find_twice(self, storage: int, among: np.ndarray | None) -> Access | None:
        """A store of an element that another program, or another lane, stores as well."""
        if among is None:
            return None
        pairs = np.zeros(0, np.int64)
        most = max(int(x.lattice.shape[-1 - len(x.access.shape)]) for x in self.found)
        for one in self.found:
            if one.access.tensor.storage != storage or one.access.kind != "store":
                continue
            own = np.isin(one.at[one.here], among)
            at, programs, trips = one.at[one.here][own], one.programs[own], one.trips[own]
            mine = at * most + programs
            if len(np.unique(mine * (int(trips.max(initial=0)) + 1) + trips)) < at.size:
                return one.access
            pairs = np.union1d(pairs, mine)
            if len(np.unique(pairs // most)) < pairs.size:
                return one.access
        return None

    def write(
        self, find: Callable[[Any], Buffer], numbers: Numbers
    ) -> Iterator[tuple[Access, Unclear]]:
        """Leave what is stored in the buffers; what is not known is handed on."""
        stored: dict[int, np.ndarray] = {}
        for one in self.found:
            access, at = one.access, one.at[one.here]
            held = find(access.tensor)
            try:
                x, bad = self._compute(one, numbers)
                if access.kind == "store":
                    before = stored.get(access.tensor.storage, at[:0])
                    if np.isin(at, before).any():
                        raise Unclear("elements that two lines store")
                    stored[access.tensor.storage] = np.concatenate([before, at])
                    held.data[at], held.bad[at] = x, bad
                elif access.word in ("add", "fadd"):
                    np.add.at(held.data, at, x)
                    np.logical_or.at(held.bad, at, bad)
                else:
                    raise Unclear(f"atomic {access.word}")
            except Unclear as why:
                held.unclear = held.unclear or str(why)
                yield access, why
            if access.kind == "store":
                held.empty[at] = False

    @staticmethod
    def _compute(one: _Store, numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
        assert one.access.value is not None
        rank = len(one.access.shape)
        axis = one.here.ndim - 1 - rank
        storing = np.flatnonzero(one.here.any(axis=(*range(axis), *range(axis + 1, one.here.ndim))))
        here = np.take(one.here, storing, axis=axis)
        x, bad = numbers.of(one.access.value, one.lattice.select(storing, rank))
        x, bad = (np.broadcast_to(part, here.shape)[here] for part in (x, bad))
        return x, bad
