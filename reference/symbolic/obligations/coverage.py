"""The obligation that each element is stored once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from gemmproof.reference.symbolic.interpreter.symbolic_values import Access
from gemmproof.reference.symbolic.lemmas import lane, list_parts, pin
from gemmproof.reference.symbolic.obligations.in_bounds import (
    find_places,
    is_counted_through,
    is_dense,
    is_whole,
)
from gemmproof.reference.symbolic.obligations.indices import (
    OPEN,
    PROVED,
    REFUTED,
    NotAffine,
    Verdict,
    copy_free,
    count_programs,
    count_tiles,
    find_step,
    find_unknown,
    is_free,
    join_walks,
    list_choices,
    list_free,
    list_others,
    new_element,
    split_equal,
)
from gemmproof.reference.symbolic.obligations.inversion import Inversion, NotInvertible
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
    make,
    rename,
    some,
    substitute,
    term,
    walk,
)

# -- reaching ------------------------------------------------------------------------------------
# under which conditions, in which loops' trips, which indices
Source = tuple[tuple[Cond, ...], tuple[Atom, ...], Sequence[Poly]]
# the kinds of atoms whose definitions leave them one value
DEFINED = ("floordiv", "mod", "div", "rem", "min", "max", "choice", "flag")


def find_gap(
    solver: Solver, sources: Sequence[Source], targets: Sequence[Poly], within: Cond
) -> str:
    """Why it is not shown that sources come to all targets that are `within`, "" where it is."""
    why = "which program stores an element is no plain sum"
    for splits in (False, True):
        ways: list[tuple[Cond, Cond]] = []
        for source in sources:
            with suppress(NotInvertible):
                ways += _list_ways(solver, source, targets, splits)
        if ways and _covers(solver, ways, within):
            return ""
        why = "z3 came to no end" if ways else why
    return why


def _covers(solver: Solver, ways: list[tuple[Cond, Cond]], within: Cond) -> bool:
    """Whether every element is come to: in each case by its way, or by one of them."""
    given, alone = [within], len(ways) > 1
    for case, goal in ways if alone else ():
        alone = alone and solver.follows(goal, *given, case) == YES
        given.append(~case)
    if alone and solver.decide(TRUE, *given) == "unsat":
        return True
    return solver.follows(some(goal for _, goal in ways), within) == YES


def _list_ways(
    solver: Solver, source: Source, targets: Sequence[Poly], splits: bool
) -> Iterator[tuple[Cond, Cond]]:
    """What must hold for a source to come to the targets, and in which case of its choices."""
    whole, trips, at = source
    for chosen, conds, places in list_choices(whole, tuple(at)) if splits else ((TRUE, whole, at),):
        free = list_free(solver, chosen, *conds, *places, *map(term, trips))
        inverse = Inversion(free)
        equations = list(zip(places, targets, strict=True))
        inverse.solve(equations)
        goal = reach(solver, inverse, equations, (chosen, *conds))
        told = [x for x in list_parts([goal]) if _tells(x, targets)]
        yield every((substitute(chosen, inverse.complete(chosen)), *told)), goal


def _tells(cond: Cond, targets: Sequence[Poly]) -> bool:
    """Whether a condition tells targets apart by themselves, as even ones from odd ones."""
    return {x for x in walk(cond) if x.is_leaf} <= set(walk(*targets))


def reach(
    solver: Solver, inverse: Inversion, equations: Sequence[tuple[Poly, Poly]],
    conds: tuple[Cond, ...],
) -> Cond:  # fmt: skip
    """What must hold for the values of an inversion to be programs, trips and lanes that are there.

    They are if what pins every atom holds of its value: a quotient and a remainder are the only
    numbers of which theirs does.
    """
    ranges = [solver.known[x] for x in inverse.free if x in solver.known]
    values = inverse.complete(*conds, *ranges, *(left for left, _ in equations))
    named = walk(*values.values(), *conds, *(left for left, _ in equations))
    if any(x.kind not in DEFINED for x in inverse.digits) or any(
        x.kind == "unknown" for x in named
    ):
        raise NotInvertible
    defined = [cond for atom in values for cond in pin(atom)]
    met = [eq(substitute(left, values), right) for left, right in equations]
    return every((*met, *(substitute(cond, values) for cond in (*conds, *ranges, *defined))))


# -- tiles ---------------------------------------------------------------------------------------
# a store, its index along each axis, and its programs
Placed = tuple[Access, Sequence[Poly], Sequence[Atom]]


def has_one_program_each(
    solver: Solver, stores: Sequence[Placed], shape: Sequence[Poly], whole: bool = False
) -> bool:
    """Whether each tile is that of one program, so that no element is in two of them.

    An index along an axis is a tile's number and a place in it. Of as many programs as there are
    tiles, which come to all of them, no two come to one: the set is finite. Masks only leave
    elements out. Several stores are parts of one tile, no two of them the same part; of a `whole`
    one they are all.
    """
    named = (("tiles", x.launch, x.shape, x.trips, tuple(at)) for x, at, _ in stores)
    what = (*named, tuple(shape), whole)
    return solver.recall(what, lambda: _has_one_program_each(solver, stores, shape, whole))


def _has_one_program_each(
    solver: Solver, stores: Sequence[Placed], shape: Sequence[Poly], whole: bool
) -> bool:
    (first, at, programs), *_ = stores
    sizes = [find_step([place[axis] for _, place, _ in stores]) for axis in range(len(at))]
    parts: list[tuple[int, ...]] = []
    tiles = [make("floordiv", index, size) for index, size in zip(at, sizes, strict=True)]
    for access, place, own in stores:
        part = _find_part(access, place, sizes)
        same = [make("floordiv", x, size) for x, size in zip(place, sizes, strict=True)] == tiles
        alike = (access.launch, access.shape, own) == (first.launch, first.shape, programs)
        if part is None or part in parts or access.trips or not (same and alike):
            return False
        parts.append(part)
    if whole and len(parts) * math.prod(first.shape) != math.prod(sizes):
        return False
    if not {x for x in walk(*tiles) if is_free(x)} <= set(programs):
        return False
    counts = [count_tiles(n, size) for n, size in zip(shape, sizes, strict=True)]
    grid = [count_programs(solver, x) for x in programs]
    if math.prod(grid, start=term(1)) != math.prod(counts, start=term(1)):
        return False
    targets = [solver.new_symbol("tile") for _ in tiles]
    within = every(lt(x, n) for x, n in zip(targets, counts, strict=True))
    solver.learn(*(eq(x, y) for x, y in zip(tiles, targets, strict=True)))
    return not find_gap(solver, [((), (), tiles)], targets, within)


def _find_part(access: Access, at: Sequence[Poly], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Which part of a tile an access is, counted along each axis; None where it is no such part.

    A tile is cut along an axis into as many as go into it; every lane is one place of a part.
    """
    lanes = {x.atom: n for i, n in enumerate(access.shape) if (x := lane(i, n)).atom is not None}
    part, told = [], set()
    for index, size in zip(at, sizes, strict=True):
        below = index - size * make("floordiv", index, size)
        begin = below.terms.get((), 0)
        atom = (below - begin).atom
        n = 1 if atom is None else lanes.get(atom, 0)
        if (atom is None and below != begin) or not n or size % n or begin % n or begin >= size:
            return None
        told.add(atom)
        part.append(begin // n)
    return tuple(part) if told - {None} == set(lanes) else None


# -- cover ---------------------------------------------------------------------------------------
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
    except NotAffine as error:
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
    except NotAffine:
        return []
