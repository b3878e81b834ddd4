"""The property that a row's bits do not depend on how many rows there are, where promised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.operands import operands
from gemmproof.properties.outcome import Asked, Outcome
from gemmproof.properties.strategies import admitted
from gemmproof.reference.formats import Array, bits

NAME = "row_bits_at_any_m"
COMPARE = "rows"
# one row, few, odd numbers on both sides of usual tiles, a whole tile, one beyond two of them
SIDES = (1, 2, 17, 33, 128, 257)


def asked(outcome: Outcome) -> Iterator[Asked]:
    """The same rows of a, and the same b, at every M of SIDES that the contract admits."""
    case = replace(outcome.case, compare=None, calls=1)
    for side in SIDES:
        other = replace(case, M=side)
        if side != case.M and admitted(other, outcome.kernel.contract):
            # an element depends on its place alone, so the rows that both have are the same
            a, b = operands(other)
            yield Asked(other, a.tensor, b.tensor, shape_of(other), f"M={side}")


def applies(outcome: Outcome) -> bool:
    """Whether the contract promises it and the case was called at other M."""
    promised = outcome.kernel.contract.batch_invariant
    return promised and any(_compared(outcome, i) for i in range(len(outcome.twins)))


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding at the first row whose bits differ at another M."""
    first = outcome.result
    assert first is not None
    for i, twin in enumerate(outcome.twins):
        if not _compared(outcome, i):
            continue
        assert twin.result is not None
        shared = min(first.shape[-2], twin.result.shape[-2])
        here, there = first[..., :shared, :], twin.result[..., :shared, :]
        wrong = bits(here) != bits(there)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            got = f"{shown(here, at)} at M={outcome.case.M}"
            expected = f"{shown(there, at)} as at {twin.asked.words}"
            yield Finding(
                property=NAME,
                fault="bits_differ",
                message=f"c{list(at)}: got {got}, expected {expected}; {int(wrong.sum())} of"
                f" {wrong.size} elements of the common rows differ",
                case=outcome.case,
                operand="c",
                axis="M",
                got=got,
                expected=expected,
            )
            return


def _compared(outcome: Outcome, i: int) -> bool:
    twin = outcome.twins[i]
    return outcome.case.compare == COMPARE and twin.result is not None and twin.out is outcome.out


def shape_of(case: Case) -> tuple[int, ...]:
    """The shape of c."""
    return (*case.lead, case.M, case.N)


def shown(x: Array, at: tuple[int, ...]) -> str:
    """An element and its bits."""
    return f"{x[at]} (0x{int(bits(x)[at]):0{2 * x.itemsize}x})"
