"""Shrinking: the smallest case that still fails, field by field, by bisection of sizes.

The fields of a case are few and ordered, so this takes about thirty runs where shrinking a stream
of random choices takes a hundred, and the contract admits every candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from gemmproof.properties.cases.case import CALLS, FILLS, Case, side_rank
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.contract import ROLES, Contract

SCANNED = 16  # sides tried one by one, where a fault comes and goes with the data

Fails = Callable[[Case], bool | None]


class _Stop(Exception):
    """No more runs are allowed."""


def shrink(case: Case, contract: Contract, fails: Fails) -> Case:
    """Return a case of no larger rank that also fails, of which no single field can be simplified.

    `fails(candidate)` returns whether a case shows the same fault; None, when no more runs are
    allowed, ends the search with the best case so far.
    """
    tried = {case: False}

    def better(candidate: Case) -> bool:
        if candidate not in tried:
            verdict = is_admitted(candidate, contract) and fails(candidate)
            if verdict is None:
                raise _Stop
            tried[candidate] = verdict
        return tried[candidate]

    improved = True
    with suppress(_Stop):
        while improved:
            improved = False
            for candidates in (_launch(case), _data(case), _places(case, contract)):
                for candidate in candidates:
                    simpler = candidate.rank < case.rank or candidate.calls < case.calls
                    if simpler and better(candidate):
                        case, improved = candidate, True
                        break
            for axis in ("batch", "M", "N", "K"):
                smaller = _shorten(case, axis, contract, better)
                if smaller != case:
                    case, improved = smaller, True
    return case


def _launch(case: Case) -> Iterator[Case]:
    for config in range(case.config):
        yield replace(case, config=config)
    if case.compare is not None:
        yield replace(case, compare=None)
    if case.sms is not None:
        yield replace(case, sms=None)
    for calls in CALLS:
        if calls < case.calls:
            yield replace(case, calls=calls)


def _data(case: Case) -> Iterator[Case]:
    for fill in FILLS[: FILLS.index(case.fill) + 1]:
        for seed in (0, 1, 2):
            if (fill, seed) != (case.fill, case.seed):
                yield replace(case, fill=fill, seed=seed)


def _places(case: Case, contract: Contract) -> Iterator[Case]:
    names = contract.layout_names
    yield replace(case, layouts=tuple((operand, names[0]) for operand in ROLES), arguments=())
    for pair in case.arguments:
        yield replace(
            case, arguments=tuple(argument for argument in case.arguments if argument != pair)
        )
    for name in names:
        yield from (case.with_layout(operand, name) for operand in ROLES)


def _shorten(case: Case, axis: str, contract: Contract, better: Callable[[Case], bool]) -> Case:
    """Return the case with the smallest failing side: three by trial, then by bisection.

    Bisection assumes that what fails at one side fails at every longer one.
    """
    side = getattr(case, axis)
    if side is None:
        return case
    sizes = contract.sizes(axis)
    step, least = sizes.step, sizes.fit(0)

    def cut(n: int) -> Case:
        return case.with_sides({axis: n})

    first = max(least, step)
    for n in sorted({first, least, first + step}, key=side_rank):
        if side_rank(n) >= side_rank(side):
            return case
        if better(cut(n)):
            return cut(n)
    passes = first + step
    while side - passes > step:
        middle = passes + (side - passes) // (2 * step) * step
        if better(cut(middle)):
            side = middle
        else:
            passes = middle
    if case.fill != "index":  # failure depends on the data: a shorter side may fail again
        shorter = range(first, side, step)[:SCANNED]
        side = next((n for n in shorter if better(cut(n))), side)
    return cut(side)
