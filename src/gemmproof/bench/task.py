"""The worker of `gemmproof bench`: verify and time kernels."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gemmproof.bench.clocks import CudaDevice
from gemmproof.bench.record import SOURCE, BenchReport, BenchRequest, NamedTarget
from gemmproof.bench.run import Plan, run_plan
from gemmproof.bench.timed_calls import Callee, make_callee, make_target_peer
from gemmproof.fake_device import DeviceRequest
from gemmproof.identity import describe
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import versions
from gemmproof.target import TargetError, load
from gemmproof.worker.protocol import Listener, Ready, WorkerContext

NO_GPU = "device: got no CUDA GPU that torch can use, expected one"


def measure_times(request: BenchRequest, context: WorkerContext) -> BenchReport:
    """Return the measurements on this machine's GPU. Raises TargetError."""
    DeviceRequest.device = True
    import torch

    context.emit(Ready())
    if not torch.cuda.is_available():
        raise TargetError(NO_GPU)
    return measure_on(CudaDevice(), request, context.emit)


def measure_on(device: Any, request: BenchRequest, emit: Listener) -> BenchReport:
    """Return the measurements on an available device. Raises TargetError."""
    calling = request.calling
    if calling.memory_only:
        raise TargetError("--memory-only: got it with bench, expected what it times to be compared")
    operands, spec = calling.read(), calling.make_spec()
    names, kernels = [n for n in operands if n not in ROLES], []
    judged: dict[str, KernelUnderTest] = {}
    for named in request.targets:
        launch = load(named.target, calling.call, names)
        kernel = KernelUnderTest(named.name, launch, request.contract, operands=operands, spec=spec)
        judged[kernel.name] = kernel
        kernels.append(make_callee(kernel.name, kernel.launch, kernel))
    peer: Callee | str | None
    if isinstance(request.against, NamedTarget):
        function = load(request.against.target, None, names, False)
        peer = make_target_peer(request.against.name, function, kernel)
    else:
        peer = request.against
    plan = Plan(
        kernels,
        peer,
        request.problems,
        request.contract.formats,
        request.out,
        request.rounds,
        request.settle,
        declared=kernel,
        columns=request.columns,
    )
    ceilings, rows = run_plan(device, plan, emit)
    facts = {"device": device.name, **versions(), "date": datetime.now(UTC).date().isoformat()}
    # the source that was timed: a sign-off accepts the times for no other
    facts |= {
        f"{SOURCE}{name}": " ".join(describe(k).source.values()) for name, k in judged.items()
    }
    return BenchReport(facts, tuple(ceilings), tuple(rows))
