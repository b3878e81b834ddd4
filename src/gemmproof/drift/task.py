"""The worker of `gemmproof drift`: probe and measure a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gemmproof.drift.record import DEVICE, DriftRequest
from gemmproof.drift.run import (
    drift,
    drift_of,
    explain_unmeasurable,
    launch_product,
    simulate_product,
    unbatch,
)
from gemmproof.fake_device import DeviceRequest
from gemmproof.reference.accumulator import NotMeasurable
from gemmproof.reference.provenance import format_error
from gemmproof.reference.simulator import SimulatorError
from gemmproof.report.record import Report
from gemmproof.target import TargetError, line_of, load
from gemmproof.worker.load_kernel import find_kernel
from gemmproof.worker.protocol import Listener, PartialResult, Ready, WorkerContext


def measure(request: DriftRequest, context: WorkerContext) -> Report | str:
    """Return the drift of a function or a registered kernel, or why it cannot be measured."""
    DeviceRequest.device = request.launch
    context.emit(Ready())
    ref = request.kernel
    measure_drift: Callable[[], Report] = partial(_measure_target, request, context.emit)
    if ref.conftest is not None:
        kernel = find_kernel(ref)
        if why := explain_unmeasurable(kernel, ref.format):
            return why
        measure_drift = partial(
            drift_of, kernel, ref.format, target=request.gpu, listener=context.emit
        )
    try:
        return measure_drift()
    except SimulatorError as error:
        raise TargetError(str(error)) from None
    except NotMeasurable as error:
        if ref.conftest is not None:
            return str(error)
        raise TargetError(f"{ref.name}: {error}") from None
    except Exception as error:
        where = line_of(error)
        if where is None:  # no line of the target raised it
            raise
        raise TargetError(f"{where}: got {format_error(error)}, expected a product") from None


def _measure_target(request: DriftRequest, emit: Listener) -> Report:
    """Return the drift of the function that TARGET names, on the requested device."""
    ref = request.kernel
    assert ref.target is not None
    assert ref.contract is not None
    function = load(ref.target)
    if ref.contract.batched:
        function = unbatch(function)
    device = None
    if request.launch:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    emit(PartialResult(DEVICE, device))
    if device is None:
        product = simulate_product(function, ref.format, request.gpu)
    else:
        product = launch_product(function, ref.format)
    return drift(
        product,
        ref.format,
        declared=request.declared,
        sizes=request.sizes,
        name=ref.name,
        gpu=device or request.gpu or "ieee",
        listener=emit,
    )
