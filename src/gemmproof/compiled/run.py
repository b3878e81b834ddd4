"""Launches compiled by a worker: the call, and what the parent process learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from gemmproof.compiled.record import PLAN, RESULT, Failure, LoweredLaunch, Result
from gemmproof.properties.codec import decode
from gemmproof.worker.protocol import Event, Listener, PartialResult
from gemmproof.worker.supervisor import Limits, open_pool, watch


class CompileRequest(Protocol):
    """A request to compile launches of the kernel `name`, for `gpu`."""

    @property
    def name(self) -> str: ...
    @property
    def gpu(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class WorkerResults:
    """The results of launches by their number, and the worker's plan of them, if it made one.

    `gpu` is the one that the request names. `mistake` is the reason, in a line, why nothing could
    be compiled; `halted`: it was interrupted. `output` is the last output of a process in which
    gemmproof itself failed.
    """

    gpu: str
    results: Mapping[int, Result]
    plan: Any = None
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


def read_result(data: Any) -> tuple[int, Result]:
    """Return the number and the result of a launch that a worker sent."""
    pair: tuple[int, Result] = decode(cast(type, tuple[int, Result]), data, RESULT)
    return pair


def compile_in_worker(
    function: str, request: CompileRequest, limits: Limits, listener: Listener
) -> WorkerResults:
    """Have a worker call a function that sends what it compiles."""
    results: dict[int, Result] = {}

    def on_event(event: Event) -> None:
        if isinstance(event, PartialResult) and event.name == RESULT:
            number, result = read_result(event.value)
            results[number] = result  # a later result of a launch replaces the first
        listener(event)

    # the number of compilations is not bounded, so their total time is not
    limits = replace(limits, total=float("inf"))
    worker = watch(function, request, limits, on_event)
    mistake = worker.explain_failure(request.name) or ""
    if not mistake and worker.done is None and worker.case is not None:
        results[worker.case.index] = Failure(worker.case.case, worker.how)
    is_ours = any(isinstance(x, Failure) and x.internal for x in results.values())
    return WorkerResults(
        request.gpu or "",
        dict(sorted(results.items())),
        worker.parts.get(PLAN),
        mistake,
        worker.end == "halted",
        worker.output if is_ours or worker.is_internal else "",
        worker.seconds,
    )


Follow = Callable[[str], AbstractContextManager[Listener]]


def compile_for_gpus(
    function: str,
    requests: Sequence[CompileRequest],
    limits: Limits,
    follow: Follow,
    jobs: int = 1,
) -> list[WorkerResults]:
    """Have a worker compile for the GPU of each request; return the results in order."""

    def compile_for_one(request: CompileRequest) -> WorkerResults:
        with follow(request.gpu or "") as listener:
            return compile_in_worker(function, request, limits, listener)

    with open_pool(jobs) as pool:
        return list(pool.map(compile_for_one, requests))
