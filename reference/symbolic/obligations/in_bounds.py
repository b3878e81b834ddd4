"""The obligation that every lane under its mask is in bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.reference.simulation import Where
from gemmproof.reference.symbolic.interpreter.interpret import Claim, Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import Data, SymbolicAccess
from gemmproof.reference.symbolic.obligations.indices import (
    OPEN,
    PROVED,
    REFUTED,
    NotAffine,
    Verdict,
    ask,
    find_walk,
    join_walks,
    locate,
    split_choices,
)
from gemmproof.reference.symbolic.obligations.vectors import are_aligned, list_runs
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    every,
    le,
    lt,
    make,
    term,
)

# -- lanes ---------------------------------------------------------------------------------------
# whether the memory that a load reads is initialized by then; the stores that launches made to it
Defined = Callable[[Solver, SymbolicAccess], bool]
Stores = Callable[[SymbolicAccess], Iterable[SymbolicAccess]]


@dataclass(slots=True)
class Origins:
    """Searches values for loads that a mask, or uninitialized memory, leaves undefined."""

    solver: Solver
    small: tuple[Atom, ...]
    is_defined: Defined
    list_stores: Stores
    seen: set[tuple[Data, Cond]] = field(default_factory=set)

    def judge_store(self, store: SymbolicAccess) -> Iterator[Verdict]:
        """Each load that a stored lane depends on is unmasked there, or has a fill value."""
        if store.kind == "atomic" and not store.tensor.defined:
            yield Verdict(OPEN, f"onto {store.tensor.name}", store.where, "it begins undefined")
        if store.value is not None:
            text = f"defined where {store.tensor.name} is stored"
            given = every((store.path, store.mask))
            yield from self._judge(store.value, given, text, store.where)

    def _judge_earlier(self, store: SymbolicAccess) -> Iterator[Verdict]:
        """Judge a store whose values are read back: a lane of it need not reach a result."""
        for verdict in self.judge_store(store):
            if verdict.status == REFUTED:
                verdict = replace(verdict, status=OPEN, why="a lane may be undefined", model=None)
            yield verdict

    def judge_use(self, value: Data, path: Cond, where: Where | None) -> Iterator[Verdict]:
        """A loaded integer on which accesses, claims or branches depend is defined."""
        yield from self._judge(value, path, "defined where it decides", where)

    def _judge(self, value: Data, given: Cond, text: str, where: Where | None) -> Iterator[Verdict]:
        if (value, given) in self.seen:
            return
        self.seen.add((value, given))
        if value.kind == "undefined":
            yield Verdict(OPEN, text, where, "an undefined value")
        if value.kind == "hole":  # any value of an earlier trip
            yield Verdict(OPEN, text, where, "a value that a loop carries")
        if value.kind == "load":
            load: SymbolicAccess = value.access
            load_text = f"{text}: load of {load.tensor.name}"
            if load.mask != TRUE and load.other is None:
                path = (given, load.path)
                yield ask(self.solver, load_text, load.where, load.mask, path, self.small)
            elif load.mask != TRUE and load.other is not None:
                yield from self._judge(load.other, given & ~load.mask, text, where)
            if not self.is_defined(self.solver, load):
                yield Verdict(OPEN, text, load.where, f"{load.tensor.name} begins undefined")
            for store in self.list_stores(load):
                yield from self._judge_earlier(store)
        for i, part in enumerate(value.parts):
            branch = given
            if value.kind == "choice":
                branch = given & (value.cond if i == 0 else ~value.cond)
            yield from self._judge(part, branch, text, where)


# -- claims --------------------------------------------------------------------------------------
def judge_claim(solver: Solver, claim: Claim, small: tuple[Atom, ...]) -> Verdict:
    """Judge whether a claim holds in every lane."""
    cond, path = claim.cond, claim.path
    walk = find_walk(solver, cond, path)
    if walk is not None:
        cond, path = walk.swap(cond), walk.swap(path)
    verdict = ask(solver, claim.text, claim.where, cond, (path,), small)
    if verdict.status == REFUTED and claim.text != "tl.assume":
        # a fault only in lanes that reach a store
        every_one = "size" if claim.kind == "grid" else "lane"
        return replace(verdict, status=OPEN, why=f"it does not hold for every {every_one}")
    return verdict


def judge_hint(
    solver: Solver, claim: Claim, small: tuple[Atom, ...], machines: Sequence[Machine],
    stores: Iterable[SymbolicAccess], list_stores: Stores,
) -> Verdict:  # fmt: skip
    """Judge whether a hint is true in every lane, or where it matters.

    In vectors that it gives accesses the alignment matters for every lane, and that lanes are
    consecutive for those that matter. `stores` are those to results; `list_stores` returns those to
    the memory that a load reads.
    """
    number = claim.number
    if number is not None:
        own = [machine for machine in machines if machine.launch == number[0]]
        if all(are_aligned(solver, machine) for machine in own) and _is_harmless(
            solver, number, machines, stores, list_stores
        ):
            return Verdict(PROVED, claim.text, claim.where)
    return judge_claim(solver, claim, small)


def _is_harmless(
    solver: Solver, number: Any, machines: Sequence[Machine], stores: Iterable[SymbolicAccess],
    list_stores: Stores,
) -> bool:  # fmt: skip
    """Return whether lanes for which a hint is false are not stored to and reach no stored lane."""

    launches = {machine.launch: machine for machine in machines}

    def is_true(access: SymbolicAccess, given: Cond) -> bool:
        here = (given, access.path, access.mask)
        conds = [cond for n, cond in access.hints if n == number]
        if conds:
            conds += list_runs(launches[access.launch], access)
        return all(solver.follows(cond, *here) == YES for cond in conds)

    waiting: list[tuple[Data, Cond]] = []
    for machine in machines:
        if number in machine.dropped:
            return False
        if not all(is_true(x, machine.path) for x in machine.accesses if x.kind != "load"):
            return False
        waiting += [(value, path) for value, path, _ in machine.uses]
    waiting += _list_values(stores)
    seen: set[tuple[Data, Cond]] = set()
    while waiting:
        value, given = waiting.pop()
        if (value, given) in seen:
            continue
        seen.add((value, given))
        if value.kind == "hole":  # any value of an earlier trip
            return False
        if value.kind == "load":
            load: SymbolicAccess = value.access
            if not is_true(load, given):
                return False
            if load.other is not None:
                waiting.append((load.other, given & ~load.mask))
            waiting += _list_values(list_stores(load))
        for i, part in enumerate(value.parts):
            chosen = given & (value.cond if i == 0 else ~value.cond)
            waiting.append((part, chosen if value.kind == "choice" else given))
    return True


def _list_values(stores: Iterable[SymbolicAccess]) -> list[tuple[Data, Cond]]:
    """Return the stored values, each with the condition under which it is stored."""
    return [(x.value, x.path & x.mask) for x in stores if x.value is not None]


# -- bounds --------------------------------------------------------------------------------------
Place = tuple[Cond, tuple[Poly, ...]]


def find_places(access: SymbolicAccess, view: Any = None) -> list[Place]:
    """Return the index of an access along each axis of its operand, in each case. Raises NotAffine.

    `view`: another view of the same memory, instead of the operand's own.
    """
    tensor = access.tensor
    offset = access.term + tensor.offset
    shape, strides = tensor.owner_shape, tensor.owner_strides
    if view is not None:
        offset, shape, strides = offset - view.offset, view.shape, view.strides
    cases = split_choices(offset, strides)
    return [(case, locate(part, shape, strides)) for case, part in cases]


def judge_bounds(
    solver: Solver, access: SymbolicAccess, small: tuple[Atom, ...]
) -> Iterator[Verdict]:
    """Along each axis: 0 <= index < size for every lane under the mask."""
    text = f"{access.kind} of {access.tensor.name}"
    if solver.remembers("bounds", access.footprint):
        yield Verdict(PROVED, text, access.where)
        return
    verdict = _judge_bounds(solver, access, small, text)
    if verdict.status == PROVED:
        solver.remember("bounds", access.footprint)
    yield verdict


def _judge_bounds(
    solver: Solver, access: SymbolicAccess, small: tuple[Atom, ...], text: str
) -> Verdict:
    access, _ = join_walks(solver, access)
    tensor = access.tensor
    # an index beyond its axis is a fault only if the address is outside the operand
    offset = access.term + tensor.offset
    sides = zip(tensor.owner_shape, tensor.owner_strides, strict=True)
    last = sum(((n - 1) * step for n, step in sides), term(0))
    inside, given = le(0, offset) & le(offset, last), (access.path, access.mask)
    dense = is_dense(tensor)
    missing: list[Cond] = []
    try:
        places = find_places(access)
        is_flat = dense and any(is_counted_through(tensor, at) for _, at in places)
        if is_flat and solver.follows(inside, *given) == YES:
            return Verdict(PROVED, text, access.where)
        for case, indices in places:
            for index, size in zip(indices, tensor.owner_shape, strict=True):
                for goal in (le(0, index), lt(index, size)):
                    missing += [goal] if solver.follows(goal, *given, case) != YES else []
    except NotAffine:
        missing = [FALSE]
    if not missing:
        return Verdict(PROVED, text, access.where)
    verdict = ask(solver, text, access.where, inside, given, small)
    if verdict.status == PROVED and not dense:
        verdict = Verdict(OPEN, text, access.where, "it may run from one row into the next")
    return replace(verdict, lacks=missing[0] if missing[0] != FALSE else None)


def is_dense(tensor: Any) -> bool:
    """Return whether every address from a tensor's first element to its last is an element."""
    step = usual = term(1)
    for n, stride in reversed(list(zip(tensor.owner_shape, tensor.owner_strides, strict=True))):
        if n.constant != 1 and stride not in (step, usual):
            return False
        step, usual = step * n, usual * make("max", n, 1)  # torch's if an axis may be empty
    return True


def is_whole(view: Any) -> bool:
    """Return whether a view is all of its memory, as declared or allocated."""
    own = (view.owner_shape, view.owner_strides, term(0))
    return (view.shape, view.strides, view.offset) == own


def is_counted_through(tensor: Any, at: Sequence[Poly]) -> bool:
    """Return whether an access treats a tensor's elements as a single row."""
    sides = zip(at, tensor.owner_shape, strict=True)
    return any(x.constant is not None and n.constant is None for x, n in sides)


def judge_fit(solver: Solver, access: SymbolicAccess, small: tuple[Atom, ...]) -> Iterator[Verdict]:
    """Each 32-bit step of the pointer fits for every lane under the mask."""
    from gemmproof.reference.symbolic.interpreter.integer_rules import fits

    text = f"offset of the {access.kind} of {access.tensor.name}"
    access, _ = join_walks(solver, access)
    for step, cond in access.steps:
        given = (access.path, access.mask, cond)
        yield ask(solver, text, access.where, fits(step, 32), given, small)
