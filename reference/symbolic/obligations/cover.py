"""Every element of the result is stored, and none twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.bounds import (
    find_places,
    is_counted_through,
    is_dense,
    is_whole,
)
from gemmproof.reference.symbolic.obligations.coordinates import NoView
from gemmproof.reference.symbolic.obligations.digits import new_element, split_equal
from gemmproof.reference.symbolic.obligations.instances import copy_free, list_free, list_others
from gemmproof.reference.symbolic.obligations.reaching import find_gap
from gemmproof.reference.symbolic.obligations.tiles import has_one_program_each
from gemmproof.reference.symbolic.obligations.verdict import (
    OPEN,
    PROVED,
    REFUTED,
    Verdict,
    find_unknown,
)
from gemmproof.reference.symbolic.obligations.walks import join_walks
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    rename,
    some,
    substitute,
    term,
    walk,
)


def judge_twice(
    solver: Solver, first: Access, second: Access, small: tuple[Atom, ...], view: Any = None
) -> Iterator[Verdict]:
    """No two lanes, of whatever programs and trips, store one element."""
    words = f"stored once in {first.tensor.name}"
    asked = ("twice", first.place, second.place, _sides(view))
    if solver.remembers(*asked):
        yield Verdict(PROVED, words, first.where)
        return
    said = list(_judge_twice(solver, first, second, small, view, words))
    if all(one.status == PROVED for one in said):
        solver.remember(*asked)
    yield from said


def _sides(view: Any) -> tuple[Any, ...]:
    return () if view is None else (view.shape, view.strides, view.offset)


def _judge_twice(
    solver: Solver, first: Access, second: Access, small: tuple[Atom, ...], view: Any, words: str
) -> Iterator[Verdict]:
    try:
        places = [(x, *place) for x in (first, second) for place in find_places(x, view)]
    except NoView as error:
        yield Verdict(OPEN, words, first.where, f"its layout: {error}")
        return
    ours = [place for place in places if place[0] is first]
    theirs = [place for place in places if place[0] is second]
    if first is second:
        theirs = theirs[len(theirs) // 2 :]
        ours = theirs
    both = (*ours, *theirs)
    whole = view is None or is_whole(view)
    through = whole and any(is_counted_through(x.tensor, at) for x, _, at in both)
    shape = first.tensor.owner_shape if view is None else view.shape
    flat = through or not all(_is_within(solver, *place, shape) for place in both)
    if not flat and _are_tiled(solver, [first] if first is second else [first, second], view):
        yield Verdict(PROVED, words, first.where)
        return
    if flat:
        ours, theirs = ([(x, case, _address(x)) for x, case, _ in y] for y in (ours, theirs))
    for i, (x, case_x, at_x) in enumerate(ours):
        for y, case_y, at_y in theirs[i if first is second else 0 :]:
            given = every((x.path, x.mask, case_x))
            other = every((y.path, y.mask, case_y))
            free = list_free(solver, given, other, *at_x, *at_y, *map(term, (*x.trips, *y.trips)))
            free += [p for p in list_others(solver, x) if p not in free]
            swaps = copy_free(solver, free)
            there = substitute(other, swaps)
            met = [(p, substitute(q, swaps)) for p, q in zip(at_x, at_y, strict=True)]
            apart = _apart(swaps, x.trips if x is y else None)
            yield judge_separate(solver, words, x, (given, there), met, apart, swaps, small)


def _apart(swaps: dict[Atom, Poly], trips: Sequence[Atom] | None) -> Cond:
    """Two programs, or two lanes of one access: a program may store an element again later."""
    differ = {x: ~eq(term(x), y) for x, y in swaps.items()}
    programs = some(cond for x, cond in differ.items() if str(x.args[0]).startswith("pid_"))
    if trips is None:
        return programs
    lanes = some(cond for x, cond in differ.items() if x.args[0] == "lane")
    return programs | every((lanes, *(~differ[x] for x in trips)))


def _is_within(
    solver: Solver, access: Access, case: Cond, at: Sequence[Poly], shape: Sequence[Poly]
) -> bool:
    """Whether indices are within their axes, so that two elements have two pairs of them."""
    sides = zip(at, shape, strict=True)
    inside = every(cond for x, n in sides for cond in (le(0, x), lt(x, n)))
    return solver.follows(inside, access.path, access.mask, case) == YES


def _address(access: Access) -> tuple[Poly, ...]:
    return (access.term + access.tensor.offset,)


def judge_separate(
    solver: Solver, words: str, access: Access, conds: tuple[Cond, ...],
    met: Sequence[tuple[Poly, Poly]], apart: Cond, swaps: dict[Atom, Poly],
    small: tuple[Atom, ...],
) -> Verdict:  # fmt: skip
    """Whether two instances that meet must be one: atom by atom they are shown to be equal.

    They meet where the terms of each pair are equal.
    """
    whole = every((*conds, *(eq(x, y) for x, y in met)))
    alike = every(cond for x, y in met for cond in split_equal(x, y))
    for unfold, given in ((solver.unfold_near, alike), (solver.unfold, whole)):
        solver.learn(given)
        if _is_one(solver, unfold(given, apart), apart, _pairs(given, swaps)):
            return Verdict(PROVED, words, access.where)
    if solver.decide(apart, whole) == "unsat":
        return Verdict(PROVED, words, access.where)
    doubt = find_unknown(whole)
    if doubt:
        return Verdict(OPEN, words, access.where, doubt)
    model = solver.find(whole, apart, small=small)
    if model is not None:
        return Verdict(REFUTED, words, access.where, model=model)
    return Verdict(OPEN, words, access.where, "z3 came to no end")


def _is_one(solver: Solver, facts: list[Cond], apart: Cond, pairs: list[tuple[Atom, Atom]]) -> bool:
    """Whether two instances are one: pairs that are equal are named alike, one after another."""
    merged = True
    while merged:
        if solver.is_ruled_out([*facts, apart]):
            return True
        merged = False
        for x, y in list(pairs):
            if solver.is_ruled_out([*facts, ~eq(term(x), term(y))]):
                facts = [rename(cond, {y: x}) for cond in facts]
                apart = rename(apart, {y: x})
                pairs.remove((x, y))
                merged = True
    return False


def _pairs(whole: Cond, swaps: dict[Atom, Poly]) -> list[tuple[Atom, Atom]]:
    """Atoms of one instance, and the same of the other, those with the fewest parts first."""
    found = []
    for atom in walk(whole):
        other = substitute(term(atom), swaps).atom
        if other is not None and other is not atom:
            found.append((atom, other))
    return sorted(dict.fromkeys(found), key=lambda p: (not p[0].is_leaf, p[0].number))


def judge_all(solver: Solver, stores: Sequence[Access], view: Any = None) -> Iterator[Verdict]:
    """Every element of a tensor, or of a view of it, is stored by some lane of some program.

    Elements are told apart by their index along each axis; where a store counts through a dense
    tensor, by their place.
    """
    tensor, where = stores[0].tensor, stores[0].where
    words = f"all of {tensor.name} stored"
    asked = ("all", *(store.place for store in stores), _sides(view))
    if solver.remembers(*asked):
        yield Verdict(PROVED, words, where)
        return
    shape = tensor.owner_shape if view is None else view.shape
    places = [_find_indices(store, view) for store in stores]
    if _are_tiled(solver, stores, view, whole=True):
        solver.remember(*asked)
        yield Verdict(PROVED, words, where)
        return
    whole = view is None or is_whole(view)
    through = whole and any(is_counted_through(tensor, at) for found in places for _, at in found)
    if through and is_dense(tensor):
        places = [[(TRUE, _address(store))] for store in stores]
        shape = (math.prod(shape, start=term(1)),)
    targets, within = new_element(solver, shape, [at for found in places for _, at in found])
    sources = [
        ((store.path, store.mask, case), store.trips, at)
        for store, found in zip(stores, places, strict=True)
        for case, at in found
    ]
    why = find_gap(solver, sources, targets, within)
    if why:
        yield Verdict(OPEN, words, where, why)
        return
    solver.remember(*asked)
    yield Verdict(PROVED, words, where)


def _are_tiled(solver: Solver, stores: Sequence[Access], view: Any, whole: bool = False) -> bool:
    """Whether stores are parts of tiles of which each has one program.

    Where they are to be `whole` tiles, no lane within the tensor may be masked.
    """
    shape = stores[0].tensor.owner_shape if view is None else view.shape
    placed = []
    for store in stores:
        access, programs = join_walks(solver, store)
        found = _find_indices(access, view)
        if [case for case, _ in found] != [TRUE]:
            return False
        placed.append((access, found[0][1], programs))
    if not has_one_program_each(solver, placed, shape, whole):
        return False
    for access, at, _ in placed if whole else ():
        inside = every(lt(x, n) for x, n in zip(at, shape, strict=True))
        if solver.follows(access.path & access.mask, inside) != YES:
            return False
    return True


def _find_indices(store: Access, view: Any) -> list[tuple[Cond, tuple[Poly, ...]]]:
    try:
        return find_places(store, view)
    except NoView:
        return []
