"""Which cases are worth running besides the corners: random ones around a kernel's tiles.

`draw_case` says what is drawn, by one function `choose(options)` that picks from a sequence. The
engine gives it a seeded generator, which costs microseconds, loads nothing and depends on no other
package's version; `cases` gives it to Hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmproof.properties.cases.case import COMPARE, FILLS, FLOAT_FILLS, MAX_ELEMENTS, Case
from gemmproof.properties.cases.survey import MAX_VOLUME, Survey, Tile, list_groups, list_sizes
from gemmproof.properties.contract import AXES, ROLES, Contract
from gemmproof.reference.formats import FORMATS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Choose = Callable[[Sequence[Any]], Any]

SEEDS = range(1, 1000)
# middle sizes, of no tile and of whole tiles; no square: it hides what is transposed
RAGGED, WHOLE = (160, 150, 140), (128, 256, 64)
# One case in this many is compared under each relation.
COMPARED = 120
# the most work that the related calls of a case take, in multiples of its own
RELATED_WORK = {"order": 16, "rows": 12}
SMS = (1, 7)  # one program for every tile, and a number that divides no tile count by design


def smallest(contract: Contract, dtype: str) -> Case:
    """The simplest admitted case that has any work to do."""
    first = {axis: contract.sizes(axis).step for axis in AXES}
    return _make_case(first, contract, dtype)


def probe(contract: Contract, dtype: str, sides: Tile = RAGGED) -> Case:
    """A case of a middle size, for what a wrapper chooses by the sizes and the alignment."""
    return _make_case(dict(zip("MNK", sides, strict=True)) | {"batch": 1}, contract, dtype)


def _make_case(sides: dict[str, int], contract: Contract, dtype: str) -> Case:
    if not contract.batched:
        sides = {axis: sides[axis] for axis in "MNK"}
    # a condition that sizes near these do not meet is met by those that it was accepted for
    starts = (sides, *(dict.fromkeys(sides, n) for n in (1, 16, 128, 1024)))
    fitted: dict[str, Any] = next(filter(None, map(contract.fit, starts)))
    return Case(dtype=dtype, **fitted)


def list_fills(dtype: str) -> tuple[str, ...]:
    """The fills that a format has values for: NaN, Inf and subnormals are no integers."""
    is_float = FORMATS[dtype].kind == "float"
    return tuple(f for f in FILLS if is_float or f not in FLOAT_FILLS)


def list_relations(contract: Contract) -> tuple[str, ...]:
    """The relations between calls that a contract promises."""
    promised = {"rows": contract.batch_invariant, "order": True}
    return tuple(name for name in COMPARE if promised.get(name, contract.symmetric))


def draw_case(choose: Choose, contract: Contract, survey: Survey, dtype: str) -> Case:
    """One case that the contract admits; the first option of every choice is the simplest.

    Order: configuration, M, N, K, batch, layouts, fill, seed, multiprocessors, calls, relation.
    """
    config = choose(range(survey.configs))
    tile = choose(survey.tiles[config])
    sides = dict(zip("MNK", _sides(choose, survey, tile), strict=True))
    if contract.batched:
        sides["batch"] = choose((1, 2, 3, 0))
    fitted: dict[str, Any] = contract.fit(sides) or smallest(contract, dtype).sides
    case = Case(dtype=dtype, config=config, **fitted)
    names = contract.layout_names
    drawn = [(choose(names) if choose((False, True, True)) else names[0]) for _ in ROLES]
    fill = choose(list_fills(dtype)) if choose((False, True)) else FILLS[0]
    seed = choose(SEEDS)
    sms = choose((None, *SMS)) if survey.asks_sms else None
    calls = choose((1, 1, 1, 3))
    layouts = tuple(zip(ROLES, drawn, strict=True))
    case = replace(case, layouts=layouts, fill=fill, seed=seed, sms=sms, calls=calls)
    said = ((name, choose(options)) for name, options in survey.arguments)
    first = dict(survey.arguments)
    arguments = tuple((name, word) for name, word in said if word != first[name][0])
    case = replace(case, arguments=arguments)
    compare = choose((*(None,) * (COMPARED - 1), *list_relations(contract)))
    if compare is not None and fill != "special":
        fill = "index" if compare == "scaled" else fill
        case = replace(case, calls=1, compare=compare, fill=fill)
    fitting = fit_budget(case, contract, tile)
    return fitting if is_admitted(fitting, contract) else smallest(contract, dtype)


def cases(
    contract: Contract, survey: Survey | None = None, dtype: str | None = None
) -> SearchStrategy[Case]:
    """Cases of a contract as a Hypothesis strategy, sizes on and around a kernel's tiles.

    Shrinks towards the first configuration, small M, N and K, row-major operands and index data.
    """
    from hypothesis import strategies as st

    known = survey or Survey()

    @st.composite
    def drawn(draw: Any) -> Case:
        name = dtype or draw(st.sampled_from(contract.formats))
        return draw_case(lambda options: draw(st.sampled_from(options)), contract, known, name)

    return drawn()


def is_admitted(case: Case, contract: Contract) -> bool:
    """Whether the contract promises all that a case needs."""
    return (
        case.dtype in contract.formats
        and (case.batch is not None) == contract.batched
        and {case.layout(name) for name in ROLES} <= set(contract.layout_names)
        and (case.compare is None or case.compare in list_relations(contract))
        and (contract.huge or not case.is_sampled)
        and contract.admits(case.sides)
    )


def fits_budget(case: Case, contract: Contract, survey: Survey) -> bool:
    """Whether a case takes no more work than those that are drawn, or few programs of it run."""
    if case.config >= survey.configs:
        return False
    return case.is_sampled or fit_budget(case, contract, widest_tile(survey, case.config)) == case


def vary(case: Case, contract: Contract, **fields: Any) -> Case | None:
    """The case with other values of some fields, None where the contract admits no such case.

    Nor where it would be sampled, which gives no elements to compare.
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
    """The largest side along each axis of a configuration's tiles."""
    tiles = survey.tiles[config]
    return (max(t[0] for t in tiles), max(t[1] for t in tiles), max(t[2] for t in tiles))


def fit_sides(case: Case, contract: Contract) -> Case:
    """The case with admitted sizes near its own; as it is where there are none."""
    fitted: dict[str, Any] = contract.fit(case.sides) or {}
    return replace(case, **fitted)


def fit_budget(case: Case, contract: Contract, tile: Tile) -> Case:
    """The case with the sides of most tiles cut until the work fits MAX_VOLUME."""
    sides = [case.M, case.N, case.K]
    lead = max(1, case.batch or 1) * case.calls
    lead *= 1 if case.compare is None else RELATED_WORK.get(case.compare, 2)
    for longest in sorted(range(3), key=lambda axis: -sides[axis] // tile[axis]):
        padded = [-(-n // block) * block or 1 for n, block in zip(sides, tile, strict=True)]
        held = sides[0] * sides[2] + sides[2] * sides[1] + sides[0] * sides[1]
        volume = math.prod(padded) * lead
        if volume <= MAX_VOLUME and held * lead <= MAX_ELEMENTS:
            break
        block = tile[longest]
        count = max(1, MAX_VOLUME // (volume // padded[longest] * block))
        side = (count - 1) * block + 1 if count > 1 else block  # one lane into the last tile
        sides[longest] = contract.sizes("MNK"[longest]).fit(min(sides[longest], side))
    return fit_sides(replace(case, M=sides[0], N=sides[1], K=sides[2]), contract)
