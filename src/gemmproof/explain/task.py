"""The worker of `gemmproof explain`: the address map, and a picture's data."""

from __future__ import annotations

from gemmproof.explain.record import ExplainRequest, Explanation
from gemmproof.target import TargetError
from gemmproof.worker.load_kernel import find_kernel, read_case
from gemmproof.worker.protocol import Advanced, Ready, WorkerContext


def explain_addresses(request: ExplainRequest, context: WorkerContext) -> Explanation:
    """Return the address map of a kernel, and its picture if one is requested."""
    from gemmproof.properties.address_map.explain_access import explain
    from gemmproof.properties.address_map.picture import NoPicture, make_picture
    from gemmproof.properties.kernel import ContractError

    context.emit(Ready())
    kernel = find_kernel(request.kernel)
    case = read_case(request.case, kernel)

    def heartbeat() -> None:
        context.emit(Advanced())

    try:
        addresses = explain(kernel, request.gpu, request.config, tell=heartbeat)
    except ContractError as error:
        raise TargetError(f"{request.kernel.name}: {error}") from None
    if not request.draws:
        return Explanation(addresses)
    try:
        return Explanation(addresses, make_picture(kernel, request.gpu, request.config, case))
    except NoPicture as error:
        raise TargetError(f"--svg: {error}") from None
