"""Tiles and programs in equal number: where each tile has a program, no two have the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.digits import count_tiles, find_step
from gemmproof.reference.symbolic.obligations.instances import is_free
from gemmproof.reference.symbolic.obligations.reaching import find_gap
from gemmproof.reference.symbolic.obligations.walks import count_programs
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Atom, Poly, eq, every, lt, make, term, walk

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
