"""Shrinking of a case that kills its process: every candidate runs in a forked child."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.shrink import shrink
from gemmproof.properties.contract import Contract
from gemmproof.reference.provenance import Heartbeat
from gemmproof.worker.processes import Clock, die_with_parent, resident

SURVIVED = 86  # exit status of a child that survived the case
TICK = 0.01  # seconds between two polls of a child
MOST_RUNS = 60  # of the whole search
HASTE = 10  # the first candidates have this fraction of the time limit


def smallest(
    case: Case,
    contract: Contract,
    run: Callable[[Case], object],
    end: str,
    limits: tuple[float, int],
    tried: Callable[[], None],
) -> Case:
    """Return the smallest case found that ends as `case` did: "crash", "hang" or "memory".

    `limits` are seconds and bytes for one case; `tried` is called after each.
    """
    seconds, memory = limits
    allowed = seconds / HASTE if end == "hang" else seconds
    survivors: set[Case] = set()
    runs = 0

    def fails(candidate: Case) -> bool | None:
        nonlocal runs
        if candidate in survivors:
            return False
        if runs >= MOST_RUNS:
            return None
        runs += 1
        fate = _end_of(run, candidate, allowed, memory)
        tried()
        if fate == "done":
            survivors.add(candidate)
        return fate == end

    while True:
        smaller = shrink(case, contract, fails)
        if smaller == case or allowed == seconds:
            return smaller
        if _end_of(run, smaller, seconds, memory) == end:
            return smaller
        # a candidate was slow, which is no proof that it never ends: try again with more time
        allowed = min(4 * allowed, seconds)


def _end_of(run: Callable[[Case], object], case: Case, seconds: float, memory: int) -> str:
    """Return how a child that runs the case ends: "done" or the name of its death."""
    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            Heartbeat.send = staticmethod(lambda: None)  # the parent sends heartbeats
            run(case)
        finally:
            os._exit(SURVIVED)
    spent, clock = 0.0, Clock(lambda: [child])
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            exited = os.WIFEXITED(status) and os.WEXITSTATUS(status) == SURVIVED
            return "done" if exited else "crash"
        spent += clock.advance()
        if spent > seconds or resident(child) > memory:
            end = "hang" if spent > seconds else "memory"
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return end
        time.sleep(TICK)
