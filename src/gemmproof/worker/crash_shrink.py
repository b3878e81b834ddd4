"""Shrinking of a case that kills its process: every candidate runs in a forked child."""

from __future__ import annotations

from collections.abc import Callable

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.shrink import shrink
from gemmproof.properties.contract import Contract
from gemmproof.worker.forked import run_forked
from gemmproof.worker.processes import available_memory

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

    def run_case(candidate: Case, seconds: float) -> str:
        free = int(0.8 * available_memory())
        ending = run_forked(
            lambda send: run(candidate), lambda result: None, seconds, min(memory, free)
        )
        return "full" if ending.kind == "memory" and ending.used <= memory else ending.kind

    def fails(candidate: Case) -> bool | None:
        nonlocal runs
        if candidate in survivors:
            return False
        if runs >= MOST_RUNS:
            return None
        runs += 1
        fate = run_case(candidate, allowed)
        tried()
        if fate == "done":
            survivors.add(candidate)
        return fate == end

    while True:
        smaller = shrink(case, contract, fails)
        if smaller == case or allowed == seconds:
            return smaller
        if run_case(smaller, seconds) == end:
            return smaller
        # a candidate was slow, which is no proof that it never ends: try again with more time
        allowed = min(4 * allowed, seconds)
