"""The property that a row's bits do not depend on how many rows there are, where promised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.finding import Finding, Mismatch, make_finding
from gemmproof.properties.observation import Observation, Related, RelatedCall
from gemmproof.reference.arithmetic.conversions import bits

NAME = "row_bits_at_any_m"
COMPARE = "rows"
# one row, few, odd numbers on both sides of usual tiles, a whole tile, one beyond two of them
SIDES = (1, 2, 17, 33, 128, 257)


def calls_at_other_m(observation: Observation) -> Iterator[RelatedCall]:
    """The same rows of a, and the same b, at every M of SIDES that the contract admits."""
    case = replace(observation.case, compare=None, calls=1)
    for side in SIDES:
        other = replace(case, M=side)
        if side != case.M and is_admitted(other, observation.kernel.contract):
            # an element depends on its place alone, so the rows that both have are the same
            yield RelatedCall(other, tensors_of(other), f"M={side}")


def applies(observation: Observation) -> bool:
    """Whether the case was called at other M."""
    return any(_is_compared(observation, other) for other in observation.related)


def judge(observation: Observation) -> Iterator[Finding]:
    """One finding at the first row whose bits differ at another M."""
    first = observation.result
    assert first is not None
    for other in observation.related:
        if not _is_compared(observation, other):
            continue
        assert other.result is not None
        shared = min(first.shape[-2], other.result.shape[-2])
        here, there = first[..., :shared, :], other.result[..., :shared, :]
        wrong = Mismatch.of(bits(here) != bits(there))
        if wrong is not None:
            got = f"{wrong.number(here)} at M={observation.case.M}"
            expected = f"{wrong.number(there)} as at {other.asked.words}"
            note = wrong.counted("differ", "elements of the common rows")
            more = {"operand": "c", "axis": "M"}
            yield make_finding(
                observation, NAME, "bits_differ", wrong.place, got, expected, note, **more
            )
            return


def _is_compared(observation: Observation, other: Related) -> bool:
    related = observation.case.compare == COMPARE
    return related and other.result is not None and other.out is observation.out
