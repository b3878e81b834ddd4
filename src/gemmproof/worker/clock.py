"""The seconds that count against a limit: those of the worker, not those of a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gemmproof.worker.processes import look_at

LONGEST = 0.1  # seconds between two looks, of which a sleeper is believed to have slept them all


class Clock:
    """Counts the seconds in which processes worked or slept.

    CPU time counts, up to the time that passed. A process that sleeps waits for nothing that the
    machine owes it: there the time that passed counts. One that could run but is not given a CPU,
    waits for a disk, or was stopped, spends nothing.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._looked = time.monotonic()
        self._cpu = 0.0

    def advance(self, waits_for_us: bool = False) -> float:
        """The seconds since the last look that count: only CPU time, where one waits for us."""
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        seen = look_at(self._processes())
        if seen is None:  # no /proc here
            return passed
        worked, self._cpu = seen.cpu - self._cpu, seen.cpu
        counts = min(passed, max(0.0, worked))
        return counts if seen.is_busy or waits_for_us else max(counts, min(passed, LONGEST))
