"""The smallest case that still fails: one field at a time, by bisection where fields are sizes.

The fields of a case are few and ordered, so this takes some thirty runs where shrinking a stream
of random choices takes a hundred, and every candidate is a case that the contract admits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gemmproof.properties.cases.case import CALLS, FILLS, Case, side_rank
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.contract import ROLES, Contract

Fails = Callable[[Case], bool | None]


def shrink(case: Case, contract: Contract, fails: Fails) -> Case:
    """A case of no larger rank that fails too, and of which no single field can be simplified.

    `fails(candidate)` says whether a case shows the same fault; None, when no more runs are
    allowed, ends the search with what was found so far.
    """

    tried: dict[Case, bool | None] = {case: False}

    def better(candidate: Case) -> bool | None:
        if candidate not in tried:
            tried[candidate] = is_admitted(candidate, contract) and fails(candidate)
        return tried[candidate]

    improved = True
    while improved:
        improved = False
        for candidates in (_launch(case), _data(case), _places(case, contract)):
            for candidate in candidates:
                if not _simpler(candidate, case):
                    continue
                verdict = better(candidate)
                if verdict is None:
                    return case
                if verdict:
                    case, improved = candidate, True
                    break
        for axis in ("batch", "M", "N", "K"):
            side = getattr(case, axis)
            if side is None:
                continue
            step = 1 if axis == "batch" else contract.multiples["MNK".index(axis)]
            least = 0 if axis == "batch" else -(-contract.min_side // step) * step
            smaller = _smallest(side, least, step, _cut(case, axis, better))
            if smaller is None:
                return case
            if smaller != side:
                case, improved = _with_side(case, axis, smaller), True
    return case


def _with_side(case: Case, axis: str, n: int) -> Case:
    sides: dict[str, Any] = {axis: n}
    return replace(case, **sides)


def _cut(case: Case, axis: str, better: Fails) -> Callable[[int], bool | None]:
    """Whether the case still fails with another length of one side."""
    return lambda n: better(_with_side(case, axis, n))


def _simpler(candidate: Case, case: Case) -> bool:
    return candidate.rank < case.rank or candidate.calls < case.calls


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
    yield replace(case, layouts=tuple((operand, names[0]) for operand in ROLES))
    for name in names:
        yield from (case.with_layout(operand, name) for operand in ROLES)


def _smallest(side: int, least: int, step: int, fails: Callable[[int], bool | None]) -> int | None:
    """The smallest failing size found: three by trial, then by bisection; None to stop."""
    first = max(least, step)
    for n in sorted({first, least, first + step}, key=side_rank):
        if side_rank(n) >= side_rank(side):
            return side
        verdict = fails(n)
        if verdict is None:
            return None
        if verdict:
            return n
    passes = first + step
    while side - passes > step:
        middle = passes + (side - passes) // (2 * step) * step
        verdict = fails(middle)
        if verdict is None:
            return None
        if verdict:
            side = middle
        else:
            passes = middle
    return side
