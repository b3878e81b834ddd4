"""Rounds of timed calls, and the ratios of their times."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmproof.bench.record import FASTER, NOISE, SLOWER, Interval

# -- ratios --------------------------------------------------------------------------------------
RESAMPLES = 10_000
LEVEL = 95  # per cent


def find_interval(ratios: Sequence[float]) -> Interval:
    """Return the median of the ratios of the rounds, and its percentile bootstrap interval.

    The rounds are resampled with replacement RESAMPLES times, from a fixed seed: the same rounds
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
    """Return the lowest and the highest ratio of the rounds of the peer against itself.

    1 always lies within: a control that is shifted as a whole shows a bias, and no difference.
    """
    return min(1.0, *control), max(1.0, *control)


def judge_ratio(ratio: Interval, floor: tuple[float, float]) -> str:
    """Return FASTER or SLOWER if the interval lies beyond the noise floor, else NOISE."""
    if ratio.low > floor[1]:
        return FASTER
    return SLOWER if ratio.high < floor[0] else NOISE


# -- rounds --------------------------------------------------------------------------------------
Run = Callable[[], None]
Timer = Callable[[Run, int], float]

LEG = 0.01  # minimum seconds of a leg, so that a launch is a small part of it


@dataclass(frozen=True, slots=True)
class Rounds:
    """Seconds of one run of each side in each round, the mean of its two legs."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    repeats: int

    @property
    def ratios(self) -> list[float]:
        """The peer's time over ours, round by round: a drift affects both alike."""
        return [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]


def time_rounds(
    timer: Timer,
    ours: Run,
    theirs: Run,
    rounds: int,
    settle: float,
    beat: Run = lambda: None,
    now: Callable[[], float] = time.monotonic,
) -> Rounds:
    """Time two runs against each other; `timer(run, repeats)` gives the seconds of one run.

    Both run in turn for `settle` seconds first: clocks take that long to settle under load. A drift
    that is linear in time cancels in ABBA, and BAAB reverses its sign. `beat` is called before each
    round, and while both settle.
    """
    fastest = min(timer(run, 3) for run in (ours, theirs))
    repeats = max(1, math.ceil(LEG / max(fastest, 1e-7)))
    stop = now() + settle
    while now() < stop:
        beat()
        timer(ours, repeats)
        timer(theirs, repeats)
    our_seconds: list[float] = []
    their_seconds: list[float] = []
    for number in range(rounds):
        beat()
        order = (ours, theirs, theirs, ours) if number % 2 else (theirs, ours, ours, theirs)
        legs = [(run is ours, timer(run, repeats)) for run in order]
        our_seconds.append(sum(seconds for is_ours, seconds in legs if is_ours) / 2)
        their_seconds.append(sum(seconds for is_ours, seconds in legs if not is_ours) / 2)
    return Rounds(tuple(our_seconds), tuple(their_seconds), repeats)
