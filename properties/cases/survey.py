"""What the first runs showed of a kernel, and the sizes around the constants that it compares."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest

Tile = tuple[int, int, int]

# Multiply-adds of all tiles of a case, padding included: keeps a case near a tenth of a second.
MAX_VOLUME = 2**25
MOST_STEPS = 512  # K tiles of one case around a constant: the simulator walks them one by one
MOST_TILES = 64  # a larger constant counts no tiles
MOST_GROUPS = 2  # constants that may count them where none is named so


@dataclass(frozen=True, slots=True)
class Survey:
    """What the first runs showed of a kernel.

    `tiles[config]` is the (BLOCK_M, BLOCK_N, BLOCK_K) of each dot of that configuration. `splits`
    are values of constexprs that divide K among programs (SPLIT_K), `named_groups` of those that
    group tiles (GROUP_M), in ascending order. `asks_sms`: whether the wrapper asks how many
    multiprocessors there are. `constants`: what wrapper and kernels compare with and divide by, in
    elements, tiles or products of sides, which no source says. `arguments`: what a case may say of
    each operand besides a and b, the simplest first.
    """

    tiles: tuple[tuple[Tile, ...], ...] = (((16, 16, 16),),)
    splits: tuple[int, ...] = ()
    asks_sms: bool = False
    constants: tuple[int, ...] = ()
    named_groups: tuple[int, ...] = ()
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def configs(self) -> int:
        """How many autotune configurations there are."""
        return len(self.tiles)

    @property
    def groups(self) -> tuple[int, ...]:
        """How many tiles a swizzle groups, at most: what is named so, else what may be."""
        sides = {side for tiles in self.tiles for tile in tiles for side in tile}
        others = (c for c in self.constants if c <= MOST_TILES and c not in sides)
        return self.named_groups[-1:] or tuple(islice(others, MOST_GROUPS))


def measure_volume(sides: Tile, tile: Tile) -> int:
    """Multiply-adds of all tiles of a problem, padding included."""
    return math.prod(max(1, -(-n // block)) * block for n, block in zip(sides, tile, strict=True))


@lru_cache(maxsize=64)
def list_sizes(constants: tuple[int, ...], tile: Tile) -> tuple[Tile, ...]:
    """(M, N, K) on both sides of every constant, the most telling first, the constants in turn.

    A path taken at whole tiles is found where the other sides are whole tiles too, a fault beyond a
    threshold where they are not.
    """
    constants = tuple(c for c in constants if set(tile) != {c})
    units = dict.fromkeys((tile[0] * tile[1], *constants))
    products = chain.from_iterable(_share(c, tile) for c in units)
    turns = zip_longest(*(_around(c, tile) for c in constants), products)
    found = dict.fromkeys(sides for sides in chain(*turns) if sides is not None)
    return tuple(sides for sides in found if _fits(sides, tile))


@lru_cache(maxsize=64)
def list_groups(groups: tuple[int, ...], tile: Tile) -> tuple[Tile, ...]:
    """(M, N, K) of one tile more than a swizzle groups, and of as many.

    Beside several tiles along the other axis: one row or column of them has one order alone. With
    ragged sides and with whole tiles, which a wrapper may give to different kernels.
    """
    bm, bn, bk = tile
    found = [
        sides
        for c in groups
        for sides in (
            (c * bm + 1, 2 * bn - 1, bk - 1),
            (c * bm + bm, 2 * bn, bk),
            (c * bm, 2 * bn, bk),
            (2 * bm - 1, c * bn + 1, bk - 1),
            (2 * bm, c * bn + bn, bk),
        )
    ]
    return tuple(sides for sides in dict.fromkeys(found) if _fits(sides, tile))


def _around(c: int, tile: Tile) -> Iterator[Tile]:
    """Sides of c - 1, c, c + 1 and multiples of c, in elements and in tiles."""
    ragged: Tile = (tile[0] + 1, tile[1] + 1, tile[2] + 1)
    yield from _on_each_axis((c, c, c), tile, tile)
    if c <= MOST_TILES and c not in tile:
        # exactly c tiles of rows, one more, and the same of columns
        bm, bn, bk = tile
        for more in (0, 1):
            yield _shorten((c * bm + more, 2 * bn, bk), tile, 0)
        for more in (0, 1):
            yield _shorten((bm, c * bn + more, bk), tile, 1)
    yield from _on_each_axis((c + 1, c + 1, c + 1), ragged, tile)
    # multiples: of c and of no tile where there is one (3 c), else of both
    multiples = [3 * c if c % b and 3 * c % b else math.lcm(c, b) for b in tile]
    multiples = [2 * c if n == c else n for n in multiples]
    yield from _on_each_axis((multiples[0], multiples[1], multiples[2]), tile, tile)
    yield from _on_each_axis((c - 1, c - 1, c - 1), ragged, tile)


def _on_each_axis(sides: Tile, others: Tile, tile: Tile) -> Iterator[Tile]:
    """One problem with all the sides, or one for each where that is too large."""
    if _fits(sides, tile):
        yield sides
        return
    for axis in (2, 0, 1):
        M, N, K = (sides[i] if i == axis else others[i] for i in range(3))
        yield _shorten((M, N, K), tile, axis)


def _shorten(sides: Tile, tile: Tile, axis: int) -> Tile:
    """The problem with at most one tile along the other axes, where it is too large as it is."""
    if _fits(sides, tile):
        return sides
    M, N, K = (sides[i] if i == axis else min(sides[i], tile[i]) for i in range(3))
    return (M, N, K)


def _share(c: int, tile: Tile) -> Iterator[Tile]:
    """Sides whose products are multiples of c, or just beyond it, while one is no whole tile."""
    for axis in range(3) if c > max(tile) else ():
        half = max(tile[axis] // 2, 1)
        M, N, K = (half if i == axis else _complete(c, half, tile[i]) for i in range(3))
        yield (M, N, K)
    root = math.isqrt(c) + 1
    if root > max(tile):
        yield (root, root, tile[2] + 1)


def _complete(c: int, side: int, block: int) -> int:
    """The least number of whole tiles whose product with `side` is a multiple of c."""
    return math.lcm(c // math.gcd(c, side), block)


def _fits(sides: Tile, tile: Tile) -> bool:
    return measure_volume(sides, tile) <= MAX_VOLUME and sides[2] <= MOST_STEPS * tile[2]
