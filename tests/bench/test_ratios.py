"""Statistics: coverage of intervals, the noise floor, and the verdicts that these allow."""

from __future__ import annotations

import numpy as np
import pytest

from gemmproof.bench.record import FASTER, NOISE, SLOWER, Interval
from gemmproof.bench.statistics import LEG, find_floor, find_interval, judge_ratio, time_rounds


@pytest.mark.lane("full")
def test_the_interval_covers_the_median_in_about_95_of_100_runs() -> None:
    """At 95 % coverage, fewer than 1 in 1000 sets of 200 runs have a count outside 180..199."""
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        interval = find_interval(list(1.1 + 0.02 * draw.standard_normal(20)))
        covered += interval.low <= 1.1 <= interval.high
    assert 180 <= covered <= 199


def test_the_same_rounds_give_the_same_interval_around_their_median() -> None:
    ratios = [1.0, 1.2, 0.9, 1.1, 1.05]
    interval = find_interval(ratios)
    assert interval == find_interval(ratios)
    assert interval.median == 1.05
    assert interval.low < interval.median < interval.high
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


# -- the order of the legs, on a clock that only they move -----------------------------------------
class Bench:
    """A pair of runs; a leg takes the time that `seconds` returns for its side and start."""

    def __init__(self, seconds) -> None:
        self.seconds, self.legs, self.now = seconds, [], 0.0

    def ours(self) -> None:
        """Identify this run; only its identity matters."""

    def theirs(self) -> None:
        """Identify this run; only its identity matters."""

    def timer(self, run, repeats: int) -> float:
        side = run.__name__
        took = self.seconds(side, self.now)
        self.legs.append((side, repeats))
        self.now += took * repeats
        return took

    def time(self, rounds: int, settle: float = 0.0, beat=lambda: None):
        # each access creates a new bound method
        ours, theirs = self.ours, self.theirs
        return time_rounds(self.timer, ours, theirs, rounds, settle, beat, now=lambda: self.now)


def test_legs_run_abba_and_then_baab() -> None:
    bench = Bench(lambda side, now: 0.02)
    bench.time(3)
    a, b = ("theirs", 1), ("ours", 1)
    assert bench.legs[2:] == [a, b, b, a, b, a, a, b, a, b, b, a]
    bench.time(4)
    assert bench.legs[-4:] == [b, a, a, b]


def test_a_ratio_is_the_peers_time_over_ours() -> None:
    timing = Bench(lambda side, now: 0.03 if side == "theirs" else 0.02).time(3)
    assert timing.ratios == pytest.approx([1.5] * 3)
    assert (timing.ours, timing.theirs) == ((0.02,) * 3, (0.03,) * 3)


def test_a_drift_that_is_linear_in_time_cancels() -> None:
    """Legs begin at equal steps: here a leg advances the clock by exactly one."""

    class Stepped(Bench):
        def timer(self, run, repeats):
            self.now += 1
            return 1.0 + 0.1 * self.now

    timing = Stepped(None).time(4)
    assert timing.ratios == pytest.approx([1.0] * 4)


def test_a_leg_lasts_long_enough_on_the_faster_side() -> None:
    bench = Bench(lambda side, now: 1e-3 if side == "theirs" else 4e-4)
    timing = bench.time(1)
    assert timing.repeats * 4e-4 >= LEG > (timing.repeats - 1) * 4e-4
    assert {repeats for _, repeats in bench.legs[2:]} == {timing.repeats}


def test_both_run_in_turn_until_the_clocks_have_settled() -> None:
    beats = []
    bench = Bench(lambda side, now: 0.02)
    bench.time(1, settle=1.0, beat=lambda: beats.append(bench.now))
    sides = [side for side, _ in bench.legs[2:-4]]
    assert sides[:4] == ["ours", "theirs"] * 2
    assert 1.0 <= len(sides) * 0.02 <= 1.05
    assert len(beats) == len(sides) // 2 + 1
