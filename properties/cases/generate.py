"""Random cases of a contract, and the survey of a kernel that guides them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import Any

from gemmproof.properties.cases.case import COMPARE, FILLS, FLOAT_FILLS, MAX_ELEMENTS, Case
from gemmproof.properties.contract import AXES, MAX_SIDE, ROLES, Contract
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import COUNTS

# -- survey --------------------------------------------------------------------------------------
Tile = tuple[int, int, int]

# Multiply-adds of all tiles of a case, padding included: keeps a case near a tenth of a second.
MAX_VOLUME = 2**25
MOST_STEPS = 512  # K tiles of one case around a constant: the simulator walks them one by one
MOST_TILES = 64  # a larger constant is no number of tiles
MOST_SHAPES = 16  # problems of tables
MOST_GROUPS = 2  # constants tried as a group size if no constexpr is named as one


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts about a kernel from its first runs.

    `tiles[config]` is the (BLOCK_M, BLOCK_N, BLOCK_K) of each dot of that configuration. `splits`
    are values of constexprs that divide K among programs (SPLIT_K), `named_groups` of those that
    group tiles (GROUP_M), in ascending order. `asks_sms`: True if the wrapper asks for the number
    of multiprocessors. `constants`: numbers that wrapper and kernels compare with and divide by, in
    elements, tiles or products of sides, where the source does not say which. `arguments`: the
    values that a case may have for each operand other than a and b, the simplest first. `shapes`:
    the two or three sizes of each key of a table in the source. `choices`: the names of arguments
    that are Python values.
    """

    tiles: tuple[tuple[Tile, ...], ...] = (((16, 16, 16),),)
    splits: tuple[int, ...] = ()
    asks_sms: bool = False
    constants: tuple[int, ...] = ()
    named_groups: tuple[int, ...] = ()
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def configs(self) -> int:
        """The number of autotune configurations."""
        return len(self.tiles)

    @property
    def groups(self) -> tuple[int, ...]:
        """The largest group of tiles of a swizzle: the named one, else the candidates."""
        sides = {side for tiles in self.tiles for tile in tiles for side in tile}
        others = (c for c in self.constants if c <= MOST_TILES and c not in sides)
        return self.named_groups[-1:] or tuple(islice(others, MOST_GROUPS))


def measure_volume(sides: Tile, tile: Tile) -> int:
    """Return the multiply-adds of all tiles of a problem, padding included."""
    return math.prod(max(1, -(-n // block)) * block for n, block in zip(sides, tile, strict=True))


@lru_cache(maxsize=64)
def list_sizes(constants: tuple[int, ...], tile: Tile) -> tuple[Tile, ...]:
    """List (M, N, K) on both sides of every constant, the most revealing first, constants in turn.

    A path taken at whole tiles is reached if the other sides are whole tiles too, a fault beyond a
    threshold if they are not.
    """
    constants = tuple(c for c in constants if set(tile) != {c})
    units = dict.fromkeys((tile[0] * tile[1], *constants))
    products = chain.from_iterable(_share(c, tile) for c in units)
    turns = zip_longest(*(_around(c, tile) for c in constants), products)
    distinct = dict.fromkeys(sides for sides in chain(*turns) if sides is not None)
    return tuple(sides for sides in distinct if _fits(sides, tile))


def list_shapes(shapes: tuple[tuple[int, ...], ...], tile: Tile) -> tuple[Tile, ...]:
    """List (M, N, K) of the shapes that a table has keys for; of two sizes along any two axes."""
    problems: list[Tile] = []
    for sizes in shapes:
        if len(sizes) == 3:
            problems.append((sizes[0], sizes[1], sizes[2]))
            continue
        for axes in ((0, 1), (0, 2), (1, 2)):
            M, N, K = (dict(zip(axes, sizes, strict=True)).get(i, 1) for i in range(3))
            problems.append((M, N, K))
    fitting = (sides for sides in dict.fromkeys(problems) if _fits(sides, tile))
    return tuple(islice(fitting, MOST_SHAPES))


@lru_cache(maxsize=64)
def list_groups(groups: tuple[int, ...], tile: Tile) -> tuple[Tile, ...]:
    """List (M, N, K) of one tile more than a swizzle groups, and of as many.

    With several tiles along the other axis: a single row or column of tiles has only one order.
    With ragged sides and with whole tiles, which a wrapper may give to different kernels.
    """
    bm, bn, bk = tile
    problems = [
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
    return tuple(sides for sides in dict.fromkeys(problems) if _fits(sides, tile))


def _around(c: int, tile: Tile) -> Iterator[Tile]:
    """Yield sides of c - 1, c, c + 1 and multiples of c, in elements and in tiles."""
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
    if c > max(tile):  # beyond it, and one more than whole tiles
        M, N, K = (-(-c // b) * b + 1 for b in tile)
        yield from _on_each_axis((M, N, K), ragged, tile)
    # multiples: of c but not of the tile if possible (3 c), else of both
    multiples = [3 * c if c % b and 3 * c % b else math.lcm(c, b) for b in tile]
    multiples = [2 * c if n == c else n for n in multiples]
    yield from _on_each_axis((multiples[0], multiples[1], multiples[2]), tile, tile)
    yield from _on_each_axis((c - 1, c - 1, c - 1), ragged, tile)


def _on_each_axis(sides: Tile, others: Tile, tile: Tile) -> Iterator[Tile]:
    """Yield one problem with all the sides, or one per axis if that is too large."""
    if _fits(sides, tile):
        yield sides
        return
    for axis in (2, 0, 1):
        M, N, K = (sides[i] if i == axis else others[i] for i in range(3))
        yield _shorten((M, N, K), tile, axis)


def _shorten(sides: Tile, tile: Tile, axis: int) -> Tile:
    """Cut the other axes to at most one tile if the problem is too large."""
    if _fits(sides, tile):
        return sides
    M, N, K = (sides[i] if i == axis else min(sides[i], tile[i]) for i in range(3))
    return (M, N, K)


def _share(c: int, tile: Tile) -> Iterator[Tile]:
    """Yield sides whose products are multiples of c, or just beyond it, one side no whole tile."""
    for axis in range(3) if c > max(tile) else ():
        half = max(tile[axis] // 2, 1)
        M, N, K = (half if i == axis else _complete(c, half, tile[i]) for i in range(3))
        yield (M, N, K)
    root = math.isqrt(c) + 1
    if root > max(tile):
        yield (root, root, tile[2] + 1)


def _complete(c: int, side: int, block: int) -> int:
    """Return the least number of whole tiles whose product with `side` is a multiple of c."""
    return math.lcm(c // math.gcd(c, side), block)


def _fits(sides: Tile, tile: Tile) -> bool:
    if max(sides) > MAX_SIDE:
        return False
    return measure_volume(sides, tile) <= MAX_VOLUME and sides[2] <= MOST_STEPS * tile[2]


# -- generate ------------------------------------------------------------------------------------
Choose = Callable[[Sequence[Any]], Any]

SEEDS = range(1, 1000)
# middle sizes, ragged and of whole tiles; not square: a square hides transposition
RAGGED, WHOLE = (160, 150, 140), (128, 256, 64)
# One case in this many is compared under each relation.
COMPARED = 120
# the work of the related calls of a case, in multiples of the case's work: about, for rows
RELATED_WORK = {"order": 16, "rows": 12}
# at which rows are computed again: one row, two, and both sides of the powers of two that are usual
# tiles and thresholds
OTHER_M = (1, 2, *(2**i + more for i in range(3, 9) for more in (-1, 0, 1)))
SMS = (1, 7)  # one program for every tile, and a number that divides no tile count by design


def smallest(contract: Contract, dtype: str) -> Case:
    """Return the simplest admitted case that has any work to do."""
    first = {axis: contract.sizes(axis).step for axis in AXES}
    return _make_case(first, contract, dtype)


def probe(contract: Contract, dtype: str, sides: Tile = RAGGED) -> Case:
    """Return a case of a middle size, for choices of a wrapper by sizes and alignment."""
    return _make_case(dict(zip("MNK", sides, strict=True)) | {"batch": 1}, contract, dtype)


def _make_case(sides: dict[str, int], contract: Contract, dtype: str) -> Case:
    if not contract.batched:
        sides = {axis: sides[axis] for axis in "MNK"}
    # sizes near these may not meet a condition; those that the contract was checked with do
    starts = (sides, *(dict.fromkeys(sides, n) for n in (1, 16, 128, 1024)))
    return Case(1, 1, 1, dtype).with_sides(next(filter(None, map(contract.fit, starts))))


def list_fills(dtype: str) -> tuple[str, ...]:
    """List the fills that a format has values for: NaN, Inf and subnormals are no integers."""
    is_float = FORMATS[dtype].kind == "float"
    return tuple(f for f in FILLS if is_float or f not in FLOAT_FILLS)


def list_relations(contract: Contract) -> tuple[str, ...]:
    """List the relations between calls that a contract guarantees."""
    guaranteed = {"rows": contract.batch_invariant, "order": True}
    return tuple(name for name in COMPARE if guaranteed.get(name, contract.symmetric))


def draw_case(choose: Choose, contract: Contract, survey: Survey, dtype: str) -> Case:
    """Draw one case that the contract admits; the first option of every choice is the simplest.

    Order: configuration, M, N, K, batch, layouts, fill, seed, multiprocessors, calls, relation.
    """
    config = choose(range(survey.configs))
    tile = choose(survey.tiles[config])
    sides = dict(zip("MNK", _sides(choose, survey, tile), strict=True))
    if contract.batched:
        sides["batch"] = choose((1, 2, 3, 0))
    fitted = contract.fit(sides) or smallest(contract, dtype).sides
    case = Case(1, 1, 1, dtype, config=config).with_sides(fitted)
    names = contract.layout_names
    drawn = [(choose(names) if choose((False, True, True)) else names[0]) for _ in ROLES]
    fill = choose(list_fills(dtype)) if choose((False, True)) else FILLS[0]
    seed = choose(SEEDS)
    sms = choose((None, *SMS, 0)) if survey.asks_sms else None
    sms = choose(COUNTS) if sms == 0 else sms
    calls = choose((1, 1, 1, 3))
    layouts = tuple(zip(ROLES, drawn, strict=True))
    case = replace(case, layouts=layouts, fill=fill, seed=seed, sms=sms, calls=calls)
    choices = ((name, choose(options)) for name, options in survey.arguments)
    first = dict(survey.arguments)
    arguments = tuple((name, value) for name, value in choices if value != first[name][0])
    case = replace(case, arguments=arguments)
    compare = choose((*(None,) * (COMPARED - 1), *list_relations(contract)))
    if compare is not None and fill != "special":
        fill = "index" if compare == "scaled" else fill
        case = replace(case, calls=1, compare=compare, fill=fill)
    fitting = fit_budget(case, contract, tile)
    return fitting if is_admitted(fitting, contract) else smallest(contract, dtype)


def is_admitted(case: Case, contract: Contract) -> bool:
    """Return whether the contract admits everything that a case needs."""
    return (
        case.dtype in contract.formats
        and (case.batch is not None) == contract.batched
        and {case.layout(name) for name in ROLES} <= set(contract.layout_names)
        and (case.compare is None or case.compare in list_relations(contract))
        and (contract.huge or not case.is_sampled)
        and contract.admits(case.sides)
    )


def fits_budget(case: Case, contract: Contract, survey: Survey) -> bool:
    """Return whether a case takes no more work than drawn cases do, or is sampled."""
    if case.config >= survey.configs:
        return False
    return case.is_sampled or fit_budget(case, contract, widest_tile(survey, case.config)) == case


def vary(case: Case, contract: Contract, **fields: Any) -> Case | None:
    """Return the case with other values of some fields, None if the contract admits no such case.

    None also if it would be sampled, which gives no elements to compare.
    """
    try:
        other = replace(case, **fields)
    except ValueError:  # no case is that large
        return None
    return other if is_admitted(other, contract) and not other.is_sampled else None


def _sides(choose: Choose, survey: Survey, tile: Tile) -> Tile:
    if choose((False, False, False, True)):
        sides: Tile = choose(list_sizes(survey.constants, tile) + list_groups(survey.groups, tile))
        return sides
    M, N, K = (_side(choose, n, survey.splits if i == 2 else ()) for i, n in enumerate(tile))
    return (M, N, K)


def _side(choose: Choose, block: int, splits: tuple[int, ...]) -> int:
    kind = choose(("small", "plain", "tile", "tile"))
    if kind == "small":
        return int(choose(range(18)))
    if kind == "plain":
        return int(choose(range(3 * block + 2)))
    q = choose((1, 2, 3, 5, *splits, *(split + 1 for split in splits)))
    return max(0, q * block + choose((0, 1, -1)))


def widest_tile(survey: Survey, config: int) -> Tile:
    """Return the largest side along each axis of a configuration's tiles."""
    tiles = survey.tiles[config]
    return (max(t[0] for t in tiles), max(t[1] for t in tiles), max(t[2] for t in tiles))


def fit_sides(case: Case, contract: Contract) -> Case:
    """Return the case with admitted sizes near its own, or unchanged if there are none."""
    return case.with_sides(contract.fit(case.sides) or {})


def fit_budget(case: Case, contract: Contract, tile: Tile) -> Case:
    """Return the case with the sides of most tiles cut until the work fits MAX_VOLUME."""
    sides = [case.M, case.N, case.K]
    lead = max(1, case.batch or 1) * case.calls
    lead *= 1 if case.compare is None else RELATED_WORK.get(case.compare, 2)
    for longest in sorted(range(3), key=lambda axis: -sides[axis] // tile[axis]):
        padded = [-(-n // block) * block or 1 for n, block in zip(sides, tile, strict=True)]
        element_count = sides[0] * sides[2] + sides[2] * sides[1] + sides[0] * sides[1]
        volume = math.prod(padded) * lead
        if volume <= MAX_VOLUME and element_count * lead <= MAX_ELEMENTS:
            break
        block = tile[longest]
        count = max(1, MAX_VOLUME // (volume // padded[longest] * block))
        side = (count - 1) * block + 1 if count > 1 else block  # one lane into the last tile
        sides[longest] = contract.sizes("MNK"[longest]).fit(min(sides[longest], side))
    return fit_sides(replace(case, M=sides[0], N=sides[1], K=sides[2]), contract)
