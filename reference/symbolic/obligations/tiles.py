"""Tiles and programs in equal number: where each tile has a program, no two have the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.digits import count_tiles, find_tile
from gemmproof.reference.symbolic.obligations.instances import is_free, list_programs
from gemmproof.reference.symbolic.obligations.reaching import find_gap
from gemmproof.reference.symbolic.questions import list_parts
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Atom, Poly, eq, every, lt, make, term, walk


def has_one_program_each(
    solver: Solver, access: Access, at: Sequence[Poly], shape: Sequence[Poly]
) -> bool:
    """Whether each tile is that of one program, so that no element is in two of them.

    An index along an axis is a tile's number and a lane in it. Of as many programs as there are
    tiles, which come to all of them, no two come to one: the set is finite. Masks only leave
    elements out.
    """
    what = ("tiles", access.launch, access.shape, access.trips, tuple(at), tuple(shape))
    return solver.recall(what, lambda: _has_one_program_each(solver, access, at, shape))


def _has_one_program_each(
    solver: Solver, access: Access, at: Sequence[Poly], shape: Sequence[Poly]
) -> bool:
    sizes = [find_tile([index]) for index in at]
    tiles = [make("floordiv", index, size) for index, size in zip(at, sizes, strict=True)]
    below = [index - size * tile for index, size, tile in zip(at, sizes, tiles, strict=True)]
    lanes = {x.atom for i, n in enumerate(access.shape) if (x := lane(i, n)).atom is not None}
    told = {x.atom for x, size in zip(below, sizes, strict=True) if size > 1}
    programs = list_programs(solver, access)
    named = {x for x in walk(*tiles) if is_free(x)}
    if access.trips or told != lanes or not named <= set(programs):
        return False
    counts = [count_tiles(n, size) for n, size in zip(shape, sizes, strict=True)]
    grid = [_count_programs(solver, x) for x in programs]
    if math.prod(grid, start=term(1)) != math.prod(counts, start=term(1)):
        return False
    targets = [solver.new_symbol("tile") for _ in tiles]
    within = every(lt(x, n) for x, n in zip(targets, counts, strict=True))
    solver.learn(*(eq(x, y) for x, y in zip(tiles, targets, strict=True)))
    return not find_gap(solver, [((), (), tiles)], targets, within)


def _count_programs(solver: Solver, program: Atom) -> Poly:
    """The size of the grid along a program's axis, below which the program is known to be."""
    for cond in list_parts([solver.known[program]]):
        if cond.kind == "le" and cond.term is not None and cond.term.terms.get((program,)) == 1:
            return term(program) + 1 - cond.term
    return term(0)
