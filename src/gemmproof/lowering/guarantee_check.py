"""A check of guarantees in a worker, and its part of a report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmproof.lowering.captured_output import find_last_words
from gemmproof.lowering.guarantee_outcome import Outcome, conclude
from gemmproof.lowering.guarantees import LaunchAssessment, LaunchPlan
from gemmproof.report.record import Report
from gemmproof.worker.protocol import Listener, Request, WorkerExit
from gemmproof.worker.supervisor import Limits, watch

# -- supervision ---------------------------------------------------------------------------------
PATIENCE = 4  # a compilation may take this many times as long as a simulated call


def add_claims(
    report: Report,
    promised: Mapping[str, Any],
    request: Request,
    limits: Limits,
    listener: Listener,
) -> tuple[Report, bool]:
    """Add the outcome of the `promised` guarantees; also return if it was interrupted.

    `promised` is the event of the worker that loaded the kernel.
    """
    started = time.monotonic()
    # the number of compilations is not bounded, so their total time is not
    allowed = replace(limits, case=PATIENCE * limits.case, total=float("inf"))
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as workdir:
        plan = {"room": workdir, "done": 0}
        compile_request = replace(
            request, ask="claims", launch=False, proof=False, kept=(), plan=plan
        )
        outcome = _compile(compile_request, allowed, listener)
    names, expected = promised["names"], promised["expected"]
    report = conclude(report, outcome, names, expected, is_whole=request.case is None)
    seconds = round(report.seconds + time.monotonic() - started, 2)
    return replace(report, seconds=seconds), outcome.halted


def _compile(request: Request, limits: Limits, listener: Listener) -> Outcome:
    """Compile in one worker, and in another after each that ends before the last launch."""
    outcome = Outcome()
    done = 0

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "planned":
            outcome.plan = LaunchPlan.from_dict(event["plan"])
        elif event["event"] == "weighed":
            outcome.weighed[event["index"]] = LaunchAssessment.from_dict(event["weighed"])
        listener(event)

    while True:
        resumed = replace(request, plan={**request.plan, "done": done})
        worker = watch(resumed, limits, on_event)
        if "compiled" in worker.events:
            finished = {*outcome.weighed, *outcome.failed}
            remaining = [x for x in range(done, len(outcome.plan.launches)) if x not in finished]
            if not remaining or remaining[0] == done:  # all finished, or no progress
                return outcome
            done = remaining[0]
            continue
        index = worker.events.get("case", {}).get("index", -1)
        if worker.end == "halted" or index < done:
            reason = worker.explain_failure(request.name) or f"{request.name}: {worker.how}"
            outcome.mistake, outcome.halted = reason, worker.end == "halted"
            return outcome
        if failure := worker.explain_failure(request.name):  # of gemmproof itself
            outcome.mistake = failure
            return outcome
        planned = outcome.plan.launches[index]
        output = find_last_words(Path(request.plan["room"]), planned.gpu)
        reason = f"{_describe_end(worker, limits)}{output and f' ({output})'}"
        outcome.failed[index] = f"{planned.name}: got {reason}, expected a binary"
        done = index + 1


def _describe_end(worker: WorkerExit, limits: Limits) -> str:
    """Describe how a worker ended while it compiled."""
    late = f"no end after {limits.case:g} s, with a larger --time-limit more"
    return late if worker.end in ("slow", "hang", "time") else worker.how
