"""The claims of a contract judged in workers: a compilation that takes one down is told of."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmproof.lowering.claims.conclude import Outcome, conclude
from gemmproof.lowering.claims.record import LaunchPlan, Weighed
from gemmproof.lowering.said import find_last_words
from gemmproof.report.report import Report
from gemmproof.worker.limits import Limits
from gemmproof.worker.protocol import Listener, Request, WorkerExit
from gemmproof.worker.supervisor import watch

PATIENCE = 4  # times as long as a simulated call may a compilation take


def add_claims(
    report: Report,
    promised: Mapping[str, Any],
    request: Request,
    limits: Limits,
    listener: Listener,
) -> tuple[Report, bool]:
    """The report on the kernel that is asked for, with what becomes of what is `promised`.

    That is the event of the worker that loaded it. Besides, whether it was interrupted.
    """
    started = time.monotonic()
    # so many compilations as there are have no end in common
    allowed = replace(limits, case=PATIENCE * limits.case, total=float("inf"))
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as room:
        plan = {"room": room, "done": 0}
        asked = replace(request, ask="claims", launch=False, proof=False, kept=(), plan=plan)
        outcome = _compile(asked, allowed, listener)
    names, expected = promised["names"], promised["expected"]
    report = conclude(report, outcome, names, expected, is_whole=request.case is None)
    seconds = round(report.seconds + time.monotonic() - started, 2)
    return replace(report, seconds=seconds), outcome.halted


def _compile(request: Request, limits: Limits, listener: Listener) -> Outcome:
    """What is known: of one worker, and another after each that ends before the last launch."""
    outcome = Outcome()
    done = 0

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "planned":
            outcome.plan = LaunchPlan.from_dict(event["plan"])
        elif event["event"] == "weighed":
            outcome.weighed[event["index"]] = Weighed.from_dict(event["weighed"])
        listener(event)

    while True:
        asked = replace(request, plan={**request.plan, "done": done})
        worker = watch(asked, limits, hear)
        if "compiled" in worker.events:
            known = {*outcome.weighed, *outcome.failed}
            left = [x for x in range(done, len(outcome.plan.launches)) if x not in known]
            if not left or left[0] == done:  # all are known, or a new process does no better
                return outcome
            done = left[0]
            continue
        index = worker.events.get("case", {}).get("index", -1)
        if worker.end == "halted" or index < done:
            how = worker.explain_failure(request.name) or f"{request.name}: {worker.how}"
            outcome.mistake, outcome.halted = how, worker.end == "halted"
            return outcome
        if failure := worker.explain_failure(request.name):  # of gemmproof itself
            outcome.mistake = failure
            return outcome
        planned = outcome.plan.launches[index]
        said = find_last_words(Path(request.plan["room"]), planned.gpu)
        how = f"{_tell_end(worker, limits)}{said and f' ({said})'}"
        outcome.failed[index] = f"{planned.name}: got {how}, expected a binary"
        done = index + 1


def _tell_end(worker: WorkerExit, limits: Limits) -> str:
    """How a worker ended while it compiled."""
    late = f"no end after {limits.case:g} s, with a larger --time-limit more"
    return late if worker.end in ("slow", "hang", "time") else worker.how
