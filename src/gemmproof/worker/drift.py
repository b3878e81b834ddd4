"""What a worker does for `gemmproof drift`: the request's function, probed and measured."""

from __future__ import annotations

from gemmproof.engine.drift import Listener, drift, launch_product, simulate_product, unbatch
from gemmproof.reference.accumulator.probes import Unprobed
from gemmproof.reference.provenance import tell_error
from gemmproof.reference.simulator import SimulatorError
from gemmproof.target import Target, TargetError, line_of, load
from gemmproof.worker.protocol import Request


def serve(request: Request, emit: Listener) -> None:
    """In the worker: the drift of the function that the request names."""
    emit({"event": "ready"})
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
    try:
        report = drift(
            product,
            request.format,
            declared=request.declared,
            sizes=request.sizes,
            name=request.name,
            gpu=device or request.gpu or "ieee",
            listener=emit,
        )
    except SimulatorError as error:
        raise TargetError(str(error)) from None
    except Unprobed as error:
        raise TargetError(f"{request.name}: {error}") from None
    except Exception as error:
        where = line_of(error)
        if where is None:  # no line of the target's is to blame
            raise
        raise TargetError(f"{where}: got {tell_error(error)}, expected a product") from None
    emit({"event": "report", "report": report.to_dict()})
