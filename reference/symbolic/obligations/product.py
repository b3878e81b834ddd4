"""What is stored is the product of a and b: each k once, from the row and column that are stored.

A dot contracts two loaded blocks. The element at (row, column) is the sum over k of a[row, k] times
b[k, column] if, for every lane, trip and program that adds to it, the load of a is of that row, the
load of b of that column, both of one k in [0, K); if no k comes twice and each comes; and if what
the masks leave out counts as 0. In exact arithmetic nothing else matters: not the order, not tiles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmproof.reference.symbolic.machine.arithmetic import is_zero
from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.bounds import find_places
from gemmproof.reference.symbolic.obligations.contraction import (
    Contraction,
    NoProduct,
    find_contractions,
)
from gemmproof.reference.symbolic.obligations.coordinates import NoView
from gemmproof.reference.symbolic.obligations.cover import (
    copy_free,
    judge_separate,
    list_free,
    reach,
)
from gemmproof.reference.symbolic.obligations.inversion import Inversion, NoInverse
from gemmproof.reference.symbolic.obligations.verdict import OPEN, PROVED, Verdict, ask
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    FALSE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    new_symbol,
    some,
    substitute,
    term,
)


@dataclass(frozen=True, slots=True)
class _Share:
    """One contraction at the place that is stored: its k, when it adds, and over what."""

    a: Access
    k: Poly
    cond: Cond
    over: tuple[Atom, ...]


@dataclass(slots=True)
class _Stored:
    """A store of the result, with the index of what it stores."""

    solver: Solver
    access: Access
    at: tuple[Poly, ...]
    shape: tuple[Poly, ...]
    here: Cond
    words: str
    small: tuple[Atom, ...]

    def ask(self, what: str, share: Access, goal: Cond, *given: Cond) -> Verdict:
        words = f"{self.words}: {what}"
        return ask(self.solver, words, share.where, goal, (self.here, *given), self.small)


def judge_product(
    solver: Solver, store: Access, roles: Sequence[str], small: tuple[Atom, ...],
    view: Any = None, truncates: bool = False,
) -> Iterator[Verdict]:  # fmt: skip
    """c = a b for every element that a store, or an atomic addition onto 0, leaves."""
    words = f"c = {' '.join(roles)}"
    try:
        assert store.value is not None
        case, at = _place(store, view)
        here = every((store.path, store.mask, case))
        own = store.tensor
        shape = own.owner_shape if view is None else view.shape
        stored = _Stored(solver, store, at, shape, here, words, small)
        shares = []
        for found in find_contractions(store.value, truncates):
            share = yield from _judge_share(stored, found, roles)
            shares.append(share)
        if not shares:
            raise NoProduct("nothing but 0")
        for i, first in enumerate(shares):
            for second in shares[i:]:
                yield _judge_once(stored, first, second)
        yield _judge_all(stored, shares)
    except (NoProduct, NoView, NoInverse) as error:
        yield Verdict(OPEN, words, store.where, str(error) or "an index that is no sum of digits")


def _place(access: Access, view: Any = None) -> tuple[Cond, tuple[Poly, ...]]:
    places = find_places(access, view)
    if len(places) != 1:
        raise NoProduct("an access of several cases")
    return places[0]


def _judge_share(
    stored: _Stored, found: Contraction, roles: Sequence[str]
) -> Generator[Verdict, None, _Share]:
    """Whether a contraction is of the stored row and column, and of one k; returns its share."""
    a, b = found.a, found.b
    if (a.tensor.name, b.tensor.name) == (roles[1], roles[0]):
        a, b = b, a
    if (a.tensor.name, b.tensor.name) != tuple(roles):
        raise NoProduct(f"a product of {a.tensor.name} and {b.tensor.name}")
    (case_a, at_a), (case_b, at_b) = _place(a), _place(b)
    both = every((a.path, a.mask, case_a, b.path, b.mask, case_b, found.cond))
    for load in (a, b):
        if load.other is None:
            yield stored.ask("masked lanes", load, load.mask, load.path, found.cond)
        elif not is_zero(load.other):
            raise NoProduct("masked lanes that are not 0")
    sizes = (*a.tensor.owner_shape[:-1], b.tensor.owner_shape[-1])
    if stored.shape != sizes:
        raise NoProduct(f"{stored.access.tensor.name} has other rows and columns than the product")
    for x, n in zip(stored.at, sizes, strict=True):
        for goal in (le(0, x), lt(x, n)):
            yield stored.ask("an element", stored.access, goal)
    *batch, row, column = stored.at
    *batch_a, row_a, k_a = at_a
    *batch_b, k_b, column_b = at_b
    pairs = [(row_a, row), (column_b, column), (k_a, k_b)]
    pairs += [pair for other in (batch_a, batch_b) for pair in zip(other, batch, strict=True)]
    for x, y in pairs:
        yield stored.ask("same index", a, eq(x, y), both)
    for goal in (le(0, k_a), lt(k_a, a.tensor.owner_shape[-1])):
        yield stored.ask("k within K", a, goal, both)
    return _Share(a, k_a, both, found.over)


def _list_adding(stored: _Stored, shares: Sequence[_Share]) -> list[Atom]:
    """What may differ between two additions to one element: lanes, trips, and with atomics all."""
    over = [x for share in shares for x in share.over]
    if stored.access.kind != "atomic":
        return list(dict.fromkeys(over))
    solver, store = stored.solver, stored.access
    programs = [x for x in solver.known if str(x.args[0]).startswith("pid_")]
    mine = [x for x in programs if x.args[1] == store.launch]
    named = [p for share in shares for p in (share.k, share.cond)]
    free = list_free(solver, stored.here, *stored.at, *named, *map(term, (*over, *mine)))
    return list(dict.fromkeys((*free, *over, *mine, *store.trips)))


def _judge_once(stored: _Stored, first: _Share, second: _Share) -> Verdict:
    """No two lanes, trips or programs add the same k to one element."""
    solver = stored.solver
    swaps = copy_free(solver, _list_adding(stored, (first, second)))
    met = [eq(first.k, substitute(second.k, swaps))]
    met += [eq(x, substitute(x, swaps)) for x in stored.at]
    there = substitute(every((stored.here, second.cond)), swaps)
    apart = some(~eq(term(x), y) for x, y in swaps.items()) if first is second else every(())
    if apart == FALSE:  # one addition, whose k is one
        return Verdict(PROVED, f"{stored.words}: each k once", first.a.where)
    conds = (stored.here, first.cond, there, *met)
    words = f"{stored.words}: each k once"
    return judge_separate(solver, words, first.a, conds, apart, swaps, ())


def _judge_all(stored: _Stored, shares: Sequence[_Share]) -> Verdict:
    """Every k in [0, K) is added."""
    solver, is_atomic = stored.solver, stored.access.kind == "atomic"
    target = new_symbol("element", is_natural=True)
    given = [lt(target, shares[0].a.tensor.owner_shape[-1])]
    goals: list[Cond] = []
    elements: list[Poly] = []
    if is_atomic:  # whichever program comes to the element: one is sought for each k
        elements = [new_symbol("element", is_natural=True) for _ in stored.at]
        goal = every(lt(x, n) for x, n in zip(elements, stored.shape, strict=True))
        given.append(goal)
    else:
        given.append(stored.here)
    for share in shares:
        equations = [(share.k, target), *zip(stored.at, elements, strict=False)]
        inner = (stored.here, share.cond) if is_atomic else (share.cond,)
        inverse = Inversion(_list_adding(stored, (share,)))
        try:
            inverse.solve(equations)
        except NoInverse:
            continue
        goals.append(reach(solver, inverse, equations, inner))
    words = f"{stored.words}: every k"
    if goals and solver.follows(some(goals), *given) == YES:
        return Verdict(PROVED, words, shares[0].a.where)
    return Verdict(OPEN, words, shares[0].a.where, "z3 came to no end")
