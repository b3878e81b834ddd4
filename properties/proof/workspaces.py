"""Memory between launches: results and workspaces, stored once and defined before use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch.utils._pytree import tree_leaves

from gemmproof.reference.symbolic.interpreter.interpret import Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.obligations.contents import (
    COPIES,
    Contents,
    NotCopied,
    get_base,
    get_copied,
    is_zeros,
)
from gemmproof.reference.symbolic.obligations.coverage import judge_all, judge_twice
from gemmproof.reference.symbolic.obligations.in_bounds import Origins, is_whole
from gemmproof.reference.symbolic.obligations.indices import (
    OPEN,
    PROVED,
    REFUTED,
    Obligation,
    Verdict,
)
from gemmproof.reference.symbolic.obligations.product import (
    WIDE,
    Leaving,
    WantedProduct,
    judge_product,
    judge_zeros,
)
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import Atom, eq, some
from gemmproof.reference.symbolic.tracing.trace import Path, TensorView, TorchCall
from gemmproof.reference.ttir import DTYPES

# -- stores around a launch ----------------------------------------------------------------------
# operations that do not read their first operand
_FILLS = ("aten.zeros", "aten.zero_", "aten.new_zeros", "aten.zeros_like", "aten.fill_",
          "aten.copy_")  # fmt: skip
LAUNCH = "launch"


def is_zeroed(path: Path, store: SymbolicAccess) -> bool:
    """Return whether torch zeroed all of the memory before the launch, and before each trial of it.

    A launch of several configurations is tried out, and its trials add up, unless the tuner's own
    hook fills the memory.
    """
    touched = []
    for call in path.operations:
        if call.name == LAUNCH and call.args[0] == store.launch:
            break
        touched += [call] if _writes(call, {store.tensor.storage}) else []
    if not touched or not is_zeros(touched[-1]):
        return False
    is_tried = path.launches[store.launch].configs > 1
    return all(map(is_whole, touched[-1].outputs)) and (touched[-1].in_tuner or not is_tried)


def find_rewrite(path: Path, stores: Sequence[SymbolicAccess], end: int) -> str:
    """Return how torch or another launch changes memory after the launch that first stores it.

    Operations of torch count only before `end`; "" if nothing changes it.
    """
    (storage,) = {x.tensor.storage for x in stores}
    launches, stored = {x.launch for x in stores}, False
    for i, call in enumerate(path.operations):
        if call.name == LAUNCH and call.args[0] in launches:
            if i >= end:
                return f"{stores[0].tensor.name} is stored to again"
            stored = True
        elif stored and i < end and _writes(call, {storage}):
            return f"{stores[0].tensor.name} is changed by {get_base(call)}"
    return ""


def list_read(call: TorchCall) -> list[TensorView]:
    """List the tensors that an operation of torch reads; a launch is none."""
    if call.name == LAUNCH:
        return []
    operands: list[Any] = list(call.args)
    if get_base(call) in _FILLS:
        operands = operands[1:]
    options = {name: x for name, x in call.kwargs.items() if name != "out"}
    return list(list_views((operands, options)))


def list_views(tree: Any) -> Iterator[TensorView]:
    """Yield the tensors in arguments, at any depth."""
    is_view = lambda x: isinstance(x, TensorView)  # noqa: E731
    yield from filter(is_view, tree_leaves(tree, is_leaf=is_view))


def _writes(call: TorchCall, storages: Collection[int]) -> bool:
    return any(view.storage in storages for view in call.outputs)


# -- chains of launches --------------------------------------------------------------------------
_SUM = "aten.sum.dim_IntList"


@dataclass(frozen=True, slots=True)
class Chain:
    """The view of stored memory that a result is made of, element by element.

    The operations before `end` made it. `summed`: torch adds up this axis of it. `is_last`: it has
    the result's own format, else one that is wide. `is_zero`: torch filled it with 0.
    """

    view: TensorView
    end: int
    summed: int | None = None
    is_last: bool = True
    is_zero: bool = False


def find_chain(path: Path, accesses: Sequence[SymbolicAccess]) -> Chain:
    """Find the source of the only tensor among a path's results. Raises NotCopied."""
    results = [view for view in path.results if isinstance(view, TensorView)]
    if len(results) != 1:
        raise NotCopied(f"{len(results)} tensors are returned")
    view, summed = results[0], None
    dtypes = [view.dtype]
    end = len(path.operations)
    while True:
        if view.dtype != view.memory.dtype:
            raise NotCopied(f"what is returned is {view.name} as {view.dtype}")
        end, call = _find_writer(path, accesses, view, end)
        if call.name == LAUNCH or is_zeros(call):
            is_last = set(dtypes) == {dtypes[0]} and summed is None
            is_zero = call.name != LAUNCH
            return Chain(view, end + (not is_zero), summed, is_last, is_zero)
        if call.name == _SUM and summed is None:
            view, summed = _unsum(call, view)
        else:
            view = _uncopy(call, view)
        dtypes.append(view.dtype)
        wide = view.dtype in WIDE or (view.dtype == dtypes[0] and summed is None)
        before, after = DTYPES[view.dtype], DTYPES[dtypes[0]]
        wraps = not before.is_float and after.bits < before.bits  # torch does not saturate
        if not wide or wraps or before.is_float != after.is_float:
            raise NotCopied(f"{view.name} is kept in {view.dtype} before it is returned")


def _find_writer(
    path: Path, accesses: Sequence[SymbolicAccess], view: TensorView, end: int
) -> tuple[int, TorchCall]:
    """Find the last operation before `end` that changes the memory of a view."""
    storing = {x.launch for x in accesses if x.kind != "load" and x.tensor.storage == view.storage}
    for i in reversed(range(end)):
        call = path.operations[i]
        if call.name == LAUNCH and call.args[0] in storing:
            return i, call
        for output in call.outputs:
            if output.storage == view.storage:
                if _get_extent(output) != _get_extent(view):
                    raise NotCopied(f"{view.name} is changed in part by {get_base(call)}")
                return i, call
    raise NotCopied(f"{view.name} is stored by no launch")


def _get_extent(view: TensorView) -> Any:
    return view.shape, view.strides, view.offset


def _uncopy(call: TorchCall, view: TensorView) -> TensorView:
    base = get_base(call)
    source = get_copied(call)
    if base not in COPIES or source is None or source.shape != view.shape:
        raise NotCopied(f"{view.name} is changed by {base}")
    return source


def _unsum(call: TorchCall, view: TensorView) -> tuple[TensorView, int]:
    """Return the summed tensor and axis."""
    source, axes, *rest = call.args
    if not isinstance(source, TensorView) or len(axes) != 1 or any(rest) or len(call.outputs) != 1:
        raise NotCopied(f"{view.name} is a sum of another form")
    axis = int(axes[0]) % len(source.shape)
    left = (*source.shape[:axis], *source.shape[axis + 1 :])
    if left != view.shape or source.dtype not in WIDE or view.dtype not in WIDE:
        # torch converts the summands first
        raise NotCopied(f"{view.name} is a sum of {source.dtype} in {view.dtype}")
    return source, axis


ADDED = "atomics add to elements, which are not counted"


# -- results in memory ---------------------------------------------------------------------------
@dataclass(slots=True)
class StoredResults:
    """The stores of a path's results: `stores` into them, and into the memory that they come from.

    `views` are the results by their memory, `filled` caches which memory was stored by the first so
    many launches.
    """

    path: Path
    accesses: list[SymbolicAccess]
    stores: list[SymbolicAccess]
    views: dict[int, Any]
    filled: dict[tuple[int, int], bool] = field(default_factory=dict)

    def list_once(self, small: tuple[Atom, ...]) -> Iterator[Obligation]:
        """Yield the obligations that each element of each result, or its source, is stored once."""
        stored = {x.tensor.storage for x in self.stores}
        torchs = (call for call in self.path.operations if call.name != LAUNCH)
        stored |= {view.storage for call in torchs for view in call.outputs}
        unstored = [view for storage, view in self.views.items() if storage not in stored]
        if unstored or not self.views:
            shapes = tuple(view.shape for view in unstored)
            yield Obligation(shapes, lambda solver: self._judge_left(solver, unstored))
        for storage in dict.fromkeys(x.tensor.storage for x in self.stores):
            stores = [x for x in self.stores if x.tensor.storage == storage]
            view = self.views.get(storage)
            own = () if view is None else (view.shape, view.strides, view.offset)
            terms = (*((x.kind, x.launch, x.tensor.defined, x.footprint) for x in stores), own)
            yield Obligation(terms, partial(self._judge_one, stores=stores, view=view, small=small))

    def _judge_left(self, solver: Solver, left: list[Any]) -> Iterator[Verdict]:
        if not self.views or not all(_is_empty(solver, view) for view in left):
            yield Verdict(OPEN, "stored once", None, "no store of a result was seen")

    def _judge_one(
        self, solver: Solver, stores: list[SymbolicAccess], view: Any, small: tuple[Atom, ...]
    ) -> Iterator[Verdict]:
        atomic = [x for x in stores if x.kind == "atomic"]
        if atomic:
            is_onto = len(atomic) < len(stores) or not all(x.tensor.defined for x in atomic)
            why = "atomics onto what a kernel stored" if is_onto else ADDED
            yield Verdict(OPEN, "stored once", atomic[0].where, why)
            return
        for i, first in enumerate(stores):
            for second in stores[i:]:
                if first.launch != second.launch:  # one may overwrite what another left
                    continue
                for verdict in judge_twice(solver, first, second, small, view):
                    if verdict.status == REFUTED and view is None:  # a workspace is no result
                        verdict = replace(verdict, status=OPEN, why="stored again", model=None)
                    yield verdict
        if not stores[0].tensor.defined or view is not None:
            yield from judge_all(solver, stores, view)

    def is_defined(self, solver: Solver, load: SymbolicAccess) -> bool:
        """Return whether memory that a load reads held values, or earlier launches stored all."""
        return self._is_held(solver, load.tensor, load.launch)

    def _is_held(self, solver: Solver, view: Any, launches: int) -> bool:
        if view.defined or _is_empty(solver, view):
            return True
        return self._is_stored(solver, view.storage, launches)

    def _is_stored(self, solver: Solver, storage: int, launches: int) -> bool:
        """Return whether the first so many launches stored every element of a memory."""
        key = (storage, launches)
        if key not in self.filled:
            own = [x for x in self.accesses if x.tensor.storage == storage and x.kind == "store"]
            stores = [x for x in own if x.launch < launches]
            verdicts = judge_all(solver, stores) if stores else ()
            self.filled[key] = bool(stores) and all(v.status == PROVED for v in verdicts)
        return self.filled[key]

    def list_stores(self, load: SymbolicAccess) -> list[SymbolicAccess]:
        """List the stores into a load's memory, or its torch sources, by launches up to its own."""
        feeds = _find_feeds(self.path, {load.tensor.storage})
        stores = (x for x in self.accesses if x.kind != "load" and x.launch <= load.launch)
        return [x for x in stores if x.tensor.storage in feeds]

    def _is_overwritten(self, solver: Solver, call: TorchCall, launches: int) -> bool:
        """Return whether launches store all of the result before an operation's output is read.

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
            if any(verdict.status != PROVED for verdict in judge_all(solver, stores, shown)):
                return False
        return True

    def judge_product(self, solver: Solver, product: WantedProduct) -> Iterator[Verdict]:
        """Judge c = a b, if the result is left by stores, or is all zeros."""
        if self.views and all(_is_empty(solver, view) for view in self.views.values()):
            yield Verdict(PROVED, product.text, None)
            return
        stores: list[SymbolicAccess] = []
        try:
            chain = find_chain(self.path, self.accesses)
            stores = [x for x in self.accesses if x.tensor.storage == chain.view.storage]
            stores = [x for x in stores if x.kind != "load"]
            reason = "" if chain.is_zero else find_rewrite(self.path, stores, chain.end)
        except NotCopied as error:
            reason = str(error)
        if reason:
            where = stores[0].where if stores else None
            yield Verdict(OPEN, product.text, where, reason)
        elif chain.is_zero:
            yield judge_zeros(solver, product)
        else:
            yield from self._judge_stores(solver, product, chain, stores)

    def _judge_stores(
        self, solver: Solver, product: WantedProduct, chain: Chain, stores: list[SymbolicAccess]
    ) -> Iterator[Verdict]:
        """Judge the product that stores leave: each its own elements, or additions onto 0."""
        contents = Contents(solver, self.path.operations, self.accesses)
        first, *others = stores
        is_atomic = any(x.kind == "atomic" for x in stores)
        adds = is_atomic or chain.summed is not None
        reason = ""
        memory = chain.view.memory
        if any(x.tensor.dtype != memory.dtype for x in stores):
            reason = f"{memory.name} is stored as {first.tensor.dtype}"
        elif adds and others:
            reason = f"{len(stores)} stores are added up"
        elif is_atomic:
            is_sum = first.word in ("add", "fadd") and is_zeroed(self.path, first)
            reason = "" if is_sum else "atomics onto what may not be 0"
            if chain.summed is not None or first.tensor.dtype not in WIDE:
                reason = f"sums of atomics in {first.tensor.dtype}"
        elif adds and not contents.is_alone(first):
            reason = f"{first.tensor.name}, of which an element may be stored again"
        if reason:
            yield Verdict(OPEN, product.text, first.where, reason)
            return
        if not adds and self.views.get(chain.view.storage) != chain.view:
            yield from judge_all(solver, stores, chain.view)
        for store in stores:
            left = Leaving(chain.view, adds, chain.summed, chain.is_last and not adds)
            yield from judge_product(contents, store, product, left)

    def judge_lanes(
        self, solver: Solver, machines: list[Machine], small: tuple[Atom, ...]
    ) -> Iterator[Verdict]:
        """Judge lanes that reach a result, torch's inputs, and integers that decide the path."""
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
        for value, condition, where in (use for machine in machines for use in machine.uses):
            for verdict in lanes.judge_use(value, condition, where):
                if verdict.status == REFUTED:  # at fault only where something depends on that lane
                    verdict = replace(
                        verdict, status=OPEN, why="a lane may be undefined", model=None
                    )
                yield verdict


def find_stored_results(path: Path, accesses: list[SymbolicAccess]) -> StoredResults:
    """Find the stores of a path's results, through the operations of torch."""
    views = {view.storage: view for view in path.results if hasattr(view, "storage")}
    feeds = _find_feeds(path, set(views))
    stores = [x for x in accesses if x.kind != "load" and x.tensor.storage in feeds]
    return StoredResults(path, accesses, stores, views)


def _is_empty(solver: Solver, view: Any) -> bool:
    """Return whether a view has no element at all."""
    if all(n.is_natural and n.least > 0 for n in view.shape):
        return False
    return solver.follows(some(eq(n, 0) for n in view.shape)) == YES


def _find_feeds(path: Path, storages: set[int]) -> set[int]:
    """Return memories, and the sources of torch's operations that fill them."""
    feeds = set(storages)
    for call in reversed(path.operations):
        if call.name != LAUNCH and any(v.storage in feeds for v in call.outputs):
            feeds |= {view.storage for view in list_views((call.args, call.kwargs))}
    return feeds
