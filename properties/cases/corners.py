"""Cases around the corners of tiles, and views far from their origin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import (
    ODD_SEED,
    TIE_ROWS,
    ZERO_LINES_SEED,
    ZERO_SEEDS,
)
from gemmproof.properties.cases.generate import (
    MAX_VOLUME,
    OTHER_M,
    SMS,
    Survey,
    Tile,
    fit_budget,
    fit_sides,
    is_admitted,
    list_fills,
    list_groups,
    list_relations,
    list_shapes,
    list_sizes,
    measure_volume,
    smallest,
    vary,
    widest_tile,
)
from gemmproof.properties.cases.layouts import HUGE, LAYOUTS, WIDE
from gemmproof.properties.contract import MAX_SIDE, ROLES, Contract
from gemmproof.properties.kernel import NONE
from gemmproof.reference.gpus import COUNTS

# -- views far from their origin -----------------------------------------------------------------
MAX_GIVEN = 2**23  # elements of a and b: making more takes time
# (M, N, batch), to be fitted to a contract; about a third of c lies beyond 2**31 elements
PLACES = ((57344, 57344, 1), (65536, 49152, 1), (49152, 65536, 1))
BATCHES = ((34816, 32768, 3), (8192, 8192, 48), (2048, 2048, 800))


def list_far(case: Case, contract: Contract) -> Iterator[Case]:
    """Yield the case with a c beyond 2**31 elements: whole tiles, ragged tiles, one batch, several.

    None if the contract has no such sizes, or a and b would be large, too.
    """
    for sizes in (PLACES, BATCHES) if contract.batched else (PLACES,):
        for more in (0, -1):
            cases = (_make_far(case, contract, size, more) for size in sizes)
            yield from [c for c in cases if c is not None][:1]


def _make_far(case: Case, contract: Contract, size: tuple[int, int, int], more: int) -> Case | None:
    M, N, batch = size
    sides = {"M": M + more, "N": N + 3 * more, "K": case.K}
    fitted = contract.fit(sides | {"batch": batch} if contract.batched else sides)
    try:
        far = case.with_sides(fitted or {})
    except ValueError:  # no case is that large
        return None
    operand_count = (far.M + far.N) * far.K * (far.batch or 1)
    return far if math.prod(far.result_shape) > WIDE and operand_count <= MAX_GIVEN else None


# -- corners of tiles ----------------------------------------------------------------------------
LONG_K = 4096  # a sum that a narrow accumulator cannot hold
MOST_ROW_CASES = 8  # each has about 25 calls
EARLY_VALUES = 2  # of further arguments, before sides around tiles
MOST_SIZES = 24  # corners around constants; the others are drawn


def corners(contract: Contract, survey: Survey, dtype: str) -> Iterator[Case]:
    """Yield the cases that every check starts with, the most revealing first, all admitted."""
    return _admit(_corners(contract, survey, dtype), contract, survey)


def exercises(contract: Contract, survey: Survey, dtype: str) -> Iterator[Case]:
    """Yield cases that exercise every property and relation of a contract, all admitted."""
    for case in _admit(_exercises(contract, survey, dtype), contract, survey):
        if case.compare == "transposed" and not vary(case, contract, M=case.N, N=case.M):
            # sizes of N may be no sizes of M
            case = vary(case, contract, M=case.N) or vary(case, contract, N=case.M) or case
        yield case


def layouts(contract: Contract, survey: Survey, dtype: str) -> Iterator[Case]:
    """Yield a case of each usual layout of each operand, all admitted."""
    first, _ = _simplest(contract, survey, dtype)
    case = replace(first, M=11, N=27, K=widest_tile(survey, 0)[2] + 3)
    names = (name for name in contract.layout_names[1:] if name not in HUGE)
    cases = (case.with_layout(operand, name) for name in names for operand in ROLES)
    return _admit(cases, contract, survey)


def _admit(cases: Iterable[Case], contract: Contract, survey: Survey) -> Iterator[Case]:
    """Yield cases with sizes that the contract and the budget admit, each once."""
    seen: set[Case] = set()
    for case in cases:
        if not case.is_sampled:
            case = fit_budget(fit_sides(case, contract), contract, widest_tile(survey, case.config))
        if case not in seen and is_admitted(case, contract):
            seen.add(case)
            yield case


def _exercises(contract: Contract, survey: Survey, dtype: str) -> Iterator[Case]:
    first, small = _simplest(contract, survey, dtype)
    bm, bn, bk = widest_tile(survey, 0)
    # several programs, three calls, sums that round
    yield replace(first, M=bm + 1, N=bn + 1, K=bk + 1, fill="normal", seed=1, calls=3)
    # short sums of narrow formats fit into fp32
    long = replace(small, K=LONG_K, fill="positive", seed=1)
    kinds = (*_kinds(small, contract, early=True), long, *_kinds(small, contract, early=False))
    values = _list_values(small, survey)
    if values:  # few cases: one shows a value and the order of calls
        order = next(case for case in kinds if case.compare == "order")
        yield replace(order, arguments=values[0].arguments)
        yield from (case for case in kinds if case.fill == "special")
    for turn in zip_longest((*values[1:], *values[:1]), kinds):
        yield from (case for case in turn if case is not None)


def _list_values(small: Case, survey: Survey) -> list[Case]:
    """List a case of each further value of the arguments, first where one is omitted, in turn.

    Layouts are none of these values.
    """
    options = [
        [(name, value) for value in values[1:] if value not in LAYOUTS]
        for name, values in survey.arguments
    ]
    pairs = [pair for turn in zip_longest(*options) for pair in turn if pair is not None]
    pairs.sort(key=lambda pair: pair[1] != NONE)
    M = widest_tile(survey, 0)[0] + 1
    return [replace(small, M=M, arguments=(pair,)) for pair in pairs]


def _simplest(contract: Contract, survey: Survey, dtype: str) -> tuple[Case, Case]:
    """Return the case of one element, and one of less than a tile along M and N."""
    simplest = smallest(contract, dtype)
    first = replace(simplest, batch=None if simplest.batch is None else 2)
    return first, replace(first, M=7, N=6, K=widest_tile(survey, 0)[2] + 3)


def _corners(contract: Contract, survey: Survey, dtype: str) -> Iterator[Case]:
    simplest = smallest(contract, dtype)
    bm, bn, bk = widest_tile(survey, 0)
    sides = [
        (bm + 1, bn + 1, bk + 1),
        (bm, bn, bk),
        (bm, bn, 0),
        (bm - 1, 2 * bn + 1, 2 * bk),
        (2 * bm + 1, bn - 1, 2 * bk + 1),
        (3 * bm, 2 * bn, bk - 1),
        (0, bn, bk),
        (bm, 0, bk),
        (5 * bm + 1, 1, 1),
        (1, 5 * bn + 1, 1),
    ]
    first, small = _simplest(contract, survey, dtype)
    yield from _list_values(small, survey)[1 : 1 + EARLY_VALUES]
    for position, (M, N, K) in enumerate(sides):
        # half of them, including the first, are called three times over uninitialised memory
        yield replace(first, M=M, N=N, K=K, calls=1 if position % 2 else 3)
        if position == 0:
            yield from _kinds(small, contract, early=True)
    # dense along K or across it: the usual layouts of tensor cores, and of copy engines
    whole = replace(first, M=2 * bm, N=2 * bn, K=2 * bk)
    for names in (("row", "column"), ("column", "row"), ("column", "column")):
        if {*names} <= {*contract.layout_names}:
            yield replace(whole, layouts=tuple(zip(ROLES, names, strict=True)))
    for name, options in survey.arguments:
        for value in options[1:]:
            yield replace(small, M=bm + 1, arguments=((name, value),))
            if name in survey.choices:  # which may decide by whole tiles and alignment
                yield replace(whole, arguments=((name, value),))
    for config in range(survey.configs):
        bm, bn, bk = widest_tile(survey, config)
        yield replace(first, M=bm + 1, N=bn + 1, K=2 * bk + 1, config=config)
        for m, n, k in survey.tiles[config][1:]:
            yield replace(first, M=m + 1, N=n + 1, K=k + 1, config=config)
            aligned = replace(first, M=m + 1, N=2 * n, K=2 * k, config=config)
            yield aligned
            if survey.asks_sms:  # the number of multiprocessors may decide the tile as well
                yield replace(aligned, sms=1)
    bm, bn, bk = widest_tile(survey, 0)
    for split in survey.splits:
        for K in (bk * split, bk * split + 1, bk * (split - 1), bk * split - 1, bk * (split + 1)):
            yield replace(first, M=3, N=5, K=K)
    for sms in SMS if survey.asks_sms else ():
        for M, N in ((3 * bm + 1, 3 * bn), (5 * bm, 2 * bn + 1)):
            yield replace(first, M=M, N=N, K=bk + 1, sms=sms)
        yield replace(first, M=2 * bm + 1, N=2 * bn, K=2 * bk, sms=sms)
    # one tile more than a GPU has multiprocessors, along either axis
    for position, sms in enumerate(COUNTS if survey.asks_sms else ()):
        M, N = (sms * bm + 1, bn) if position % 2 else (bm, sms * bn + 1)
        if measure_volume((M, N, 1), (bm, bn, bk)) <= MAX_VOLUME:
            yield replace(simplest, M=M, N=N, K=1, sms=sms)
    # one program walks several tiles in the other configurations, whose tiles have other sides
    for config in range(1, survey.configs if survey.asks_sms else 1):
        m, n, k = widest_tile(survey, config)
        yield replace(first, M=2 * m + 1, N=2 * n + 1, K=k + 1, config=config, sms=1)
    # many tiles, in the configuration where they are the least work
    least = min(range(survey.configs), key=lambda config: math.prod(widest_tile(survey, config)))
    for M, N, K in list_groups(survey.groups, widest_tile(survey, least)):
        yield replace(simplest, M=M, N=N, K=K, config=least)
    # an empty K may have its own kernel, without a dot that shows the tile
    most = [max(sides) for sides in zip(*chain.from_iterable(survey.tiles), strict=True)]
    for count in survey.groups:
        yield replace(simplest, M=count * most[0] + 1, N=2 * most[1] - 1, K=0)
    yield from _kinds(small, contract, early=False)
    for fill in (f for f in list_fills(dtype)[1:] if f != "special"):
        calls = 3 if fill == "normal" else 1
        M = TIE_ROWS if fill == "ties" else 7
        yield replace(first, M=M, N=5, K=3 * bk + 1, fill=fill, seed=1, calls=calls)
    # one column or one row may take its own path, for which K has to be long
    long = find_long_k((bm, bn, bk), survey)
    for M, N in ((bm + 1, 1), (1, bn + 1)):
        yield replace(simplest, M=M, N=N, K=long, fill="normal", seed=1)
    # sums of one sign over a long K, which a narrow accumulator cannot hold
    yield replace(simplest, K=LONG_K, fill="positive", seed=1)
    for name in contract.layout_names[1:]:
        for operand in ROLES:
            # the last of three matrices is the one that lies far away
            batch = 3 if name == "narrow_batch" else first.batch
            # a far matrix: the largest offset within one tile too
            # the step to a second tile of one column is as large as the offset of its end
            for K in (bk + 1, 3) if name in HUGE else (bk + 3,):
                # columns of a transposed a and rows of a padded b are whole multiples of 16
                # elements apart, which allows vectors, and 11 and 27 are no whole vectors
                M, N = (5, 7) if name in HUGE else (11, 27)
                case = replace(first, M=M, N=N, K=K, batch=batch)
                yield case.with_layout(operand, name)
    # views of one row and of one column, and bases between the vectors of rows that are whole ones
    for name in ("sliced", "transposed"):
        for M, N in ((1, bn + 1), (bm + 1, 1)) if name in contract.layout_names else ():
            yield replace(first, M=M, N=N, K=bk + 3, layouts=tuple((x, name) for x in ROLES))
    for operand in ROLES if "misaligned" in contract.layout_names else ():
        yield replace(first, M=2 * bm, N=2 * bn, K=2 * bk).with_layout(operand, "misaligned")
    yield from list_far(simplest, contract)
    zeros = "special" if simplest.format.kind == "float" else "wide"
    for seed in (*ZERO_SEEDS, ZERO_LINES_SEED):
        yield replace(small, K=2 * small.K, fill=zeros, seed=seed)
    for seed in ZERO_SEEDS:  # all of an operand is zeros
        yield replace(small, K=1, fill=zeros, seed=seed)
    for M, N, K in list_shapes(survey.shapes, (bm, bn, bk)):
        yield replace(simplest, M=M, N=N, K=K)
    for M, N, K in list_sizes(survey.constants, (bm, bn, bk))[:MOST_SIZES]:
        yield replace(simplest, M=M, N=N, K=K)


def list_row_cases(
    contract: Contract, survey: Survey, dtype: str, paths: Iterable[Case]
) -> Iterator[Case]:
    """Yield cases whose rows are computed again at other M: around a kernel's own thresholds.

    They are the M of cases that each take another path, and the constants that M may be compared
    with. The sums have more than one tile of K, and cancel, which shows every rounding.
    """
    if "rows" not in list_relations(contract):
        return
    tile = widest_tile(survey, 0)
    long = 2 * (tile[2] + 3)
    first = replace(smallest(contract, dtype), seed=1, fill="cancelling", compare="rows")
    sides = [(case.M, max(long, case.K)) for case in paths]
    sides += [(c + more, long) for c in survey.constants for more in (0, 1) if c < MAX_SIDE]
    count = 0
    for M, K in dict.fromkeys(sides):
        case = fit_sides(replace(first, M=M, N=3 * tile[1] // 4, K=K), contract)
        if case.M not in OTHER_M and measure_volume((case.M, case.N, case.K), tile) <= MAX_VOLUME:
            yield case
            count += 1
        if count == MOST_ROW_CASES:
            return


def find_long_k(tile: Tile, survey: Survey) -> int:
    """Return a K beyond four tiles and all constants but very large ones."""
    return max(4 * tile[2], *(c for c in survey.constants if c < LONG_K), 0) + 1


def _kinds(case: Case, contract: Contract, early: bool) -> Iterator[Case]:
    """Yield one case of each relation between calls, and one of odd values; early, per property."""
    base = replace(case, seed=1)
    for compare in list_relations(contract):
        if (compare in ("negated", "order", "rows")) == early:
            fill = "index" if compare in ("scaled", "order") else "normal"
            related = replace(base, compare=compare, fill=fill)
            if compare == "rows":
                # sums that cancel show rounding that a result of 16 bits hides elsewhere, and all
                # terms of an even K have one that cancels them
                K = case.K - case.K % 2
                related = replace(related, M=33, N=8 * case.N, K=K, fill="cancelling")
                yield replace(related, K=2 * K)
            yield related
    if early and case.format.kind == "float":
        yield replace(base, fill="special", M=37, N=43, seed=ODD_SEED)
