"""The worker of `gemmproof drift`: probe and measure the request's function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gemmproof.drift.run import (
    Listener,
    drift,
    drift_of,
    explain_unmeasurable,
    launch_product,
    simulate_product,
    unbatch,
)
from gemmproof.properties.codec import encode
from gemmproof.reference.accumulator import NotMeasurable
from gemmproof.reference.provenance import format_error
from gemmproof.reference.simulator import SimulatorError
from gemmproof.report.record import Report
from gemmproof.target import Target, TargetError, line_of, load
from gemmproof.worker.load_kernel import find_kernel
from gemmproof.worker.protocol import Request


def measure(request: Request, emit: Listener) -> None:
    """Emit the drift of the named function or registered kernel; runs in the worker."""
    emit({"event": "ready"})
    measure_drift: Callable[[], Report]
    if request.conftest is not None:
        kernel = find_kernel(request)
        if why := explain_unmeasurable(kernel, request.format):
            return emit({"event": "unmeasured", "why": why})
        measure_drift = partial(drift_of, kernel, request.format, target=request.gpu, listener=emit)
    else:
        measure_drift = _prepare(request, emit)
    try:
        report = measure_drift()
    except SimulatorError as error:
        raise TargetError(str(error)) from None
    except NotMeasurable as error:
        if request.conftest is not None:
            return emit({"event": "unmeasured", "why": str(error)})
        raise TargetError(f"{request.name}: {error}") from None
    except Exception as error:
        where = line_of(error)
        if where is None:  # no line of the target raised it
            raise
        raise TargetError(f"{where}: got {format_error(error)}, expected a product") from None
    emit({"event": "report", "report": encode(report)})
    return None


def _prepare(request: Request, emit: Listener) -> Callable[[], Report]:
    """Return the measurement of the function that TARGET names, on the requested device."""
    function = load(Target(**(request.target or {})))
    if request.contract["batched"]:
        function = unbatch(function)
    device = None
    if request.launch:
        import torch

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    emit({"event": "device", "gpu": device})
    if device is None:
        product = simulate_product(function, request.format, request.gpu)
    else:
        product = launch_product(function, request.format)
    return partial(
        drift,
        product,
        request.format,
        declared=request.declared,
        sizes=request.sizes,
        name=request.name,
        gpu=device or request.gpu or "ieee",
        listener=emit,
    )
