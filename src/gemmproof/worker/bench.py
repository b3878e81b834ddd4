"""What a worker does for `gemmproof bench`: the kernels of the request, verified and timed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gemmproof.bench.calls import Callee, make_callee
from gemmproof.bench.device import CudaDevice
from gemmproof.bench.problems import Problem
from gemmproof.bench.records import BenchReport, TimedRow
from gemmproof.bench.run import Plan, run_plan
from gemmproof.report.report import versions
from gemmproof.target import Target, TargetError, load
from gemmproof.worker.protocol import Listener, Request

NO_GPU = "device: got no CUDA GPU that torch can use, expected one"


def serve(request: Request, emit: Listener) -> None:
    """In the worker: the measurements that the request's `plan` asks for. Raises TargetError."""
    import torch

    emit({"event": "ready"})
    if not torch.cuda.is_available():
        raise TargetError(NO_GPU)
    serve_on(CudaDevice(), request, emit)


def serve_on(device: Any, request: Request, emit: Listener) -> None:
    """The same on a device that is there. Raises TargetError."""
    emit({"event": "device", "gpu": device.name})
    stated = request.plan
    kernels = [_load(one, stated["call"]) for one in stated["targets"]]
    for kernel in kernels:
        kernel.columns = stated["columns"]
    peer = None if stated["against"] is None else _load(stated["against"], None)
    plan = Plan(
        kernels,
        peer,
        [Problem(**one) for one in stated["problems"]],
        stated["formats"],
        stated["out"],
        stated["rounds"],
        stated["settle"],
    )

    def tell(event: dict[str, Any]) -> None:
        row = event.get("row")
        emit({**event, "row": asdict(row)} if isinstance(row, TimedRow) else event)

    ceilings, rows = run_plan(device, plan, tell)
    facts = {"device": device.name, **versions(), "date": datetime.now(UTC).date().isoformat()}
    report = BenchReport(facts, tuple(ceilings), tuple(rows))
    emit({"event": "report", "report": report.to_dict()})


def _load(stated: dict[str, Any], call: str | None) -> Callee:
    target = Target(**{name: stated[name] for name in ("place", "function", "is_file")})
    return make_callee(stated["name"], load(target, call))
