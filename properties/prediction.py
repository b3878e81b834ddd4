"""The property that a device's result has the bits that the simulator predicts for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmproof.properties.finding import Finding, find_difference
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic.conversions import Array, bits, widen

NAME = "equals_prediction"


def applies(observation: Observation) -> bool:
    """Whether a device gave a result, and the simulator predicts its bits."""
    expected = observation.predicted
    if expected is None or not observation.has_result:
        return False
    got = observation.result
    return got.dtype == expected.dtype and got.shape == expected.shape


def judge(observation: Observation) -> Iterator[Finding]:
    """One finding at the first element that has other bits."""
    got, expected = observation.result, observation.predicted
    assert expected is not None
    wrong, words = ~agree(got, expected), f" as predicted for {observation.target}"
    finding = find_difference(
        observation, NAME, "not_as_predicted", wrong, (got, ""), (expected, words)
    )
    if finding is not None:
        yield finding


def agree(got: Array, expected: Array) -> Array:
    """Where bits are equal; a NaN is the device's NaN, whatever its payload."""
    equal = np.asarray(bits(got) == bits(expected))
    if got.dtype.kind not in "iu":
        equal |= np.isnan(widen(got)) & np.isnan(widen(expected))
    return equal
