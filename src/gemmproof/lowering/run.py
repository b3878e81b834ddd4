"""Every target in a worker of its own; a compilation that takes it down is told, others go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmproof.lowering.captured_output import find_last_words
from gemmproof.lowering.record import LoweredLaunch
from gemmproof.worker.protocol import Listener, Request, WorkerExit
from gemmproof.worker.supervisor import Limits, open_pool, watch

Follow = Callable[[str], AbstractContextManager[Listener]]


@dataclass(slots=True)
class LoweredTarget:
    """What became of a kernel's launches on one target: the records, and a line on each failure.

    `variants` and `notes` are those of a sweep (sweep/serve.py), the first one for each record.
    `mistake` is why nothing could be captured, in a line, and `output` what a worker in which
    gemmproof itself failed printed last.
    """

    gpu: str
    lowerings: list[LoweredLaunch] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    mistake: str = ""
    output: str = ""
    variants: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether every launch was compiled."""
        compiled = all(not one.error for one in self.lowerings)
        return compiled and not self.failures and not self.mistake


def lower(
    request: Request, gpus: Sequence[str], limits: Limits, follow: Follow, jobs: int = 1
) -> list[LoweredTarget]:
    """The launches of the request's kernel on each GPU, in their order."""

    def lower_one(gpu: str) -> LoweredTarget:
        with follow(gpu) as listener:
            return _lower(replace(request, gpu=gpu), limits, listener)

    with open_pool(jobs) as pool:
        return list(pool.map(lower_one, gpus))


def _lower(request: Request, limits: Limits, listener: Listener) -> LoweredTarget:
    """One target: as many workers as compilations take down, and one."""
    made = LoweredTarget(request.gpu or "")
    done = 0

    def take(event: dict[str, Any]) -> None:
        if event["event"] == "lowered":
            made.lowerings.append(LoweredLaunch.from_dict(event["lowering"]))
            made.variants.append(event.get("variant", {}))
        listener(event)

    while True:
        asked = replace(request, plan={**request.plan, "done": done})
        worker = watch(asked, limits, take)
        if "compiled" in worker.events:
            made.notes = worker.events["compiled"].get("notes", [])
            return made
        case = worker.events.get("case", {})
        index = case.get("index", -1)
        if (failure := worker.explain_failure(request.name)) or index < done:
            made.mistake = failure or f"{request.name}: {worker.how}"
            made.output = worker.output if "internal" in worker.events else ""
            return made
        said = find_last_words(Path(request.plan["room"]), made.gpu)
        how = f"{_describe_end(worker, limits)}{said and f' ({said})'}"
        made.failures.append(f"{case['case']}: got {how}, expected a binary")
        if worker.end == "halted":
            return made
        done = index + 1


def _describe_end(worker: WorkerExit, limits: Limits) -> str:
    """How a worker ended while it compiled."""
    is_late = worker.end in ("slow", "hang", "time")
    return f"no end after {limits.case:g} s" if is_late else worker.how
