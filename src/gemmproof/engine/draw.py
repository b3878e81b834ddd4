"""Which cases a check tries, in order: the smallest, what a proof asks for, corners, then draws."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from gemmproof.engine.constants import find_constants
from gemmproof.engine.judge import Judged
from gemmproof.engine.proof import Attempt
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import corners
from gemmproof.properties.cases.generate import (
    MOST_TILES,
    WHOLE,
    Survey,
    draw_case,
    fits_budget,
    probe,
    smallest,
)
from gemmproof.properties.kernel import KernelUnderTest, require_kernel


def list_cases(
    kernel: KernelUnderTest,
    judged: Mapping[Case, Judged],
    attempt: Attempt,
    dtype: str,
    rng: random.Random,
    max_examples: int,
) -> Iterator[Case]:
    """Cases of one format, without end; each is judged before the next one is asked for.

    Of those that a proof asks for, at most half of `max_examples` are tried, besides refutations.
    """
    contract = kernel.contract
    first = smallest(contract, dtype)
    yield first
    yield from attempt.list_refuting(kernel, dtype)
    seen = judged[first]
    usual = Survey().tiles[0]
    tiles = [seen.tiles or usual]
    for config in range(1, max((launch.configs for launch in seen.launches), default=1)):
        one = replace(first, config=config)
        yield one
        tiles.append(judged[one].tiles or usual)
    # a wrapper may choose its tiles by the sizes, and its kernel by the alignment
    whole = probe(contract, dtype, WHOLE)
    probes = [probe(contract, dtype), whole]
    for one in probes:
        yield one
        tiles[one.config] = tuple(dict.fromkeys((*tiles[one.config], *judged[one].tiles)))
        if one is whole and _name_kernels(judged[whole]) - _name_kernels(seen):
            probes += [replace(whole, config=config) for config in range(1, len(tiles))]
        if one is whole and judged[whole].asked_sms:
            probes.append(replace(whole, sms=1))
    given = [pair for one in judged.values() for pair in one.constants]
    asks_sms = any(one.asked_sms for one in judged.values())
    constants = find_constants(kernel.launch, dict.fromkeys(given))
    arguments = tuple(kernel.list_options().items())
    survey = Survey(
        tuple(tiles),
        _list_named("SPLIT", given),
        asks_sms,
        constants,
        _list_named("GROUP", given),
        arguments,
    )
    asked = (c for c in attempt.cases if c.dtype == dtype and fits_budget(c, contract, survey))
    yield from islice(asked, max_examples // 2)
    yield from corners(contract, survey, dtype)
    while True:
        yield draw_case(rng.choice, contract, survey, dtype)


def _name_kernels(judged: Judged) -> set[str]:
    return {launch.kernel for launch in judged.launches}


def _list_named(word: str, given: Iterable[tuple[str, Any]]) -> tuple[int, ...]:
    """The values of constexprs that have a word in their name, and that may count tiles."""
    found = {value for name, value in given if word in name.upper() and type(value) is int}
    return tuple(sorted(value for value in found if 2 <= value <= MOST_TILES))


def require_arguments(
    kernel: KernelUnderTest, max_examples: int, seed: int, case: Case | None
) -> None:
    """Raise ValueError for what no cases can be drawn by, TypeError for what is no kernel."""
    require_kernel("check", kernel)
    if not isinstance(max_examples, int) or isinstance(max_examples, bool) or max_examples < 1:
        raise ValueError(f"check: got {max_examples=}, expected a positive integer")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"check: got {seed=}, expected an integer")
    if case is not None:
        try:
            kernel.require_batch(case)
        except ValueError as mistake:
            raise ValueError(f"check {mistake}") from None
        kernel.require(case)
