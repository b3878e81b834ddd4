"""Statistics: intervals that cover what they should, the noise floor, and what may be said."""

from __future__ import annotations

import numpy as np
import pytest

from gemmproof.bench.ratios import find_floor, find_interval, judge_ratio
from gemmproof.bench.records import FASTER, NOISE, SLOWER, Interval


@pytest.mark.lane("full")
def test_the_interval_covers_the_median_in_about_95_of_100_runs() -> None:
    """With 95 % of coverage, 200 runs leave 180..199 covered but once in more than 1000 times."""
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        found = find_interval(list(1.1 + 0.02 * draw.standard_normal(20)))
        covered += found.low <= 1.1 <= found.high
    assert 180 <= covered <= 199


def test_the_same_rounds_give_the_same_interval_around_their_median() -> None:
    ratios = [1.0, 1.2, 0.9, 1.1, 1.05]
    found = find_interval(ratios)
    assert found == find_interval(ratios)
    assert found.median == 1.05
    assert found.low < found.median < found.high
    assert find_interval([1.25]) == Interval(1.25, 1.25, 1.25)
    with pytest.raises(ValueError, match="ratios: got none"):
        find_interval([])


def test_one_outlier_does_not_move_the_median() -> None:
    assert find_interval([1.0] * 19 + [50.0]) == Interval(1.0, 1.0, 1.0)


def test_the_floor_is_the_spread_of_the_control_and_holds_1() -> None:
    assert find_floor([0.99, 1.02, 1.0]) == (0.99, 1.02)
    assert find_floor([1.01, 1.02]) == (1.0, 1.02)
    assert find_floor([0.97, 0.98]) == (0.97, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.03, 1.1, FASTER),
        (1.02, 1.1, NOISE),
        (0.9, 0.98, SLOWER),
        (0.9, 0.99, NOISE),
        (0.5, 1.5, NOISE),
        (1.0, 1.0, NOISE),
    ],
)
def test_a_difference_is_claimed_only_beyond_the_floor(low, high, verdict) -> None:
    assert judge_ratio(Interval((low + high) / 2, low, high), (0.99, 1.02)) == verdict
