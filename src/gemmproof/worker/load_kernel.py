"""The kernels of a request: registered by a conftest.py, or a function with its contract."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmproof.fake_device import fake_device
from gemmproof.settings import find_pythonpath
from gemmproof.target import (
    Calling,
    Target,
    TargetError,
    call_theirs,
    load,
    load_file,
    require_case,
)
from gemmproof.worker.protocol import Listener, Request

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.kernel import KernelUnderTest


def report_registered(request: Request, emit: Listener) -> None:
    """Emit the names and formats of the kernels that the project's conftest.py registers."""
    emit({"event": "ready"})
    _emit_kernels(list_kernels(request), emit)


def report_one(request: Request, emit: Listener) -> None:
    """Load the kernel of the request, and emit its name and formats."""
    emit({"event": "ready"})
    _emit_kernels([find_kernel(request)], emit)


def _emit_kernels(kernels: list[KernelUnderTest], emit: Listener) -> None:
    fields = {
        "names": [kernel.name for kernel in kernels],
        "formats": [kernel.contract.formats for kernel in kernels],
        "alone": [kernel.name for kernel in kernels if kernel.device_only],
    }
    emit({"event": "kernels", **fields})


def find_kernel(request: Request) -> KernelUnderTest:
    """Return the kernel of a request, in one format if it names one. Raises TargetError."""
    from gemmproof.properties.contract import ROLES, Contract
    from gemmproof.properties.kernel import KernelUnderTest

    if request.conftest is not None:
        kernels = {kernel.name: kernel for kernel in list_kernels(request)}
        if request.name not in kernels:  # a hook may depend on state that only pytest's process has
            got = f"{request.conftest}: got kernels named {' '.join(kernels)}"
            raise TargetError(f"{got} in a worker process, expected one named {request.name}")
        kernel = kernels[request.name]
        formats = kernel.contract.formats
        if request.format and request.format not in formats:
            got = f"got {request.format}, expected one of {' '.join(formats)}"
            raise TargetError(f"format of {request.name}: {got}")
        formats = (request.format,) if request.format else formats
        return replace(kernel, contract=replace(kernel.contract, formats=formats))
    target = Target(**(request.target or {}))
    contract = Contract.from_dict(request.contract)
    fields = {**request.calling, "operands": tuple(request.calling.get("operands", ()))}
    calling = Calling(**fields)
    operands = calling.read()
    launch = load(target, calling.call, [n for n in operands if n not in ROLES])
    spec = calling.make_spec()
    return KernelUnderTest(target.name, launch, contract, operands=operands, spec=spec)


def list_kernels(request: Request) -> list[KernelUnderTest]:
    """Return the kernels that the project's conftest.py registers. Raises TargetError."""
    loaded = load_registered(request.conftest or "")
    if isinstance(loaded, TargetError):
        raise loaded
    return loaded


@cache
def load_registered(path: str) -> list[KernelUnderTest] | TargetError:
    """Return what `list_kernels` returns or raises; a process and its forks import it once."""
    try:
        return _load_registered(path)
    except TargetError as error:
        return error


def _load_registered(path: str) -> list[KernelUnderTest]:
    from gemmproof.properties.kernel import KernelUnderTest

    _add_import_path(Path(path).resolve().parent)
    hook = getattr(load_file(Path(path)), "pytest_gemm_kernels", None)
    if not callable(hook):
        raise TargetError(f"{path}: got no pytest_gemm_kernels(), expected a function of that name")

    def answer() -> Any:
        with fake_device():
            return hook()

    kernels = call_theirs(path, "pytest_gemm_kernels()", answer)
    if not isinstance(kernels, (list, tuple)) or not all(
        isinstance(kernel, KernelUnderTest) for kernel in kernels
    ):
        raise TargetError(
            f"{path}: got {kernels!r} from pytest_gemm_kernels(), expected KernelUnderTest records"
        )
    names = [kernel.name for kernel in kernels]
    if len(set(names)) < len(names):
        raise TargetError(f"{path}: got kernels named {names}, expected different names")
    return list(kernels)


def _add_import_path(folder: Path) -> None:
    """Let a conftest.py import the modules it can import under `python -m pytest`."""
    sys.path[:0] = [path for path in find_pythonpath(folder) if path not in sys.path]
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def read_case(text: str | None, kernel: KernelUnderTest) -> Case | None:
    """Read a case that the kernel must take. Raises ValueError or TargetError."""
    from gemmproof.properties.cases.case import Case

    if text is None:
        return None
    case = Case.from_json(text)
    require_case(kernel, case)
    return case
