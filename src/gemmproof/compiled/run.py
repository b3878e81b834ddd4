"""Launches compiled by a worker: the request, and what the parent process learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from gemmproof.compiled.record import Failure, LoweredLaunch, Result
from gemmproof.properties.codec import decode
from gemmproof.worker.protocol import Event, Listener, Request
from gemmproof.worker.supervisor import Limits, open_pool, watch


@dataclass(frozen=True, slots=True)
class WorkerResults:
    """The results of launches by their number, and the worker's plan of them, if it made one.

    `gpu` is the one that the request names. `mistake` is the reason, in a line, why nothing could
    be compiled; `halted`: it was interrupted. `output` is the last output of a process in which
    gemmproof itself failed.
    """

    gpu: str
    results: Mapping[int, Result]
    plan: Mapping[str, Any] = field(default_factory=dict)
    mistake: str = ""
    halted: bool = False
    output: str = ""
    seconds: float = 0.0

    @property
    def lowerings(self) -> list[LoweredLaunch]:
        """The launches that were compiled or refused."""
        return [x for x in self.results.values() if isinstance(x, LoweredLaunch)]

    @property
    def failures(self) -> list[str]:
        """A line on each launch that is not known to compile."""
        return [str(x) for x in self.results.values() if isinstance(x, Failure)]


def read_result(data: Any) -> Result:
    """Return the result that a worker's event "lowered" reports."""
    result: Result = decode(cast(type, Result), data, "result")
    return result


def compile_in_worker(request: Request, limits: Limits, listener: Listener) -> WorkerResults:
    """Have a worker call the function of the request, which emits what it compiles."""
    results: dict[int, Result] = {}

    def on_event(event: Event) -> None:
        if event["event"] == "lowered":  # a later result of a launch replaces the first
            results[event["index"]] = read_result(event["result"])
        listener(event)

    # the number of compilations is not bounded, so their total time is not
    limits = replace(limits, total=float("inf"))
    worker = watch(request, limits, on_event)
    mistake = worker.explain_failure(request.name) or ""
    if not mistake and "done" not in worker.events:
        case = worker.events["case"]
        results[case["index"]] = Failure(case["case"], worker.how)
    is_ours = any(isinstance(x, Failure) and x.internal for x in results.values())
    return WorkerResults(
        request.gpu or "",
        dict(sorted(results.items())),
        worker.events.get("planned", {}).get("plan", {}),
        mistake,
        worker.end == "halted",
        worker.output if is_ours or "internal" in worker.events else "",
        worker.seconds,
    )


Follow = Callable[[str], AbstractContextManager[Listener]]


def compile_for_gpus(
    request: Request, gpus: Sequence[str], limits: Limits, follow: Follow, jobs: int = 1
) -> list[WorkerResults]:
    """Have a worker compile for each GPU; return the results in order."""

    def compile_for_one(gpu: str) -> WorkerResults:
        with follow(gpu) as listener:
            return compile_in_worker(replace(request, gpu=gpu), limits, listener)

    with open_pool(jobs) as pool:
        return list(pool.map(compile_for_one, gpus))
