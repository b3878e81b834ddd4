"""The property that a device's result has the bits that the simulator predicts for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmproof.properties.finding import Finding, Mismatch, make_finding
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic.conversions import Array, bits, widen
from gemmproof.reference.formats import FORMATS

NAME = "equals_prediction"


def applies(observation: Observation) -> bool:
    """Whether a device gave a result, and the simulator predicts its bits."""
    got, expected = observation.result, observation.predicted
    if got is None or expected is None:
        return False
    return got.dtype == expected.dtype and got.shape == expected.shape


def judge(observation: Observation) -> Iterator[Finding]:
    """One finding at the first element that has other bits."""
    got, expected = observation.result, observation.predicted
    assert got is not None
    assert expected is not None
    wrong = Mismatch.of(~agree(got, expected))
    if wrong is not None:
        want = f"{wrong.number(expected)} as predicted for {observation.target}"
        note, place = wrong.counted("differ"), wrong.place
        shown = wrong.number(got)
        yield make_finding(
            observation, NAME, "not_as_predicted", place, shown, want, note, operand="c"
        )


def agree(got: Array, expected: Array) -> Array:
    """Where bits are equal; a NaN is the device's NaN, whatever its payload."""
    equal = np.asarray(bits(got) == bits(expected))
    if got.dtype.kind not in "iu":
        equal |= np.isnan(widen(got)) & np.isnan(widen(expected))
    return equal


def sums_are_exact(observation: Observation) -> bool:
    """Whether no order of the sums rounds, so that every order gives the same bits."""
    case = observation.case
    return case.fill == "index" or FORMATS[case.dtype].kind == "int"
