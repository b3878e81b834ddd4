"""What a load gives: an operand's element, 0, or what a kernel stored; through copies in between.

Torch's operations before a launch are looked at from the last one back: each holds a box of a
memory's elements, by index. A memory's elements must have one index each for that, so it is dense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.arithmetic import is_zero
from gemmproof.reference.symbolic.machine.values import Access, Data, list_named, rebind
from gemmproof.reference.symbolic.obligations.bounds import (
    find_places,
    is_counted_through,
    is_whole,
)
from gemmproof.reference.symbolic.obligations.bounds import is_dense as is_row_major
from gemmproof.reference.symbolic.obligations.coordinates import NoView
from gemmproof.reference.symbolic.obligations.copies import (
    NotCopied,
    find_box,
    is_dense,
    list_filled,
)
from gemmproof.reference.symbolic.obligations.cover import judge_all, judge_separate
from gemmproof.reference.symbolic.obligations.instances import copy_free, list_free, list_programs
from gemmproof.reference.symbolic.obligations.verdict import PROVED
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    make,
    some,
    substitute,
    term,
)
from gemmproof.reference.symbolic.wrapper.record import Memory, TorchCall

LAUNCH = "launch"
Tie = tuple[Poly, Poly]


class NoProduct(Exception):
    """What is stored is not a sum of products that terms show; the message says what it is."""


@dataclass(frozen=True, slots=True)
class WhatIsRead:
    """What a load gives under a condition: the element `at` of an operand, or what a kernel stored.

    Neither is 0. `tied` are the program, trips and lanes that stored it, `ties` what they are
    known by: their index is the load's.
    """

    cond: Cond
    memory: Memory | None = None
    at: tuple[Poly, ...] = ()
    value: Data | None = None
    tied: tuple[Atom, ...] = ()
    ties: tuple[Tie, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What must hold of a load under conditions for it to give what is said of it."""

    what: str
    load: Access
    goal: Cond
    given: tuple[Cond, ...]


def find_indices(
    solver: Solver, access: Access, view: Any = None
) -> list[tuple[Cond, tuple[Poly, ...]]]:
    """The index of an access along each axis, in each case. Raises NoView.

    Where it counts through a dense tensor as through a single row, what runs over an axis is
    carried to the axis before.
    """
    found = []
    whole = view is None or is_whole(view)
    for case, at in find_places(access, view):
        if whole and is_row_major(access.tensor) and is_counted_through(access.tensor, at):
            shape, given = access.tensor.owner_shape, (access.path, access.mask, case)
            sides = zip(at, shape, strict=True)
            if any(solver.follows(lt(x, n), *given) != YES for x, n in sides):
                at = _carry(at, shape)
        found.append((case, at))
    return found


def _carry(at: Sequence[Poly], shape: Sequence[Poly]) -> tuple[Poly, ...]:
    found = list(at)
    for axis in reversed(range(1, len(found))):
        if found[axis - 1].constant is not None:
            found[axis - 1] = found[axis - 1] + make("floordiv", found[axis], shape[axis])
            found[axis] = make("mod", found[axis], shape[axis])
    return tuple(found)


@dataclass(slots=True)
class Contents:
    """What memory holds before each launch of a path.

    `asked` are the questions on which the answers rest: whoever reads must ask them.
    """

    solver: Solver
    operations: Sequence[TorchCall]
    accesses: Sequence[Access]
    asked: list[Question] = field(default_factory=list)
    alone: dict[Access, bool] = field(default_factory=dict)

    def read(self, load: Access, given: Cond) -> Iterator[WhatIsRead]:
        """What a load gives where a condition holds. Raises NoProduct."""
        memory: Memory = load.tensor.memory
        if load.kind != "load":
            raise NoProduct(f"what an atomic of {memory.name} gives")
        if load.tensor.dtype != memory.dtype:
            raise NoProduct(f"{memory.dtype} read as {load.tensor.dtype}")
        if load.other is None:
            self.asked.append(Question("masked lanes", load, load.mask, (load.path, given)))
        elif load.mask != TRUE and not is_zero(load.other):
            raise NoProduct("masked lanes that are not 0")
        end = self._find_launch(load.launch)
        if any(x.kind != "load" and x.launch == load.launch for x in self._list_stores(memory)):
            raise NoProduct(f"{memory.name}, to which the same launch stores")
        try:
            for case, at in find_indices(self.solver, load):
                cond = every((load.path, load.mask, case))
                yield from self._trace(load, memory, at, end, cond, given)
        except (NoView, NotCopied) as why:
            raise NoProduct(f"{memory.name}: {why}") from None

    def _find_launch(self, number: int) -> int:
        calls = enumerate(self.operations)
        return next(i for i, x in calls if x.name == LAUNCH and x.args[0] == number)

    def _list_stores(self, memory: Memory) -> list[Access]:
        return [x for x in self.accesses if x.kind != "load" and x.tensor.storage == memory.number]

    def _trace(
        self, load: Access, memory: Memory, at: tuple[Poly, ...], end: int, cond: Cond, given: Cond
    ) -> Iterator[WhatIsRead]:
        """What an element of memory is before the operation `end`."""
        if not memory.is_operand:
            self._ask_within(load, memory, at, (cond, given))
        for i in reversed(range(end)):
            call = self.operations[i]
            if call.name == LAUNCH:
                stores = [x for x in self._list_stores(memory) if x.launch == call.args[0]]
                if stores:
                    yield from self._read_stores(load, stores, at, cond, given)
                    return
                continue
            for view in call.outputs:
                if view.storage != memory.number:
                    continue
                box = find_box(self.solver, view, at)
                for part, source, index in list_filled(self.solver, call, view, box.at):
                    inner = every((cond, box.inside, part))
                    if source is not None and inner != FALSE:
                        yield from self._trace(load, source, index, i, inner, given)
                cond = cond & ~box.inside
                if cond == FALSE or box.inside == TRUE:
                    return
        if memory.is_operand:
            yield WhatIsRead(cond, memory, at)
        else:
            self.asked.append(Question(f"what {memory.name} holds", load, FALSE, (cond, given)))

    def _ask_within(
        self, load: Access, memory: Memory, at: Sequence[Poly], given: tuple[Cond, ...]
    ) -> None:
        if not is_dense(self.solver, memory):
            raise NoProduct(f"{memory.name} is not dense")
        what = f"an element of {memory.name}"
        for x, n in zip(at, memory.shape, strict=True):
            for goal in (le(0, x), lt(x, n)):
                self.asked.append(Question(what, load, goal, given))

    # -- what kernels stored ---------------------------------------------------------------------
    def _read_stores(
        self, load: Access, stores: list[Access], at: tuple[Poly, ...], cond: Cond, given: Cond
    ) -> Iterator[WhatIsRead]:
        """What a launch stored at an index: of all of a memory, each element once, by one store."""
        store, *others = stores
        memory = store.tensor.memory
        if others or store.kind != "store" or store.tensor.dtype != memory.dtype:
            raise NoProduct(f"{memory.name}, which a launch stores in several ways")
        if not self.is_alone(store):
            raise NoProduct(f"{memory.name}, of which an element may be stored again")
        assert store.value is not None
        own: list[Poly | Cond] = [store.path, store.mask, store.term]
        own += map(term, self._list_instance(store))
        free = list_free(self.solver, *own, *list_named(store.value))
        swaps = copy_free(self.solver, free)
        tied = tuple(
            atom for x in list_free(self.solver, *own) if (atom := swaps[x].atom) is not None
        )
        for case, place in find_indices(self.solver, store):
            there = tuple(substitute(x, swaps) for x in place)
            held = substitute(every((store.path, store.mask, case)), swaps)
            self._ask_within(load, memory, there, (cond, given, held))
            ties = tuple(zip(there, at, strict=True))
            whole = every((cond, held, *(eq(x, y) for x, y in ties)))
            yield WhatIsRead(whole, value=rebind(store.value, swaps), tied=tied, ties=ties)

    def _list_instance(self, store: Access) -> list[Atom]:
        """What tells one execution of a store from another: program, trips and lane."""
        lanes = (lane(i, n).atom for i, n in enumerate(store.shape))
        found = [*list_programs(self.solver, store), *store.trips, *filter(None, lanes)]
        return list(dict.fromkeys(found))

    def is_alone(self, store: Access) -> bool:
        """Whether every element of a memory is stored, and by one lane of one program and trip."""
        if store not in self.alone:
            self.alone[store] = all(
                said.status == PROVED for said in judge_all(self.solver, [store])
            ) and self._is_once(store)
        return self.alone[store]

    def _is_once(self, store: Access) -> bool:
        solver, instance = self.solver, self._list_instance(store)
        address = store.term + store.tensor.offset
        given = every((store.path, store.mask))
        free = list_free(solver, given, address, *map(term, instance))
        swaps = copy_free(solver, free)
        apart = some(~eq(term(x), swaps[x]) for x in instance)
        if apart == FALSE:
            return True
        places = find_places(store)
        met = [(address, substitute(address, swaps))]
        if len(places) == 1 and self._is_within(store, places[0]):
            met = [(x, substitute(x, swaps)) for x in places[0][1]]
        conds = (given, substitute(given, swaps))
        said = judge_separate(solver, "stored once", store, conds, met, apart, swaps, ())
        return said.status == PROVED

    def _is_within(self, store: Access, place: Any) -> bool:
        case, at = place
        sides = zip(at, store.tensor.owner_shape, strict=True)
        inside = every(cond for x, n in sides for cond in (le(0, x), lt(x, n)))
        return self.solver.follows(inside, store.path, store.mask, case) == YES
