"""What a worker does for `gemmproof bench`: the kernels of the request, verified and timed."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gemmproof.bench.clocks import CudaDevice
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import BenchReport, TimedRow
from gemmproof.bench.run import Plan, run_plan
from gemmproof.bench.timed_calls import make_callee, make_target_peer
from gemmproof.properties.contract import ROLES, Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import versions
from gemmproof.signoff.source import describe
from gemmproof.signoff.verdict import SOURCE
from gemmproof.target import Calling, Target, TargetError, load
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
    calling = Calling(**{**request.calling, "operands": tuple(request.calling["operands"])})
    operands, contract = calling.read(), Contract.from_dict(request.contract)
    names, kernels = [n for n in operands if n not in ROLES], []
    judged: dict[str, KernelUnderTest] = {}
    for one in stated["targets"]:
        launch = load(_target(one), calling.call, names)
        kernel = KernelUnderTest(
            one["name"], launch, contract, operands=operands, spec=calling.make_spec()
        )
        judged[kernel.name] = kernel
        kernels.append(make_callee(kernel.name, kernel.launch, kernel))
    peer = stated["against"]
    if isinstance(peer, dict):
        peer = make_target_peer(peer["name"], load(_target(peer), None, names, False), kernel)
    plan = Plan(
        kernels,
        peer,
        [Problem(**one) for one in stated["problems"]],
        stated["formats"],
        stated["out"],
        stated["rounds"],
        stated["settle"],
        stated=kernel,
        columns=stated["columns"],
    )

    def tell(event: dict[str, Any]) -> None:
        row = event.get("row")
        emit({**event, "row": asdict(row)} if isinstance(row, TimedRow) else event)

    ceilings, rows = run_plan(device, plan, tell)
    facts = {"device": device.name, **versions(), "date": datetime.now(UTC).date().isoformat()}
    # of which source the times are: a sign-off takes them for no other
    facts |= {
        f"{SOURCE}{name}": " ".join(describe(k).source.values()) for name, k in judged.items()
    }
    report = BenchReport(facts, tuple(ceilings), tuple(rows))
    emit({"event": "report", "report": report.to_dict()})


def _target(stated: dict[str, Any]) -> Target:
    return Target(**{name: stated[name] for name in ("place", "function", "is_file")})
