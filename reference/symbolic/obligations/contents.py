"""The contents of memory: what a load reads from the stores before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.symbolic.interpreter.integer_rules import is_zero
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    Data,
    SymbolicAccess,
    list_named,
    rebind,
)
from gemmproof.reference.symbolic.lemmas import lane
from gemmproof.reference.symbolic.obligations.coverage import judge_all, judge_separate
from gemmproof.reference.symbolic.obligations.in_bounds import (
    find_places,
    is_counted_through,
    is_whole,
)
from gemmproof.reference.symbolic.obligations.in_bounds import is_dense as is_row_major
from gemmproof.reference.symbolic.obligations.indices import (
    PROVED,
    NotAffine,
    copy_free,
    list_free,
    list_programs,
    locate,
)
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
from gemmproof.reference.symbolic.tracing.trace import Memory, TensorView, TorchCall
from gemmproof.reference.ttir import DTYPES

# -- copies --------------------------------------------------------------------------------------
ZEROS = ("aten.zeros", "aten.zero_", "aten.new_zeros", "aten.zeros_like")
COPIES = ("aten.clone", "aten._to_copy", "aten.copy_")
PAD = "aten.constant_pad_nd"

Index = tuple[Poly, ...]
Part = tuple[Cond, Memory | None, Index]


class NotCopied(Exception):
    """An operation that terms do not show to be a copy; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Cutout:
    """An element's position in a view of its memory: its index there, if it is inside."""

    inside: Cond
    at: Index


def get_base(call: TorchCall) -> str:
    """Return the name of an operation without its overload."""
    return call.name.rsplit(".", 1)[0]


def is_dense(solver: Solver, memory: Memory) -> bool:
    """Return whether the elements of a memory are contiguous, its axes in some order."""
    axes = [x for x in zip(memory.shape, memory.strides, strict=True) if x[0].constant != 1]
    return _is_dense(solver, axes, [term(1)])


def _is_dense(solver: Solver, axes: list[tuple[Poly, Poly]], steps: list[Poly]) -> bool:
    """Return whether one of the axes has one of these strides, and the others continue from it."""
    inner = [x for x in axes if x[1] in steps]
    inner += [x for x in axes if any(solver.follows(eq(x[1], step)) == YES for step in steps)]
    for axis in dict.fromkeys(inner):
        others = [x for x in axes if x is not axis]
        size, step = axis  # with no element at all, any stride will do
        further = [step * size, step * make("max", size, 1), step * make("max", 1, size)]
        if _is_dense(solver, others, further):
            return True
    return not axes


def find_box(solver: Solver, view: TensorView, at: Sequence[Poly]) -> Cutout:
    """Return the position of an element in a view of its memory. Raises NotCopied and NotAffine."""
    memory = view.memory
    axes, starts = _match(solver, view)
    inside = []
    for axis, (x, first) in enumerate(zip(at, starts, strict=True)):
        if axis not in axes:
            inside.append(eq(x, first))
            continue
        size = view.shape[axes.index(axis)]
        if first != term(0) or size != memory.shape[axis]:
            inside += [le(first, x), lt(x, first + size)]
    return Cutout(every(inside), tuple(at[axis] - starts[axis] for axis in axes))


def _match(solver: Solver, view: TensorView) -> tuple[list[int], Index]:
    """Return the memory's axis along which each axis of a view runs, and where the view begins."""
    memory = view.memory
    if view.dtype != memory.dtype:
        raise NotCopied(f"{memory.dtype} seen as {view.dtype}")
    starts = locate(view.offset, memory.shape, memory.strides)
    axes: list[int] = []
    for i, step in enumerate(view.strides):
        free = [j for j, x in enumerate(memory.strides) if x == step and j not in axes]
        if not free:
            raise NotCopied("a view that is no box of it")
        axes.append(i if i in free else free[0])
    # a box that overran an axis would hold elements of other indices
    sizes = [view.shape[axes.index(j)] if j in axes else term(1) for j in range(len(starts))]
    for first, size, whole in zip(starts, sizes, memory.shape, strict=True):
        for goal in (le(0, first), le(first + size, whole)):
            if solver.follows(goal) != YES and not _is_empty(solver, view):
                raise NotCopied("a view that may run over its axes")
    return axes, starts


def _is_empty(solver: Solver, view: TensorView) -> bool:
    return any(solver.follows(eq(n, 0)) == YES for n in view.shape)


def locate_in(solver: Solver, view: TensorView, at: Sequence[Poly]) -> Index:
    """Return the index of a view's element in its memory. Raises NotCopied and NotAffine."""
    axes, starts = _match(solver, view)
    index = list(starts)
    for axis, x in zip(axes, at, strict=True):
        index[axis] = index[axis] + x
    return tuple(index)


def list_filled(
    solver: Solver, call: TorchCall, view: TensorView, at: Sequence[Poly]
) -> Iterator[Part]:
    """Yield the source of an element of an operation's output in each case; without a memory, 0.

    Raises NotCopied and NotAffine.
    """
    base = get_base(call)
    if is_zeros(call):
        yield TRUE, None, ()
        return
    if base not in (*COPIES, PAD) or len(call.outputs) != 1:
        raise NotCopied(f"it is changed by {base}")
    source = get_copied(call)
    if source is None or source.storage == view.storage or not _keeps(source.dtype, view.dtype):
        raise NotCopied(f"{base} of other numbers")
    if base == PAD:
        yield from _pad(solver, call, source, at)
        return
    yield TRUE, source.memory, locate_in(solver, source, _spread(source, view, at))


def get_copied(call: TorchCall) -> TensorView | None:
    """Return the source of a copy, or None if it is no tensor."""
    source = call.args[1] if get_base(call) == "aten.copy_" else call.args[0]
    return source if isinstance(source, TensorView) else None


def is_zeros(call: TorchCall) -> bool:
    """Return whether an operation fills its output with 0."""
    base = get_base(call)
    filled = {"aten.fill_": 1, "aten.full": 1, "aten.new_full": 2, "aten.full_like": 1}
    if base in filled and len(call.args) > filled[base]:
        return _is_nothing(call.args[filled[base]])
    return base in ZEROS


def _is_nothing(number: Any) -> bool:
    number = number.constant if isinstance(number, Poly) else number
    return isinstance(number, int | float) and number == 0


def _spread(source: TensorView, view: TensorView, at: Sequence[Poly]) -> Index:
    """Return the index in a copy's source for an index in its target: an axis of 1 is broadcast."""
    index = []
    own = at[len(at) - len(source.shape) :]
    target = view.shape[len(at) - len(source.shape) :]
    if len(own) != len(source.shape):
        raise NotCopied("a copy of more axes")
    for n, m, x in zip(source.shape, target, own, strict=True):
        if n != m and n.constant != 1:
            raise NotCopied("a copy of another shape")
        index.append(x if n == m else term(0))
    return tuple(index)


def _pad(solver: Solver, call: TorchCall, source: TensorView, at: Sequence[Poly]) -> Iterator[Part]:
    value = call.args[2] if len(call.args) > 2 else call.kwargs.get("value", 0)
    if not _is_nothing(value):
        raise NotCopied("padded with other numbers than 0")
    pads, index, inside = call.args[1], list(at), []
    for i in range(len(pads) // 2):
        axis = len(at) - 1 - i
        index[axis] = index[axis] - term(pads[2 * i])
        inside += [le(0, index[axis]), lt(index[axis], source.shape[axis])]
    yield every(inside), source.memory, locate_in(solver, source, index)


def _keeps(before: str, after: str) -> bool:
    """Return whether a conversion preserves every number."""
    x, y = DTYPES.get(before), DTYPES.get(after)
    if x is None or y is None:
        return False
    return x == y or (y.bits > x.bits and x.is_float and y.is_float)


# -- contents ------------------------------------------------------------------------------------
LAUNCH = "launch"
Tie = tuple[Poly, Poly]


class NoProduct(Exception):
    """A stored value that terms do not show to be a sum of products; the message names it."""


@dataclass(frozen=True, slots=True)
class WhatIsRead:
    """A value that a load reads under a condition: an operand's element `at`, or a stored value.

    Values that are 0 have no record. `tied` are the program, trips and lanes that stored it, `ties`
    the equations that determine them: their index is the load's.
    """

    cond: Cond
    memory: Memory | None = None
    at: tuple[Poly, ...] = ()
    value: Data | None = None
    tied: tuple[Atom, ...] = ()
    ties: tuple[Tie, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A condition on a load that must hold under `given` for the contents reported for it."""

    what: str
    load: SymbolicAccess
    goal: Cond
    given: tuple[Cond, ...]


def find_indices(
    solver: Solver, access: SymbolicAccess, view: Any = None
) -> list[tuple[Cond, tuple[Poly, ...]]]:
    """Return the index of an access along each axis, in each case. Raises NotAffine.

    If it treats a dense tensor as a single row, an index beyond an axis is carried to the axis
    before.
    """
    entries = []
    whole = view is None or is_whole(view)
    for case, at in find_places(access, view):
        if whole and is_row_major(access.tensor) and is_counted_through(access.tensor, at):
            shape, given = access.tensor.owner_shape, (access.path, access.mask, case)
            sides = zip(at, shape, strict=True)
            if any(solver.follows(lt(x, n), *given) != YES for x, n in sides):
                at = _carry(at, shape)
        entries.append((case, at))
    return entries


def _carry(at: Sequence[Poly], shape: Sequence[Poly]) -> tuple[Poly, ...]:
    index = list(at)
    for axis in reversed(range(1, len(index))):
        if index[axis - 1].constant is not None:
            index[axis - 1] = index[axis - 1] + make("floordiv", index[axis], shape[axis])
            index[axis] = make("mod", index[axis], shape[axis])
    return tuple(index)


@dataclass(slots=True)
class Contents:
    """The contents of memory before each launch of a path.

    `asked` are the questions on which the answers depend: the caller must ask them.
    """

    solver: Solver
    operations: Sequence[TorchCall]
    accesses: Sequence[SymbolicAccess]
    asked: list[Question] = field(default_factory=list)
    alone: dict[SymbolicAccess, bool] = field(default_factory=dict)

    def read(self, load: SymbolicAccess, given: Cond) -> Iterator[WhatIsRead]:
        """Yield what a load reads under a condition. Raises NoProduct."""
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
        except (NotAffine, NotCopied) as error:
            raise NoProduct(f"{memory.name}: {error}") from None

    def _find_launch(self, number: int) -> int:
        calls = enumerate(self.operations)
        return next(i for i, x in calls if x.name == LAUNCH and x.args[0] == number)

    def _list_stores(self, memory: Memory) -> list[SymbolicAccess]:
        return [x for x in self.accesses if x.kind != "load" and x.tensor.storage == memory.number]

    def _trace(
        self,
        load: SymbolicAccess,
        memory: Memory,
        at: tuple[Poly, ...],
        end: int,
        cond: Cond,
        given: Cond,
    ) -> Iterator[WhatIsRead]:
        """Yield the contents of an element of memory before the operation `end`."""
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
        self, load: SymbolicAccess, memory: Memory, at: Sequence[Poly], given: tuple[Cond, ...]
    ) -> None:
        if not is_dense(self.solver, memory):
            raise NoProduct(f"{memory.name} is not dense")
        what = f"an element of {memory.name}"
        for x, n in zip(at, memory.shape, strict=True):
            for goal in (le(0, x), lt(x, n)):
                self.asked.append(Question(what, load, goal, given))

    # -- stored values ---------------------------------------------------------------------------
    def _read_stores(
        self,
        load: SymbolicAccess,
        stores: list[SymbolicAccess],
        at: tuple[Poly, ...],
        cond: Cond,
        given: Cond,
    ) -> Iterator[WhatIsRead]:
        """Yield what a launch stored at an index: it stores every element once, by one store."""
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
        for case, indices in find_indices(self.solver, store):
            stored_at = tuple(substitute(x, swaps) for x in indices)
            stored_if = substitute(every((store.path, store.mask, case)), swaps)
            self._ask_within(load, memory, stored_at, (cond, given, stored_if))
            ties = tuple(zip(stored_at, at, strict=True))
            whole = every((cond, stored_if, *(eq(x, y) for x, y in ties)))
            yield WhatIsRead(whole, value=rebind(store.value, swaps), tied=tied, ties=ties)

    def _list_instance(self, store: SymbolicAccess) -> list[Atom]:
        """Return the atoms that identify an execution of a store: program, trips and lane."""
        lanes = (lane(i, n).atom for i, n in enumerate(store.shape))
        atoms = [*list_programs(self.solver, store), *store.trips, *filter(None, lanes)]
        return list(dict.fromkeys(atoms))

    def is_alone(self, store: SymbolicAccess) -> bool:
        """Return whether one lane of one program and trip stores each element of a memory."""
        if store not in self.alone:
            self.alone[store] = all(
                verdict.status == PROVED for verdict in judge_all(self.solver, [store])
            ) and self._is_once(store)
        return self.alone[store]

    def _is_once(self, store: SymbolicAccess) -> bool:
        solver, instance = self.solver, self._list_instance(store)
        address = store.term + store.tensor.offset
        given = every((store.path, store.mask))
        free = list_free(solver, given, address, *map(term, instance))
        swaps = copy_free(solver, free)
        differ = some(~eq(term(x), swaps[x]) for x in instance)
        if differ == FALSE:
            return True
        entries = find_places(store)
        equations = [(address, substitute(address, swaps))]
        if len(entries) == 1 and self._is_within(store, entries[0]):
            equations = [(x, substitute(x, swaps)) for x in entries[0][1]]
        conds = (given, substitute(given, swaps))
        verdict = judge_separate(solver, "stored once", store, conds, equations, differ, swaps, ())
        return verdict.status == PROVED

    def _is_within(self, store: SymbolicAccess, entry: Any) -> bool:
        case, at = entry
        sides = zip(at, store.tensor.owner_shape, strict=True)
        inside = every(cond for x, n in sides for cond in (le(0, x), lt(x, n)))
        return self.solver.follows(inside, store.path, store.mask, case) == YES
