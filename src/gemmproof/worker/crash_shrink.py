"""Shrinking of a case that crashes its process: every candidate runs in a forked child."""

from __future__ import annotations

from collections.abc import Callable

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.shrink import shrink
from gemmproof.properties.contract import Contract
from gemmproof.worker.forked import run_forked
from gemmproof.worker.processes import available_memory

MOST_RUNS = 60  # of the whole search


def smallest(
    case: Case,
    contract: Contract,
    run: Callable[[Case], object],
    limits: tuple[float, int],
    tried: Callable[[], None],
) -> Case:
    """Return the smallest case found that crashes as `case` did.

    `limits` are seconds and bytes for one case; `tried` is called after each.
    """
    seconds, memory = limits
    runs = 0

    def fails(candidate: Case) -> bool | None:
        nonlocal runs
        if runs >= MOST_RUNS:
            return None
        runs += 1
        allowed = min(memory, int(0.8 * available_memory()))
        ending = run_forked(lambda send: run(candidate), lambda result: None, seconds, allowed)
        tried()
        return ending.kind == "crash"

    return shrink(case, contract, fails)
