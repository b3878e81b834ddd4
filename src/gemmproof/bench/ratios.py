"""Statistics of a comparison: the interval of a ratio, the noise floor, and what may be said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmproof.bench.records import FASTER, NOISE, SLOWER, Interval

RESAMPLES = 10_000
LEVEL = 95  # per cent


def find_interval(ratios: Sequence[float]) -> Interval:
    """The median of the ratios of the rounds, and the percentile bootstrap interval of it.

    The rounds are drawn anew with replacement RESAMPLES times, from a fixed seed: the same rounds
    give the same interval (Efron and Tibshirani, An Introduction to the Bootstrap, section 13.3).
    Raises ValueError for no ratios.
    """
    if not ratios:
        raise ValueError("ratios: got none, expected one for each round")
    data = np.asarray(ratios, dtype=np.float64)
    drawn = np.random.default_rng(0).integers(0, len(data), (RESAMPLES, len(data)))
    medians = np.median(data[drawn], axis=1)
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return Interval(float(np.median(data)), float(low), float(high))


def find_floor(control: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest ratio of the rounds in which the peer ran against itself.

    1 always lies within: a control that is shifted as a whole shows a bias, and no difference.
    """
    return min(1.0, *control), max(1.0, *control)


def judge_ratio(ratio: Interval, floor: tuple[float, float]) -> str:
    """FASTER or SLOWER where the interval lies beyond the noise floor, else NOISE."""
    if ratio.low > floor[1]:
        return FASTER
    return SLOWER if ratio.high < floor[0] else NOISE
