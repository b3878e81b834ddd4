"""The kernels of a request: registered by a conftest.py, or a function with its contract."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmproof.fake_device import fake_device
from gemmproof.missing_imports import StandInUse, stub_modules
from gemmproof.reference.provenance import show_tracer
from gemmproof.settings import find_pythonpath
from gemmproof.target import (
    KernelRef,
    TargetError,
    call_theirs,
    load,
    load_file,
    require_case,
)
from gemmproof.worker.appearance import show_program
from gemmproof.worker.protocol import Ready, WorkerContext

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.kernel import KernelUnderTest


@dataclass(frozen=True, slots=True)
class RegisteredKernel:
    """A kernel that a conftest.py registers, or a target: its name, its formats."""

    name: str
    formats: tuple[str, ...]
    device_only: bool


def describe_registered(request: KernelRef, context: WorkerContext) -> tuple[RegisteredKernel, ...]:
    """Return the kernels that the project's conftest.py registers."""
    context.emit(Ready())
    return tuple(map(_describe, list_kernels(request.conftest)))


def describe_one(request: KernelRef, context: WorkerContext) -> RegisteredKernel:
    """Load a kernel, and describe it."""
    context.emit(Ready())
    return _describe(find_kernel(request))


def _describe(kernel: KernelUnderTest) -> RegisteredKernel:
    return RegisteredKernel(kernel.name, kernel.contract.formats, kernel.device_only)


def find_kernel(ref: KernelRef) -> KernelUnderTest:
    """Return a kernel, in one format if the reference names one. Raises TargetError."""
    from gemmproof.properties.contract import ROLES, Contract
    from gemmproof.properties.kernel import KernelUnderTest

    sys.gettrace = show_tracer  # which a module may import by name
    show_program(str(ref.target.file if ref.target else ref.conftest))
    sys.path[:] = dict.fromkeys([*ref.path, *sys.path])
    if ref.conftest is not None:
        kernels = {kernel.name: kernel for kernel in list_kernels(ref.conftest)}
        if ref.name not in kernels:  # a hook may depend on state that only pytest's process has
            got = f"{ref.conftest}: got kernels named {' '.join(kernels)}"
            raise TargetError(f"{got} in a worker process, expected one named {ref.name}")
        kernel = kernels[ref.name]
        formats = kernel.contract.formats
        if ref.format and ref.format not in formats:
            got = f"got {ref.format}, expected one of {' '.join(formats)}"
            raise TargetError(f"format of {ref.name}: {got}")
        formats = (ref.format,) if ref.format else formats
        memory_only = kernel.memory_only or ref.calling.memory_only
        contract = replace(kernel.contract, formats=formats)
        return replace(kernel, contract=contract, memory_only=memory_only)
    assert ref.target is not None
    operands = ref.calling.read()
    stub_modules(ref.calling.stubs)
    launch = load(ref.target, ref.calling.call, [n for n in operands if n not in ROLES])
    StandInUse.allowed = False
    contract, spec = ref.contract or Contract(), ref.calling.make_spec()
    return KernelUnderTest(
        ref.target.name,
        launch,
        contract,
        operands=operands,
        spec=spec,
        memory_only=ref.calling.memory_only,
        draft=ref.draft,
    )


def list_kernels(conftest: str | None) -> list[KernelUnderTest]:
    """Return the kernels that a conftest.py registers. Raises TargetError."""
    loaded = load_registered(conftest or "")
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
