"""The cases of a check, drawn one after another."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, islice, product
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.engine.proofs import ProofAttempt
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.constants import (
    find_constants,
    find_narrow_bits,
    find_shapes,
)
from gemmproof.properties.cases.corners import corners, exercises, layouts, list_row_cases
from gemmproof.properties.cases.generate import (
    MAX_VOLUME,
    MOST_TILES,
    WHOLE,
    Survey,
    draw_case,
    fits_budget,
    measure_volume,
    probe,
    smallest,
    widest_tile,
)
from gemmproof.properties.contract import MAX_SIDE, Contract
from gemmproof.properties.kernel import READ, KernelUnderTest, Operand, require_kernel, short
from gemmproof.reference.triton_hooks import count_combinations

MOST_COMBINED = 16  # configurations of several tuners that a survey runs
LARGE = 2**29  # multiply-adds of all tiles of a case that only a path needs
MOST_LARGE = 4  # such cases of one format


def list_cases(
    kernel: KernelUnderTest,
    judged: Mapping[Case, CaseResult],
    attempt: ProofAttempt,
    dtype: str,
    rng: random.Random,
    max_examples: int,
) -> Iterator[Case]:
    """Yield cases of one format, without end; each is judged before the next one is drawn.

    Of the first ones two in three exercise the properties, and one in four has data that rounds.
    At most half of `max_examples` are cases that a proof asks for, not counting refutations.
    """
    contract = kernel.contract
    yield smallest(contract, dtype)
    yield from attempt.list_refuting(kernel, dtype)
    survey = yield from _list_survey(kernel, judged, dtype)
    asked = (c for c in attempt.cases if c.dtype == dtype and fits_budget(c, contract, survey))
    of_paths = islice(asked, max_examples // 2)
    paths = (case for _, case in attempt.paths if case.dtype == dtype)
    rows = list_row_cases(contract, survey, dtype, paths)
    yield from _list_large(judged, attempt, dtype, survey)
    yield from _list_counted(kernel, dtype, survey)
    kinds = (maker(contract, survey, dtype) for maker in (corners, layouts))
    turns = (of_paths, of_paths, *kinds, rows)
    first = _interleave(turns, exercises(contract, survey, dtype))
    drawn = (draw_case(rng.choice, contract, survey, dtype) for _ in count())
    kept = frozenset(attempt.cases)
    rounded = _round_some(chain(first, drawn), judged, dtype, kept)
    yield from _round_ways(rounded, judged, dtype, contract)


EXERCISING = 2  # cases that exercise properties for each other one


def _interleave(turns: Iterable[Iterator[Case]], between: Iterator[Case]) -> Iterator[Case]:
    """Yield a new case of each iterator in turn until all end, each followed by some between."""
    seen: set[Case] = set()

    def draw(cases: Iterator[Case], most: int) -> Iterator[Case]:
        for case in islice((case for case in cases if case not in seen), most):
            seen.add(case)
            yield case

    waiting = list(turns)
    while waiting:
        for cases in tuple(waiting):
            drawn = tuple(draw(cases, 1))
            if not drawn:
                waiting.remove(cases)
            else:
                yield from (*drawn, *draw(between, EXERCISING))
    yield from between


ROUNDING = 4  # one case in this many has data that rounds
# data of which results and sums need rounding
ROUNDED_FILLS = ("normal", "positive", "cancelling", "wide", "subnormal")


def _round_some(
    cases: Iterable[Case], judged: Mapping[Case, CaseResult], dtype: str, kept: Collection[Case]
) -> Iterator[Case]:
    """Yield cases of one format, of new ones every fourth or so with data that rounds.

    One of those to be `kept`, one that is compared with another call, and one without a product
    keep their data, and the next one rounds.
    """
    seen, exact = set(judged), 0  # `exact` counts the cases since the last one that rounds
    for case in judged:
        exact = 0 if case.fill in ROUNDED_FILLS or case.dtype != dtype else exact + 1
    for case in cases:
        if case not in seen and case not in kept and exact >= ROUNDING - 1:
            case = _round(case)
        if case not in seen:
            seen.add(case)
            exact = 0 if case.fill in ROUNDED_FILLS else exact + 1
        yield case


MOST_WAYS = 8  # ways of a kernel that get cases of their own, of one format


def _round_ways(
    cases: Iterable[Case],
    judged: Mapping[Case, CaseResult],
    dtype: str,
    contract: Contract,
) -> Iterator[Case]:
    """Yield cases of one format, and more with data that rounds for each way of launching kernels.

    A way is the kernels that a call launches, once or more often, with their constants. One that
    sums in a narrow format, for a long K say, shows it in sums that need rounding, of one sign and
    of both. One that rounds twice shows it in few elements, so one case has many.
    """
    ways, seen, count = set[Any](), set(judged), 0
    for case, result in judged.items():
        if case.dtype == dtype and case.fill in ROUNDED_FILLS:
            ways.add(_find_way(result))
    for case in cases:
        yield case
        if case in seen or case not in judged:
            continue
        seen.add(case)
        way = _find_way(judged[case])
        if case.fill in ROUNDED_FILLS:
            ways.add(way)
        rounding = _round(case)
        if way not in ways and rounding != case and count < MOST_WAYS:
            ways.add(way)
            count += 1
            yield rounding
            yield replace(rounding, fill="positive")
            if (more := _widen(rounding, contract)) is not None:
                yield replace(more, fill="positive")


MANY = 257  # elements of a result, or more


def _widen(case: Case, contract: Contract) -> Case | None:
    """Return the case with a larger result, None if it is large or the contract admits none.

    A single row or column stays one: it may take a path of its own. So does a single element, but
    its path is more often that of a long K.
    """
    if case.M * case.N >= MANY:
        return None
    side = math.isqrt(MANY) + 1
    M = MANY if case.N < case.M else side if case.M == case.N else case.M
    N = MANY if case.M < case.N else side if case.M == case.N else case.N
    sides = contract.fit(case.sides | {"M": M, "N": N})
    return case.with_sides(sides) if sides and sides["K"] == case.K else None


def _find_way(result: CaseResult) -> Any:
    counts = Counter((x.kernel, x.choice) for x in result.launches)
    launches = frozenset((launch, count > result.case.calls) for launch, count in counts.items())
    return launches, frozenset(result.constants)


def _round_in_turn(case: Case, position: int) -> Case:
    return _round(case) if position % ROUNDING == ROUNDING - 1 else case


def _round(case: Case) -> Case:
    """Return the case with data of which its results need rounding, if that leaves its purpose."""
    has_product = min(case.M, case.N, case.K) > 0 and not case.is_sampled
    is_plain = case.fill == "index" and case.compare is None and has_product
    return replace(case, fill="normal") if is_plain else case


def _list_large(
    judged: Mapping[Case, CaseResult], attempt: ProofAttempt, dtype: str, survey: Survey
) -> Iterator[Case]:
    """Yield the case of least work for each path that no case took, because each takes much work.

    Another format may have tried the path before.
    """
    paths: dict[str, list[Case]] = defaultdict(list)
    for label, case in attempt.paths:
        paths[label].append(case)
    count = 0
    for cases in paths.values():
        own = [case for case in cases if case.dtype == dtype and case.config < survey.configs]
        volumes = {case: _measure(case, survey) for case in own if not case.is_sampled}
        least = min(volumes, key=volumes.__getitem__, default=None)
        is_tried = any(x in judged for x in cases)
        if least is None or is_tried or not MAX_VOLUME < volumes[least] <= LARGE:
            continue
        yield least
        count += 1
        if count == MOST_LARGE:
            return


MOST_INDICES = 8  # different ones that are assumed of an operand whose values a function gives


def _list_counted(kernel: KernelUnderTest, dtype: str, survey: Survey) -> Iterator[Case]:
    """Yield cases of longer sides than 8 and 16 bits count.

    Of rows for a kernel that is given row indices, as a wrapper that sorts tokens by their expert
    counts those of each expert; along each axis if the source names such integers.
    """
    given = [x for x in kernel.tensors.values() if _is_index_of_rows(x)]
    values = max((_count_values(x) for x in given), default=0)
    for bits in (8, 16) if given else ():
        case = smallest(kernel.contract, dtype)
        rows = min((values << (bits - 1)) + 1, MAX_SIDE)
        fitted = kernel.contract.fit(case.sides | {"M": rows, "N": 1, "K": 1})
        if fitted and _measure(case.with_sides(fitted), survey) <= LARGE:
            yield case.with_sides(fitted)
    # an index along a side may be cast to the narrow integers that the source names
    for bits, axis in product(find_narrow_bits(kernel.launch), "MNK"):
        case = smallest(kernel.contract, dtype)
        sides = {"M": 1, "N": 1, "K": 1, axis: (1 << max(bits - 1, 8)) + 1}
        fitted = kernel.contract.fit(case.sides | sides)
        if fitted and _measure(case.with_sides(fitted), survey) <= LARGE:
            yield case.with_sides(fitted)


def _is_index_of_rows(x: Operand) -> bool:
    is_index = x.use == READ and x.format in ("int32", "int64") and x.values is not None
    return is_index and "M" in map(str, x.axes)


def _count_values(x: Operand) -> int:
    if x.values is None or callable(x.values):
        return MOST_INDICES
    low, high = x.values
    return int(high - low + 1)


def _measure(case: Case, survey: Survey) -> int:
    tile = widest_tile(survey, case.config)
    return measure_volume((case.M, case.N, case.K), tile) * max(1, case.batch or 1)


def survey_kernel(
    kernel: KernelUnderTest, dtype: str, judge: Callable[[Case], CaseResult]
) -> Survey:
    """Return the survey of a kernel in one format, from a few cases that `judge` judges."""
    first = smallest(kernel.contract, dtype)
    judged = {first: judge(first)}
    listed = _list_survey(kernel, judged, dtype)
    while True:
        try:
            case = next(listed)
        except StopIteration as end:
            survey: Survey = end.value
            return survey
        if case not in judged:
            judged[case] = judge(case)


def _list_survey(
    kernel: KernelUnderTest, judged: Mapping[Case, CaseResult], dtype: str
) -> Generator[Case, None, Survey]:
    """Yield the cases that show tiles and constants; the simplest one is judged before."""
    contract = kernel.contract
    first = smallest(contract, dtype)
    seen = judged[first]
    usual = Survey().tiles[0]
    tiles = [seen.tiles or usual]
    counts = {launch.choice: launch.configs for launch in seen.launches if launch.configs > 1}
    in_step = max(counts.values(), default=1)
    # of tuners that choose independently not every combination
    for config in range(1, min(count_combinations(counts), max(in_step, MOST_COMBINED))):
        case = _round_in_turn(replace(first, config=config), config)
        yield case
        tiles.append(judged[case].tiles or usual)
    # a wrapper may choose its tiles by the sizes, and its kernel by the alignment
    whole = probe(contract, dtype, WHOLE)
    probes = [probe(contract, dtype), whole]
    for position, plain in enumerate(probes, start=len(tiles)):
        case = _round_in_turn(plain, position)
        yield case
        tiles[case.config] = tuple(dict.fromkeys((*tiles[case.config], *judged[case].tiles)))
        if plain is whole and _label_kernels(judged[case]) - _label_kernels(seen):
            probes += [replace(whole, config=config) for config in range(1, len(tiles))]
        if plain is whole and judged[case].asked_sms:
            probes.append(replace(whole, sms=1))
    constexprs = [pair for result in judged.values() for pair in result.constants]
    return Survey(
        tuple(tiles),
        _list_named("SPLIT", constexprs),
        any(result.asked_sms for result in judged.values()),
        find_constants(kernel.launch, dict.fromkeys(constexprs)),
        _list_named("GROUP", constexprs),
        tuple(kernel.list_options().items()),
        find_shapes(kernel.launch),
        tuple(kernel.choices),
    )


def _label_kernels(judged: CaseResult) -> set[str]:
    return {launch.kernel for launch in judged.launches}


def _list_named(word: str, constexprs: Iterable[tuple[str, Any]]) -> tuple[int, ...]:
    """Return the values of constexprs whose name has a word, and that may count tiles."""
    values = {value for name, value in constexprs if word in name.upper() and type(value) is int}
    return tuple(sorted(value for value in values if 2 <= value <= MOST_TILES))


def require_arguments(
    kernel: KernelUnderTest, max_examples: int, seed: int, case: Case | None
) -> None:
    """Raise ValueError for arguments that are out of range, TypeError for no kernel or case."""
    require_kernel("check", kernel)
    if not isinstance(max_examples, int) or isinstance(max_examples, bool) or max_examples < 1:
        raise ValueError(f"check: got {max_examples=}, expected a positive integer")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"check: got {seed=}, expected an integer")
    if case is not None:
        if not isinstance(case, Case):
            raise TypeError(f"check: got {short(case)}, expected a Case")
        try:
            kernel.require_batch(case)
        except ValueError as error:
            raise ValueError(f"check {error}") from None
        kernel.require(case)
