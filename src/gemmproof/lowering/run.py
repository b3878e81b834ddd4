"""Every target in its own worker; if a compilation kills it, that is reported and others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmproof.lowering.captured_output import find_last_words
from gemmproof.lowering.record import LoweredLaunch, LoweredTarget
from gemmproof.worker.protocol import Listener, Request, WorkerExit
from gemmproof.worker.supervisor import Limits, open_pool, watch

Follow = Callable[[str], AbstractContextManager[Listener]]


def lower(
    request: Request, gpus: Sequence[str], limits: Limits, follow: Follow, jobs: int = 1
) -> list[LoweredTarget]:
    """Compile the launches of the request's kernel on each GPU, with a result per GPU in order."""

    def lower_one(gpu: str) -> LoweredTarget:
        with follow(gpu) as listener:
            return _lower(replace(request, gpu=gpu), limits, listener)

    with open_pool(jobs) as pool:
        return list(pool.map(lower_one, gpus))


def _lower(request: Request, limits: Limits, listener: Listener) -> LoweredTarget:
    """Compile for one target, with a new worker after each that a compilation kills."""
    lowered = LoweredTarget(request.gpu or "")
    done = 0

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "lowered":
            lowered.lowerings.append(LoweredLaunch.from_dict(event["lowering"]))
            lowered.variants.append(event.get("variant", {}))
        listener(event)

    while True:
        resumed = replace(request, plan={**request.plan, "done": done})
        worker = watch(resumed, limits, on_event)
        if "compiled" in worker.events:
            lowered.notes = worker.events["compiled"].get("notes", [])
            return lowered
        case = worker.events.get("case", {})
        index = case.get("index", -1)
        if (failure := worker.explain_failure(request.name)) or index < done:
            lowered.mistake = failure or f"{request.name}: {worker.how}"
            lowered.output = worker.output if "internal" in worker.events else ""
            return lowered
        output = find_last_words(Path(request.plan["room"]), lowered.gpu)
        reason = f"{_describe_end(worker, limits)}{output and f' ({output})'}"
        lowered.failures.append(f"{case['case']}: got {reason}, expected a binary")
        if worker.end == "halted":
            return lowered
        done = index + 1


def _describe_end(worker: WorkerExit, limits: Limits) -> str:
    """Describe how a worker ended while it compiled."""
    is_late = worker.end in ("slow", "hang", "time")
    return f"no end after {limits.case:g} s" if is_late else worker.how
