"""The workers that compile for each target, and the functions that they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from gemmproof.compiled.run import WorkerResults, compile_in_worker
from gemmproof.worker.protocol import Listener, Request
from gemmproof.worker.supervisor import Limits, open_pool

# the functions that compile in a worker
LAUNCHES = "gemmproof.lowering.task:compile_launches"
SWEEP = "gemmproof.lowering.task:compile_sweep"
DOTS = "gemmproof.lowering.task:compile_dots"


Follow = Callable[[str], AbstractContextManager[Listener]]


def lower(
    request: Request, gpus: Sequence[str], limits: Limits, follow: Follow, jobs: int = 1
) -> list[WorkerResults]:
    """Compile the launches of the request's kernel on each GPU, with a result per GPU in order."""

    def lower_one(gpu: str) -> WorkerResults:
        with follow(gpu) as listener:
            return compile_in_worker(replace(request, gpu=gpu), limits, listener)

    with open_pool(jobs) as pool:
        return list(pool.map(lower_one, gpus))
