"""The order of the legs: each round runs both sides twice, ABBA and then BAAB."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[], None]
Timer = Callable[[Run, int], float]

LEG = 0.01  # seconds that a leg lasts at least, so that a launch is small in it


@dataclass(frozen=True, slots=True)
class Rounds:
    """Seconds of one run of each side in each round, the mean of its two legs."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    repeats: int

    @property
    def ratios(self) -> list[float]:
        """The peer's time over ours, round by round: what drifts is the same for both."""
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

    Both run in turn for `settle` seconds first: clocks take as long to find their level under load.
    A drift that is linear in time cancels in ABBA, and what BAAB changes in it is its sign. `beat`
    is called before each round, and while both settle.
    """
    fastest = min(timer(run, 3) for run in (ours, theirs))
    repeats = max(1, math.ceil(LEG / max(fastest, 1e-7)))
    stop = now() + settle
    while now() < stop:
        beat()
        timer(ours, repeats)
        timer(theirs, repeats)
    mine: list[float] = []
    others: list[float] = []
    for number in range(rounds):
        beat()
        order = (ours, theirs, theirs, ours) if number % 2 else (theirs, ours, ours, theirs)
        legs = [(run is ours, timer(run, repeats)) for run in order]
        mine.append(sum(seconds for is_ours, seconds in legs if is_ours) / 2)
        others.append(sum(seconds for is_ours, seconds in legs if not is_ours) / 2)
    return Rounds(tuple(mine), tuple(others), repeats)
