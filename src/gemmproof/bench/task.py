"""The worker of `gemmproof bench`: verify and time the kernels of the request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gemmproof.bench.clocks import CudaDevice
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import SOURCE, BenchReport, TimedRow
from gemmproof.bench.run import Plan, run_plan
from gemmproof.bench.timed_calls import make_callee, make_target_peer
from gemmproof.identity import describe
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import ROLES, Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import versions
from gemmproof.target import Calling, Target, TargetError, load
from gemmproof.worker.protocol import Event, Listener, Request

NO_GPU = "device: got no CUDA GPU that torch can use, expected one"


def measure_times(request: Request, emit: Listener) -> None:
    """Emit the measurements of the request's `plan`; runs in the worker. Raises TargetError."""
    import torch

    emit({"event": "ready"})
    if not torch.cuda.is_available():
        raise TargetError(NO_GPU)
    serve_on(CudaDevice(), request, emit)


def serve_on(device: Any, request: Request, emit: Listener) -> None:
    """Emit the measurements on an available device. Raises TargetError."""
    emit({"event": "device", "gpu": device.name})
    requested = request.plan
    calling = Calling(**{**request.calling, "operands": tuple(request.calling["operands"])})
    operands, contract = calling.read(), Contract.from_dict(request.contract)
    names, kernels = [n for n in operands if n not in ROLES], []
    judged: dict[str, KernelUnderTest] = {}
    for target in requested["targets"]:
        launch = load(_target(target), calling.call, names)
        kernel = KernelUnderTest(
            target["name"], launch, contract, operands=operands, spec=calling.make_spec()
        )
        judged[kernel.name] = kernel
        kernels.append(make_callee(kernel.name, kernel.launch, kernel))
    peer = requested["against"]
    if isinstance(peer, dict):
        peer = make_target_peer(peer["name"], load(_target(peer), None, names, False), kernel)
    plan = Plan(
        kernels,
        peer,
        [Problem(**problem) for problem in requested["problems"]],
        requested["formats"],
        requested["out"],
        requested["rounds"],
        requested["settle"],
        declared=kernel,
        columns=requested["columns"],
    )

    def forward(event: Event) -> None:
        row = event.get("row")
        emit({**event, "row": encode(row)} if isinstance(row, TimedRow) else event)

    ceilings, rows = run_plan(device, plan, forward)
    facts = {"device": device.name, **versions(), "date": datetime.now(UTC).date().isoformat()}
    # the source that was timed: a sign-off accepts the times for no other
    facts |= {
        f"{SOURCE}{name}": " ".join(describe(k).source.values()) for name, k in judged.items()
    }
    report = BenchReport(facts, tuple(ceilings), tuple(rows))
    emit({"event": "report", "report": encode(report)})


def _target(fields: dict[str, Any]) -> Target:
    return Target(**{name: fields[name] for name in ("path", "function", "is_file")})
