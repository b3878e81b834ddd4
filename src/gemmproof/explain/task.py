"""The worker of `gemmproof explain`: the address map, and a picture's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmproof.properties.codec import encode
from gemmproof.target import TargetError
from gemmproof.worker.load_kernel import find_kernel, read_case
from gemmproof.worker.protocol import Listener, Request

if TYPE_CHECKING:
    pass


def explain_addresses(request: Request, emit: Listener) -> None:
    """Emit the address map of the kernel that the request names; runs in the worker."""
    from gemmproof.properties.address_map.explain_access import explain
    from gemmproof.properties.address_map.picture import NoPicture, make_picture
    from gemmproof.properties.kernel import ContractError

    emit({"event": "ready"})
    kernel = find_kernel(request)
    case = read_case(request.case, kernel)

    def heartbeat() -> None:
        emit({"event": "advanced"})

    try:
        explanation = explain(kernel, request.gpu, request.config, tell=heartbeat)
    except ContractError as error:
        raise TargetError(f"{request.name}: {error}") from None
    picture = None
    if request.format == "svg":
        try:
            picture = make_picture(kernel, request.gpu, request.config, case)
        except NoPicture as error:
            raise TargetError(f"--svg: {error}") from None
    emit({"event": "explained", "explanation": encode(explanation), "picture": picture})
