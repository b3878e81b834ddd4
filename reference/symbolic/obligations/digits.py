"""Indices digit by digit: 64 p + lane, of which 64 is a place and the lane is below it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from gemmproof.reference.symbolic.definitions import LANE
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Cond, Poly, eq, every, lt, make


def split_equal(x: Poly, y: Poly) -> Iterator[Cond]:
    """What follows where two numbers are equal: 64 p + i is 64 q + j where p is q and i is j.

    Equal numbers have equal quotients and remainders; a place counts where neither has to be taken
    apart further.
    """
    for place in sorted({abs(c) for m, c in x.terms.items() if m and abs(c) > 1}):
        below = [_keep(number, place) for number in (x, y)]
        if all(part.most is not None and part.most < place for part in below):
            yield from split_equal(*(make("floordiv", number, place) for number in (x, y)))
            yield from split_equal(*below)
            return
    yield eq(x, y)


def _keep(number: Poly, place: int) -> Poly:
    """The part of a number that is no multiple of a place."""
    return Poly({m: c for m, c in number.terms.items() if c % place})


def new_element(
    solver: Solver, shape: Sequence[Poly], places: Iterable[Sequence[Poly]]
) -> tuple[list[Poly], Cond]:
    """Any index along each axis, and what holds of it.

    Where all places have lanes of one size along an axis it is a tile's number and a lane in it,
    and the number is below that of tiles. A tile is what a program stores, in whatever parts.
    """
    indices: list[Poly] = []
    within: list[Cond] = []
    for axis, n in enumerate(shape):
        size = find_step([at[axis] for at in places])
        tile, lane = solver.new_symbol("element"), solver.new_symbol("element", size - 1)
        indices.append(size * tile + lane)
        within += [lt(lane, size), lt(indices[-1], n), lt(tile, count_tiles(n, size))]
    return indices, every(within)


def count_tiles(n: Poly, size: int) -> Poly:
    """How many tiles an axis has."""
    return make("floordiv", n + size - 1, size)


def find_step(indices: Sequence[Poly]) -> int:
    """How many elements of an axis lie between the lanes of one program and those of the next."""
    size = find_tile(indices)
    steps = (c for index in indices for m, c in index.terms.items() if m and c % size == 0)
    return math.gcd(*steps) or size if size > 1 else 1


def find_tile(indices: Sequence[Poly]) -> int:
    """How many lanes an axis is counted in, 1 where they are not the last digit."""
    sizes = set()
    for index in indices:
        lanes = [x for x in index.atoms if x.kind == "symbol" and x.args[0] == LANE]
        size = lanes[0].args[2] if len(lanes) == 1 and index.terms.get((lanes[0],)) == 1 else 1
        others = (c for m, c in index.terms.items() if lanes and m != (lanes[0],))
        sizes.add(size if all(c % size == 0 for c in others) else 1)
    return sizes.pop() if len(sizes) == 1 else 1
