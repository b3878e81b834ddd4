"""The stores that a result is made of, and what must hold of them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.properties.contract import ROLES
from gemmproof.properties.proof.around import (
    LAUNCH,
    find_change,
    is_zeroed,
    list_read,
    list_views,
)
from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.cover import judge_all, judge_twice
from gemmproof.reference.symbolic.obligations.lanes import Origins
from gemmproof.reference.symbolic.obligations.product import judge_product
from gemmproof.reference.symbolic.obligations.verdict import OPEN, PROVED, REFUTED, Verdict
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Atom
from gemmproof.reference.symbolic.wrapper import Path


@dataclass(slots=True)
class Made:
    """The stores of the results of a path: `direct` into them, others into what they come from.

    `views` are the results by the memory that they lie in, `filled` says which memory was stored by
    the first so many launches.
    """

    path: Path
    accesses: list[Access]
    stores: list[Access]
    views: dict[int, Any]
    filled: dict[tuple[int, int], bool] = field(default_factory=dict)

    def judge_once(self, solver: Solver, small: tuple[Atom, ...]) -> Iterator[Verdict]:
        """Each element of each result, or of what it is computed from, is stored once."""
        stored = {x.tensor.storage for x in self.stores}
        torchs = (call for call in self.path.operations if call.name != LAUNCH)
        stored |= {view.storage for call in torchs for view in call.outputs}
        if not self.views or not self.views.keys() <= stored:
            yield Verdict(OPEN, "stored once", None, "no store of a result was seen")
        for storage in dict.fromkeys(x.tensor.storage for x in self.stores):
            mine = [x for x in self.stores if x.tensor.storage == storage]
            yield from self._judge_one(solver, mine, self.views.get(storage), small)

    def _judge_one(
        self, solver: Solver, stores: list[Access], view: Any, small: tuple[Atom, ...]
    ) -> Iterator[Verdict]:
        atomic = [x for x in stores if x.kind == "atomic"]
        if atomic:
            if len(atomic) < len(stores) or not all(x.tensor.defined for x in atomic):
                why = "atomics onto what a kernel stored"
                yield Verdict(OPEN, "stored once", atomic[0].where, why)
            return
        for i, first in enumerate(stores):
            for second in stores[i:]:
                if first.launch != second.launch:  # one may overwrite what another left
                    continue
                for said in judge_twice(solver, first, second, small, view):
                    if said.status == REFUTED and view is None:  # a workspace is no result
                        said = replace(said, status=OPEN, why="stored again", model=None)
                    yield said
        if not stores[0].tensor.defined or view is not None:
            yield from judge_all(solver, stores, view)

    def is_defined(self, solver: Solver, load: Access) -> bool:
        """Whether memory that a load reads held values, or earlier launches stored all of it."""
        return load.tensor.defined or self._is_stored(solver, load.tensor.storage, load.launch)

    def _is_stored(self, solver: Solver, storage: int, launches: int) -> bool:
        """Whether the first so many launches stored every element of a memory."""
        key = (storage, launches)
        if key not in self.filled:
            mine = [x for x in self.accesses if x.tensor.storage == storage and x.kind == "store"]
            stores = [x for x in mine if x.launch < launches]
            said = judge_all(solver, stores) if stores else ()
            self.filled[key] = bool(stores) and all(v.status == PROVED for v in said)
        return self.filled[key]

    def judge_product(
        self, solver: Solver, small: tuple[Atom, ...], truncates: bool
    ) -> Iterator[Verdict]:
        """c = a b, where the result is what one store leaves."""
        words = "c = a b"
        stores = [x for x in self.stores if x.tensor.storage in self.views]
        if len(stores) != 1 or len(self.stores) != 1:
            where = stores[0].where if stores else None
            yield Verdict(OPEN, words, where, f"{len(self.stores)} stores make the result")
            return
        (store,) = stores
        is_sum = store.word in ("add", "fadd") and is_zeroed(self.path, store)
        if store.kind == "atomic" and not is_sum:
            yield Verdict(OPEN, words, store.where, "atomics onto what may not be 0")
            return
        change = find_change(self.path, self.accesses, store, tuple(ROLES))
        if change:
            yield Verdict(OPEN, words, store.where, change)
            return
        view = self.views[store.tensor.storage]
        yield from judge_product(solver, store, tuple(ROLES), small, view, truncates)

    def judge_lanes(
        self, solver: Solver, machines: list[Machine], small: tuple[Atom, ...]
    ) -> Iterator[Verdict]:
        """What reaches a result, what torch computes, and the integers that decide the way."""
        lanes = Origins(solver, small, self.is_defined)
        for store in self.stores:
            yield from lanes.judge_store(store)
        launches = 0
        for call in self.path.operations:
            launches += call.name == LAUNCH
            for view in list_read(call):
                if not view.defined and not self._is_stored(solver, view.storage, launches):
                    why = f"{call.name} reads memory that began undefined"
                    yield Verdict(OPEN, "defined", call.where, why)
        for value, given, where in (use for machine in machines for use in machine.uses):
            for said in lanes.judge_use(value, given, where):
                if said.status == REFUTED:  # at fault only where something depends on that lane
                    said = replace(said, status=OPEN, why="a lane may be undefined", model=None)
                yield said


def find_made(path: Path, accesses: list[Access]) -> Made:
    """The stores that make a path's results, through what torch makes of them."""
    views = {view.storage: view for view in path.results if hasattr(view, "storage")}
    feeds = set(views)
    for call in reversed(path.operations):
        if call.name != LAUNCH and any(v.storage in feeds for v in call.outputs):
            feeds |= {view.storage for view in list_views((call.args, call.kwargs))}
    stores = [x for x in accesses if x.kind != "load" and x.tensor.storage in feeds]
    return Made(path, accesses, stores, views)
