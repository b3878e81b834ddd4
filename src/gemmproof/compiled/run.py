"""Launches compiled by a worker: the request, and what the parent process learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gemmproof.compiled.record import Failure, LoweredLaunch, read_result
from gemmproof.worker.protocol import Listener, Request
from gemmproof.worker.supervisor import Limits, watch


@dataclass(frozen=True, slots=True)
class WorkerResults:
    """The results of launches by their number, and the worker's plan of them, if it made one.

    `mistake` is the reason, in a line, why nothing could be compiled; `halted`: it was interrupted.
    `output` is the last output of a process in which gemmproof itself failed.
    """

    results: dict[int, LoweredLaunch | Failure]
    plan: dict[str, Any]
    mistake: str
    halted: bool
    output: str
    seconds: float


def compile_in_worker(request: Request, limits: Limits, listener: Listener) -> WorkerResults:
    """Have a worker compile by the `task` of the request's plan: the name of its function."""
    results: dict[int, LoweredLaunch | Failure] = {}

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "lowered":  # a later result of a launch replaces the first
            results[event["index"]] = read_result(event)
        listener(event)

    # the number of compilations is not bounded, so their total time is not
    limits = replace(limits, total=float("inf"))
    worker = watch(replace(request, ask="compile"), limits, on_event)
    mistake = worker.explain_failure(request.name) or ""
    if not mistake and "compiled" not in worker.events:
        case = worker.events["case"]
        results[case["index"]] = Failure(case["case"], worker.how)
    failed = any(isinstance(x, Failure) and x.internal for x in results.values())
    return WorkerResults(
        dict(sorted(results.items())),
        worker.events.get("planned", {}).get("plan", {}),
        mistake,
        worker.end == "halted",
        worker.output if failed or "internal" in worker.events else "",
        worker.seconds,
    )
