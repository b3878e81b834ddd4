"""The stores that a result is made of, and what must hold of them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gemmproof.properties.proof.around import (
    LAUNCH,
    find_rewrite,
    is_zeroed,
    list_read,
    list_views,
)
from gemmproof.properties.proof.asking import Obligation
from gemmproof.properties.proof.chain import Chain, find_chain
from gemmproof.reference.symbolic.interpreter.interpret import Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import Access
from gemmproof.reference.symbolic.obligations.contents import Contents, NotCopied
from gemmproof.reference.symbolic.obligations.coverage import judge_all, judge_twice
from gemmproof.reference.symbolic.obligations.in_bounds import Origins
from gemmproof.reference.symbolic.obligations.indices import OPEN, PROVED, REFUTED, Verdict
from gemmproof.reference.symbolic.obligations.product import (
    WIDE,
    Leaving,
    WantedProduct,
    judge_product,
    judge_zeros,
)
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import Atom, eq, some
from gemmproof.reference.symbolic.tracing import Path
from gemmproof.reference.symbolic.tracing.trace import TorchCall


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

    def list_once(self, small: tuple[Atom, ...]) -> Iterator[Obligation]:
        """Each element of each result, or of what it is computed from, is stored once."""
        stored = {x.tensor.storage for x in self.stores}
        torchs = (call for call in self.path.operations if call.name != LAUNCH)
        stored |= {view.storage for call in torchs for view in call.outputs}
        left = [view for storage, view in self.views.items() if storage not in stored]
        if left or not self.views:
            shapes = tuple(view.shape for view in left)
            yield Obligation(shapes, lambda solver: self._judge_left(solver, left))
        for storage in dict.fromkeys(x.tensor.storage for x in self.stores):
            mine = [x for x in self.stores if x.tensor.storage == storage]
            view = self.views.get(storage)
            own = () if view is None else (view.shape, view.strides, view.offset)
            terms = (*((x.kind, x.launch, x.tensor.defined, x.place) for x in mine), own)
            yield Obligation(terms, partial(self._judge_one, stores=mine, view=view, small=small))

    def _judge_left(self, solver: Solver, left: list[Any]) -> Iterator[Verdict]:
        if not self.views or not all(_is_empty(solver, view) for view in left):
            yield Verdict(OPEN, "stored once", None, "no store of a result was seen")

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
        return self._is_held(solver, load.tensor, load.launch)

    def _is_held(self, solver: Solver, view: Any, launches: int) -> bool:
        if view.defined or _is_empty(solver, view):
            return True
        return self._is_stored(solver, view.storage, launches)

    def _is_stored(self, solver: Solver, storage: int, launches: int) -> bool:
        """Whether the first so many launches stored every element of a memory."""
        key = (storage, launches)
        if key not in self.filled:
            mine = [x for x in self.accesses if x.tensor.storage == storage and x.kind == "store"]
            stores = [x for x in mine if x.launch < launches]
            said = judge_all(solver, stores) if stores else ()
            self.filled[key] = bool(stores) and all(v.status == PROVED for v in said)
        return self.filled[key]

    def list_stores(self, load: Access) -> list[Access]:
        """What launches up to a load's own store into its memory, or what torch makes that of."""
        feeds = _find_feeds(self.path, {load.tensor.storage})
        stores = (x for x in self.accesses if x.kind != "load" and x.launch <= load.launch)
        return [x for x in stores if x.tensor.storage in feeds]

    def _is_overwritten(self, solver: Solver, call: TorchCall, launches: int) -> bool:
        """Whether nothing reads what an operation writes before launches store all of the result.

        That is, all of the view that is returned of this memory.
        """
        read = {x.tensor.storage for x in self.accesses if x.kind == "load"}
        read |= {view.storage for other in self.path.operations for view in list_read(other)}
        if not call.outputs:
            return False
        for view in call.outputs:
            shown = self.views.get(view.storage)
            stores = [x for x in self.stores if x.tensor.storage == view.storage]
            if shown is None or view.storage in read or not stores:
                return False
            if any(x.kind != "store" or x.launch < launches for x in stores):
                return False
            if any(said.status != PROVED for said in judge_all(solver, stores, shown)):
                return False
        return True

    def judge_product(self, solver: Solver, wanted: WantedProduct) -> Iterator[Verdict]:
        """c = a b, where the result is what stores leave, or nothing but zeros."""
        if self.views and all(_is_empty(solver, view) for view in self.views.values()):
            yield Verdict(PROVED, wanted.words, None)
            return
        stores: list[Access] = []
        try:
            chain = find_chain(self.path, self.accesses)
            stores = [x for x in self.accesses if x.tensor.storage == chain.view.storage]
            stores = [x for x in stores if x.kind != "load"]
            why = "" if chain.is_zero else find_rewrite(self.path, stores, chain.end)
        except NotCopied as error:
            why = str(error)
        if why:
            where = stores[0].where if stores else None
            yield Verdict(OPEN, wanted.words, where, why)
        elif chain.is_zero:
            yield judge_zeros(solver, wanted)
        else:
            yield from self._judge_stores(solver, wanted, chain, stores)

    def _judge_stores(
        self, solver: Solver, wanted: WantedProduct, chain: Chain, stores: list[Access]
    ) -> Iterator[Verdict]:
        """The product of what stores leave: each of its own, or of additions onto 0."""
        contents = Contents(solver, self.path.operations, self.accesses)
        first, *others = stores
        is_atomic = any(x.kind == "atomic" for x in stores)
        adds = is_atomic or chain.summed is not None
        why = ""
        memory = chain.view.memory
        if any(x.tensor.dtype != memory.dtype for x in stores):
            why = f"{memory.name} is stored as {first.tensor.dtype}"
        elif adds and others:
            why = f"{len(stores)} stores are added up"
        elif is_atomic:
            is_sum = first.word in ("add", "fadd") and is_zeroed(self.path, first)
            why = "" if is_sum else "atomics onto what may not be 0"
            if chain.summed is not None or first.tensor.dtype not in WIDE:
                why = f"sums of atomics in {first.tensor.dtype}"
        elif adds and not contents.is_alone(first):
            why = f"{first.tensor.name}, of which an element may be stored again"
        if why:
            yield Verdict(OPEN, wanted.words, first.where, why)
            return
        if not adds and self.views.get(chain.view.storage) != chain.view:
            yield from judge_all(solver, stores, chain.view)
        for store in stores:
            left = Leaving(chain.view, adds, chain.summed, chain.is_last and not adds)
            yield from judge_product(contents, store, wanted, left)

    def judge_lanes(
        self, solver: Solver, machines: list[Machine], small: tuple[Atom, ...]
    ) -> Iterator[Verdict]:
        """What reaches a result, what torch computes, and the integers that decide the way."""
        lanes = Origins(solver, small, self.is_defined, self.list_stores)
        for store in self.stores:
            yield from lanes.judge_store(store)
        launches = 0
        for call in self.path.operations:
            launches += call.name == LAUNCH
            for view in list_read(call):
                is_held = self._is_held(solver, view, launches)
                if not is_held and not self._is_overwritten(solver, call, launches):
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
    feeds = _find_feeds(path, set(views))
    stores = [x for x in accesses if x.kind != "load" and x.tensor.storage in feeds]
    return Made(path, accesses, stores, views)


def _is_empty(solver: Solver, view: Any) -> bool:
    """Whether a view has no element at all."""
    if all(n.is_natural and n.least > 0 for n in view.shape):
        return False
    return solver.follows(some(eq(n, 0) for n in view.shape)) == YES


def _find_feeds(path: Path, storages: set[int]) -> set[int]:
    """Memories, and those that torch's operations make them of."""
    feeds = set(storages)
    for call in reversed(path.operations):
        if call.name != LAUNCH and any(v.storage in feeds for v in call.outputs):
            feeds |= {view.storage for view in list_views((call.args, call.kwargs))}
    return feeds
