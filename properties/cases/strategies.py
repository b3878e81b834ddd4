"""Hypothesis strategies of the cases of a contract, on and around the tiles of a kernel.

A case is drawn by a fixed number of independent choices, and a smaller choice gives a simpler case:
a side is an index into ascending sizes, among which those around tiles are repeated so that they
are likely. Hypothesis shrinks each choice separately, so a side ends at the boundary of a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from gemmproof.properties.cases.case import Case, side_rank
from gemmproof.properties.cases.corners import LONG_K, find_long_k, list_far
from gemmproof.properties.cases.generate import (
    SMS,
    Survey,
    Tile,
    fit_budget,
    is_admitted,
    list_fills,
    list_groups,
    list_relations,
    list_sizes,
    smallest,
    widest_tile,
)
from gemmproof.properties.cases.layouts import LAYOUTS, ROW
from gemmproof.properties.contract import ROLES, Contract, Sizes
from gemmproof.reference.gpus import COUNTS

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]

MULTIPLES = (1, 2, 3, 5)  # of a tile, around which sides are drawn
BATCHES = (1, 2, 3, 0)
_BY_RANK = {0: 1, 1: 0}  # a side of 1 is simpler than an empty one
_SEEDS = st.sampled_from(range(1000))
LEVELS = 2**15  # of a side, the simplest lowest
# one draw in so many has sides that belong together, is aligned, compared, called several times
TOGETHER, ALIGNED, COMPARED, REPEATED = 3, 4, 12, 4
ALIGNMENT = 16  # elements, of any format at least 16 bytes
DENSE = (ROW, "column")


def sizes(contract: Contract, survey: Survey, config: int = 0) -> st.SearchStrategy[dict[str, int]]:
    """Return admitted sizes by axis: all up to three tiles, more often those around tiles.

    One in three has sizes that belong together: whole tiles, a long K, around constants of the
    source and groups of programs, and, if the contract is `huge`, a result beyond 2**31 elements.
    Shrinks towards sizes of 1, axis by axis.
    """
    tile = widest_tile(survey, config)
    axes = ("M", "N", "K", "batch") if contract.batched else ("M", "N", "K")
    # of different lengths: Hypothesis would copy one side to the other if the choices were equal
    levels = {axis: st.sampled_from(range(LEVELS + i)) for i, axis in enumerate(axes)}
    together = st.sampled_from(_rarely(_list_together(contract, survey, tile), None, TOGETHER))
    listed = {
        axis: _list_sides(contract.sizes(axis), block, survey.splits if axis == "K" else ())
        for axis, block in zip("MNK", tile, strict=True)
    }
    listed["batch"] = tuple(dict.fromkeys(contract.sizes("batch").fit(n) for n in BATCHES))

    @st.composite
    def draw_sizes(draw: Draw) -> dict[str, int]:
        drawn = {axis: draw(level) for axis, level in levels.items()}
        most = draw(together) or {}
        sides = {
            axis: _rise(level, most[axis], contract.sizes(axis))
            if axis in most
            else listed[axis][level * len(listed[axis]) // (LEVELS + len(axes))]
            for axis, level in drawn.items()
        }
        return contract.fit(sides) or smallest(contract, contract.formats[0]).sides

    return draw_sizes()


def _rise(level: int, most: int, admitted: Sizes) -> int:
    """Return the size of a level: from 1 to `most` in the lowest levels, then `most`.

    Never an empty side: without K, no volume limits a result of millions of elements.
    """
    rising = LEVELS // 8
    n = most if level >= min(rising, most) else level if most <= rising else level * most // rising
    return admitted.fit(max(n, 1))


def _align(sides: dict[str, int], contract: Contract) -> dict[str, int]:
    """Return sides cut to multiples of ALIGNMENT, which copy engines and fast paths may need."""
    cut = {axis: n if axis == "batch" else n - n % ALIGNMENT or n for axis, n in sides.items()}
    return contract.fit(cut) or sides


def layouts(contract: Contract) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Return a layout for each of a and b. Shrinks towards row-major, dense operands."""
    names = contract.layout_names
    drawn = (names[0],) * (len(names) // 2) + names
    return st.tuples(*(st.sampled_from([(role, name) for name in drawn]) for role in ROLES))


def data(case: Case) -> st.SearchStrategy[Case]:
    """Return the case with each kind of data of its format. Shrinks to index data with seed 0."""
    fills = list_fills(case.dtype)
    drawn = st.sampled_from((fills[0],) * (len(fills) - 1) + fills)
    return st.builds(lambda fill, seed: replace(case, fill=fill, seed=seed), drawn, _SEEDS)


def cases(contract: Contract, survey: Survey, dtype: str) -> st.SearchStrategy[Case]:
    """Return cases of a contract in one format.

    Shrinks towards the first configuration, then sizes of 1, row-major operands, index data and a
    single call.
    """
    configs = st.sampled_from(range(survey.configs))
    each_sizes = [sizes(contract, survey, config) for config in range(survey.configs)]
    each_layout = layouts(contract)
    counts = tuple(n for n in (None, *SMS) for _ in range(len(COUNTS) // 2)) + COUNTS
    sms = st.sampled_from(counts if survey.asks_sms else (None,))
    calls = st.sampled_from(_rarely((3,), 1, REPEATED))
    arguments = [
        st.sampled_from([(name, x) for x in options]) for name, options in survey.arguments
    ]
    first = {name: options[0] for name, options in survey.arguments}
    relations = st.sampled_from(_rarely(list_relations(contract), None, COMPARED))
    aligned = st.sampled_from(_rarely((True,), False, ALIGNED))

    @st.composite
    def draw_case(draw: Draw) -> Case:
        config = draw(configs)
        sides, is_aligned = draw(each_sizes[config]), draw(aligned)
        by_operand = draw(each_layout)
        chosen = dict(draw(options) for options in arguments)
        if is_aligned:
            sides = _align(sides, contract)
            usual = contract.layout_names[0]
            by_operand = tuple((x, name if name in DENSE else usual) for x, name in by_operand)
            chosen = {n: x if x not in LAYOUTS else first[n] for n, x in chosen.items()}
        case = Case(**sides, dtype=dtype, config=config, layouts=by_operand)
        case = replace(
            draw(data(case)),
            sms=draw(sms),
            calls=draw(calls),
            arguments=tuple((name, x) for name, x in chosen.items() if x != first[name]),
        )
        compare = draw(relations)
        if compare is not None and case.fill != "special":
            fill = "index" if compare == "scaled" else case.fill
            case = replace(case, calls=1, compare=compare, fill=fill)
        if not case.is_sampled:
            case = fit_budget(case, contract, widest_tile(survey, config))
        return case if is_admitted(case, contract) else smallest(contract, dtype)

    return draw_case()


def guard_distance(case: Case, survey: Survey) -> int:
    """Return the least distance of a side from a constant that the source compares sizes with.

    Multiples of the constant count too; 0 if there is no constant.
    """
    sides = (case.M, case.N, case.K)
    return min(
        (abs(n - max(1, round(n / c)) * c) for c in survey.constants for n in sides), default=0
    )


def _rarely(options: Iterable[T], usual: T, one_in: int) -> tuple[T, ...]:
    """Return the usual value and then the options, one of which is drawn once in `one_in`."""
    options = tuple(options)
    return (usual,) * (max(len(options), 1) * (one_in - 1)) + options


@lru_cache(maxsize=256)
def _list_sides(admitted: Sizes, block: int, factors: tuple[int, ...]) -> tuple[int, ...]:
    """List the sizes of an axis, the simplest first.

    Half of the list are all sizes up to three tiles, the other half repeats those on and beside
    multiples of a tile.
    """
    first = admitted.fit(1)
    end = max(3 * block, first + 2 * block) + 2
    every = {n for n in (0, *range(first, end, admitted.step)) if n in admitted} | {first}
    multiples = {q * block for q in (*MULTIPLES, *factors, *(q + 1 for q in factors))}
    near = {admitted.fit(n + beside) for n in multiples for beside in (-1, 0, 1)}
    repeated = [n for n in near for _ in range(max(1, len(every) // len(near)))]
    return tuple(sorted([*every, *repeated], key=side_rank))


@lru_cache(maxsize=64)
def _list_together(contract: Contract, survey: Survey, tile: Tile) -> tuple[dict[str, int], ...]:
    """List sizes that belong together, the smallest first, each kind of them equally likely."""
    bm, bn, bk = tile
    long = find_long_k(tile, survey)
    simplest = smallest(contract, contract.formats[0])
    kinds = [
        [(bm, bn, bk), (2 * bm, 2 * bn, 2 * bk)],  # whole tiles
        [(bm + 1, 1, long), (1, bn + 1, long), (1, 1, LONG_K)],
        list_sizes(survey.constants, tile),
        list_groups(survey.groups, tile),
    ]
    listed = [[dict(zip("MNK", sides, strict=True)) for sides in kind] for kind in kinds]
    listed.append([far.sides for far in list_far(simplest, contract)] if contract.huge else [])
    most = max(map(len, listed))
    repeated = [sides for kind in listed for sides in kind * max(1, most // max(1, len(kind)))]
    return tuple(sorted(repeated, key=lambda sides: sum(sides.values())))
