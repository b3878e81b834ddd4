"""What a worker does for the claims of a contract: it compiles launches, and tells of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gemmproof.lowering.claims.work import weigh_launches
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.worker.protocol import Listener, Request


def serve(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """In the worker: every launch of the kernel that the request names, for each of its GPUs.

    `plan`: `room` for files, and `done`, how many launches an earlier worker told of.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    case = None if request.case is None else Case.from_json(request.case)
    room, done = Path(request.plan["room"]), request.plan["done"]
    outcome = weigh_launches(kernel, request.gpu, case, request.max_examples, room, emit, done)
    emit({"event": "compiled", "launches": len(outcome.plan.launches)})
