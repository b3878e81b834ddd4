"""The obligation that each element is stored once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
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
# its conditions, the trips of its loops, its indices
Source = tuple[tuple[Cond, ...], tuple[Atom, ...], Sequence[Poly]]
# the kinds of atoms that their definitions determine uniquely
DEFINED = ("floordiv", "mod", "div", "rem", "min", "max", "choice", "flag")


def find_gap(
    solver: Solver, sources: Sequence[Source], targets: Sequence[Poly], within: Cond
) -> str:
    """Return why sources are not shown to reach all targets that are `within`, "" if they do."""
    reason = "which program stores an element is no plain sum"
    for splits in (False, True):
        cases: list[tuple[Cond, Cond]] = []
        for source in sources:
            with suppress(NotInvertible):
                cases += _list_ways(solver, source, targets, splits)
        if cases and _covers(solver, cases, within):
            return ""
        reason = "z3 came to no end" if cases else reason
    return reason


def _covers(solver: Solver, cases: list[tuple[Cond, Cond]], within: Cond) -> bool:
    """Return whether every element is reached: in each case by its goal, or by any of them."""
    given, one_by_one = [within], len(cases) > 1
    for case, goal in cases if one_by_one else ():
        one_by_one = one_by_one and solver.follows(goal, *given, case) == YES
        given.append(~case)
    if one_by_one and solver.decide(TRUE, *given) == "unsat":
        return True
    return solver.follows(some(goal for _, goal in cases), within) == YES


def _list_ways(
    solver: Solver, source: Source, targets: Sequence[Poly], splits: bool
) -> Iterator[tuple[Cond, Cond]]:
    """Yield each case of a source's choices, and the condition that it reaches the targets."""
    all_conds, trips, at = source
    for chosen, conds, indices in (
        list_choices(all_conds, tuple(at)) if splits else ((TRUE, all_conds, at),)
    ):
        free = list_free(solver, chosen, *conds, *indices, *map(term, trips))
        inverse = Inversion(free)
        equations = list(zip(indices, targets, strict=True))
        inverse.solve(equations)
        goal = reach(solver, inverse, equations, (chosen, *conds))
        selectors = [x for x in list_parts([goal]) if _is_on_targets(x, targets)]
        yield every((substitute(chosen, inverse.complete(chosen)), *selectors)), goal


def _is_on_targets(cond: Cond, targets: Sequence[Poly]) -> bool:
    """Return whether a condition is on the targets alone, as one that selects the even ones is."""
    return {x for x in walk(cond) if x.is_leaf} <= set(walk(*targets))


def reach(
    solver: Solver, inverse: Inversion, equations: Sequence[tuple[Poly, Poly]],
    conds: tuple[Cond, ...],
) -> Cond:  # fmt: skip
    """Return the condition that an inversion's values are existing programs, trips and lanes.

    They are if the conditions that define each atom (`pin`) hold of its value: a quotient and a
    remainder are the only numbers that satisfy theirs.
    """
    ranges = [solver.known[x] for x in inverse.free if x in solver.known]
    values = inverse.complete(*conds, *ranges, *(left for left, _ in equations))
    atoms = walk(*values.values(), *conds, *(left for left, _ in equations))
    if any(x.kind not in DEFINED for x in inverse.digits) or any(
        x.kind == "unknown" for x in atoms
    ):
        raise NotInvertible
    defined = [cond for atom in values for cond in pin(atom)]
    equalities = [eq(substitute(left, values), right) for left, right in equations]
    return every((*equalities, *(substitute(cond, values) for cond in (*conds, *ranges, *defined))))


# -- tiles ---------------------------------------------------------------------------------------
# a store, its index along each axis, its programs
Placed = tuple[SymbolicAccess, Sequence[Poly], Sequence[Atom]]


def has_one_program_each(
    solver: Solver, stores: Sequence[Placed], shape: Sequence[Poly], whole: bool = False
) -> bool:
    """Return whether each tile belongs to one program, so that no element is in two of them.

    An index along an axis is a tile's number and an offset in the tile. If there are as many
    programs as tiles and they reach all tiles, no two reach the same one: the set is finite. Masks
    only exclude elements. Several stores are distinct parts of one tile; with `whole` they are all
    of its parts.
    """
    stores_key = (("tiles", x.launch, x.shape, x.trips, tuple(at)) for x, at, _ in stores)
    key = (*stores_key, tuple(shape), whole)
    return solver.recall(key, lambda: _has_one_program_each(solver, stores, shape, whole))


def _has_one_program_each(
    solver: Solver, stores: Sequence[Placed], shape: Sequence[Poly], whole: bool
) -> bool:
    (first, at, programs), *_ = stores
    sizes = [find_step([indices[axis] for _, indices, _ in stores]) for axis in range(len(at))]
    parts: list[tuple[int, ...]] = []
    tiles = [make("floordiv", index, size) for index, size in zip(at, sizes, strict=True)]
    for access, indices, own in stores:
        part = _find_part(access, indices, sizes)
        same_tiles = [
            make("floordiv", x, size) for x, size in zip(indices, sizes, strict=True)
        ] == tiles
        same_launch = (access.launch, access.shape, own) == (first.launch, first.shape, programs)
        if part is None or part in parts or access.trips or not (same_tiles and same_launch):
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


def _find_part(
    access: SymbolicAccess, at: Sequence[Poly], sizes: Sequence[int]
) -> tuple[int, ...] | None:
    """Return which part of a tile an access is, counted along each axis, or None if it is none.

    A tile is divided along an axis into as many parts as fit; every lane is one element of a part.
    """
    lanes = {x.atom: n for i, n in enumerate(access.shape) if (x := lane(i, n)).atom is not None}
    part, covered = [], set()
    for index, size in zip(at, sizes, strict=True):
        below = index - size * make("floordiv", index, size)
        begin = below.terms.get((), 0)
        atom = (below - begin).atom
        n = 1 if atom is None else lanes.get(atom, 0)
        if (atom is None and below != begin) or not n or size % n or begin % n or begin >= size:
            return None
        covered.add(atom)
        part.append(begin // n)
    return tuple(part) if covered - {None} == set(lanes) else None


# -- cover ---------------------------------------------------------------------------------------
def judge_twice(
    solver: Solver,
    first: SymbolicAccess,
    second: SymbolicAccess,
    small: tuple[Atom, ...],
    view: Any = None,
) -> Iterator[Verdict]:
    """No two lanes, of any programs and trips, store the same element."""
    text = f"stored once in {first.tensor.name}"
    key = ("twice", first.footprint, second.footprint, _sides(view))
    if solver.remembers(*key):
        yield Verdict(PROVED, text, first.where)
        return
    verdicts = list(_judge_twice(solver, first, second, small, view, text))
    if all(x.status == PROVED for x in verdicts):
        solver.remember(*key)
    yield from verdicts


def _sides(view: Any) -> tuple[Any, ...]:
    return () if view is None else (view.shape, view.strides, view.offset)


def _judge_twice(
    solver: Solver,
    first: SymbolicAccess,
    second: SymbolicAccess,
    small: tuple[Atom, ...],
    view: Any,
    text: str,
) -> Iterator[Verdict]:
    try:
        entries = [(x, *entry) for x in (first, second) for entry in find_places(x, view)]
    except NotAffine as error:
        yield Verdict(OPEN, text, first.where, f"its layout: {error}")
        return
    first_entries = [entry for entry in entries if entry[0] is first]
    second_entries = [entry for entry in entries if entry[0] is second]
    if first is second:
        second_entries = second_entries[len(second_entries) // 2 :]
        first_entries = second_entries
    both = (*first_entries, *second_entries)
    whole = view is None or is_whole(view)
    through = whole and any(is_counted_through(x.tensor, at) for x, _, at in both)
    shape = first.tensor.owner_shape if view is None else view.shape
    flat = through or not all(_is_within(solver, *entry, shape) for entry in both)
    if not flat and _are_tiled(solver, [first] if first is second else [first, second], view):
        yield Verdict(PROVED, text, first.where)
        return
    if flat:
        first_entries, second_entries = (
            [(x, case, _address(x)) for x, case, _ in y] for y in (first_entries, second_entries)
        )
    for i, (x, case_x, at_x) in enumerate(first_entries):
        for y, case_y, at_y in second_entries[i if first is second else 0 :]:
            given = every((x.path, x.mask, case_x))
            other = every((y.path, y.mask, case_y))
            free = list_free(solver, given, other, *at_x, *at_y, *map(term, (*x.trips, *y.trips)))
            free += [p for p in list_others(solver, x) if p not in free]
            swaps = copy_free(solver, free)
            there = substitute(other, swaps)
            equations = [(p, substitute(q, swaps)) for p, q in zip(at_x, at_y, strict=True)]
            differ = _apart(swaps, x.trips if x is y else None)
            yield judge_separate(solver, text, x, (given, there), equations, differ, swaps, small)


def _apart(swaps: dict[Atom, Poly], trips: Sequence[Atom] | None) -> Cond:
    """Return that programs, or lanes of one access, differ: a program may store twice."""
    differ = {x: ~eq(term(x), y) for x, y in swaps.items()}
    programs = some(cond for x, cond in differ.items() if str(x.args[0]).startswith("pid_"))
    if trips is None:
        return programs
    lanes = some(cond for x, cond in differ.items() if x.args[0] == "lane")
    return programs | every((lanes, *(~differ[x] for x in trips)))


def _is_within(
    solver: Solver, access: SymbolicAccess, case: Cond, at: Sequence[Poly], shape: Sequence[Poly]
) -> bool:
    """Return whether indices are within their axes, so that two elements differ in some index."""
    sides = zip(at, shape, strict=True)
    inside = every(cond for x, n in sides for cond in (le(0, x), lt(x, n)))
    return solver.follows(inside, access.path, access.mask, case) == YES


def _address(access: SymbolicAccess) -> tuple[Poly, ...]:
    return (access.term + access.tensor.offset,)


def judge_separate(
    solver: Solver, text: str, access: SymbolicAccess, conds: tuple[Cond, ...],
    equations: Sequence[tuple[Poly, Poly]], differ: Cond, swaps: dict[Atom, Poly],
    small: tuple[Atom, ...],
) -> Verdict:  # fmt: skip
    """Judge whether two instances that meet must be one: their atoms are shown to be equal.

    They meet if the terms of each pair are equal.
    """
    whole = every((*conds, *(eq(x, y) for x, y in equations)))
    equal_parts = every(cond for x, y in equations for cond in split_equal(x, y))
    for unfold, given in ((solver.unfold_near, equal_parts), (solver.unfold, whole)):
        solver.learn(given)
        if _is_one(solver, unfold(given, differ), differ, _pairs(given, swaps)):
            return Verdict(PROVED, text, access.where)
    if solver.decide(differ, whole) == "unsat":
        return Verdict(PROVED, text, access.where)
    doubt = find_unknown(whole)
    if doubt:
        return Verdict(OPEN, text, access.where, doubt)
    model = solver.find(whole, differ, small=small)
    if model is not None:
        return Verdict(REFUTED, text, access.where, model=model)
    return Verdict(OPEN, text, access.where, "z3 came to no end")


def _is_one(
    solver: Solver, facts: list[Cond], differ: Cond, pairs: list[tuple[Atom, Atom]]
) -> bool:
    """Return whether two instances are the same, merging pairs of atoms that are shown equal."""
    merged = True
    while merged:
        if solver.is_ruled_out([*facts, differ]):
            return True
        merged = False
        for x, y in list(pairs):
            if solver.is_ruled_out([*facts, ~eq(term(x), term(y))]):
                facts = [rename(cond, {y: x}) for cond in facts]
                differ = rename(differ, {y: x})
                pairs.remove((x, y))
                merged = True
    return False


def _pairs(whole: Cond, swaps: dict[Atom, Poly]) -> list[tuple[Atom, Atom]]:
    """Return pairs of an instance's atom and its copy, those with the fewest parts first."""
    pairs = []
    for atom in walk(whole):
        other = substitute(term(atom), swaps).atom
        if other is not None and other is not atom:
            pairs.append((atom, other))
    return sorted(dict.fromkeys(pairs), key=lambda p: (not p[0].is_leaf, p[0].number))


def judge_all(
    solver: Solver, stores: Sequence[SymbolicAccess], view: Any = None
) -> Iterator[Verdict]:
    """Every element of a tensor, or of a view of it, is stored by some lane of some program.

    Elements are identified by their index along each axis, or by their address if a store treats a
    dense tensor as one row.
    """
    tensor, where = stores[0].tensor, stores[0].where
    text = f"all of {tensor.name} stored"
    key = ("all", *(store.footprint for store in stores), _sides(view))
    if solver.remembers(*key):
        yield Verdict(PROVED, text, where)
        return
    shape = tensor.owner_shape if view is None else view.shape
    entries_by_store = [_find_indices(store, view) for store in stores]
    if _are_tiled(solver, stores, view, whole=True):
        solver.remember(*key)
        yield Verdict(PROVED, text, where)
        return
    whole = view is None or is_whole(view)
    through = whole and any(
        is_counted_through(tensor, at) for entries in entries_by_store for _, at in entries
    )
    if through and is_dense(tensor):
        entries_by_store = [[(TRUE, _address(store))] for store in stores]
        shape = (math.prod(shape, start=term(1)),)
    targets, within = new_element(
        solver, shape, [at for entries in entries_by_store for _, at in entries]
    )
    sources = [
        ((store.path, store.mask, case), store.trips, at)
        for store, entries in zip(stores, entries_by_store, strict=True)
        for case, at in entries
    ]
    reason = find_gap(solver, sources, targets, within)
    if reason:
        yield Verdict(OPEN, text, where, reason)
        return
    solver.remember(*key)
    yield Verdict(PROVED, text, where)


def _are_tiled(
    solver: Solver, stores: Sequence[SymbolicAccess], view: Any, whole: bool = False
) -> bool:
    """Return whether stores are parts of tiles that belong to one program each.

    If they must be `whole` tiles, no lane within the tensor may be masked.
    """
    shape = stores[0].tensor.owner_shape if view is None else view.shape
    tile_stores = []
    for store in stores:
        access, programs = join_walks(solver, store)
        entries = _find_indices(access, view)
        if [case for case, _ in entries] != [TRUE]:
            return False
        tile_stores.append((access, entries[0][1], programs))
    if not has_one_program_each(solver, tile_stores, shape, whole):
        return False
    for access, at, _ in tile_stores if whole else ():
        inside = every(lt(x, n) for x, n in zip(at, shape, strict=True))
        if solver.follows(access.path & access.mask, inside) != YES:
            return False
    return True


def _find_indices(store: SymbolicAccess, view: Any) -> list[tuple[Cond, tuple[Poly, ...]]]:
    try:
        return find_places(store, view)
    except NotAffine:
        return []
