"""The worker of `gemmproof reproduce`: find what a test needs, and try the test."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmproof.reference.provenance import format_error, owner
from gemmproof.reproduce.record import Outcome, ReproduceRequest, WrittenTest
from gemmproof.target import KernelRef, TargetError
from gemmproof.worker.load_kernel import find_kernel
from gemmproof.worker.protocol import Advanced, Ready, WorkerContext

if TYPE_CHECKING:
    from gemmproof.reproduce.bug import Bug, WrapperLocation

# what may lie around the operands of a test: floats, integers
AROUND = {"nan": (float("nan"), 85), "zeros": (0.0, 0)}


def reproduce(request: ReproduceRequest, context: WorkerContext) -> Bug:
    """Return the reduced bug of a finding."""
    from gemmproof.properties.kernel import ContractError
    from gemmproof.reference.spec import SpecError
    from gemmproof.reproduce.bug import Unreproducible
    from gemmproof.reproduce.find import find_bug

    context.emit(Ready())
    kernel = find_kernel(request.kernel)

    def heartbeat() -> None:
        context.emit(Advanced())

    finding, calls = request.finding, request.calls
    try:
        return find_bug(kernel, finding, request.gpu, context.seconds, heartbeat, calls)
    except (SpecError, ContractError, Unreproducible) as error:
        raise TargetError(f"{kernel.name}: {error}") from None


def locate(request: KernelRef, context: WorkerContext) -> WrapperLocation:
    """Return the location of the registered wrapper for a test."""
    from gemmproof.reproduce.bug import Unreproducible, find_wrapper

    context.emit(Ready())
    kernel = find_kernel(request)
    try:
        return find_wrapper(kernel.launch)
    except Unreproducible as error:
        raise TargetError(f"{kernel.name}: {error}") from None


def try_test(request: WrittenTest, context: WorkerContext) -> dict[str, Outcome]:
    """Run a test under Triton's interpreter, in a separate worker.

    Once with NaN around the operands, once with zeros. Each returns the message of the test if it
    fails, "" if it passes, or None and the reason why it could not run.
    """
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton
    sys.dont_write_bytecode = True
    context.emit(Ready())
    code = compile(request.text, request.path, "exec")
    outcomes: dict[str, Outcome] = {}
    import torch  # noqa: F401
    import triton  # noqa: F401

    preloaded = set(sys.modules)
    for name, around in AROUND.items():
        outcomes[name] = _run(code, request.path, around)
        # state that the user's modules keep of the calls must be gone the next time
        for module in [x for x in sys.modules.keys() - preloaded if _is_user_module(x)]:
            del sys.modules[module]
        context.emit(Advanced())
    return outcomes


def _is_user_module(module: str) -> bool:
    file = getattr(sys.modules[module], "__file__", None)
    return isinstance(file, str) and owner(file) == "user"


def _run(code: Any, path: str, around: tuple[float, int]) -> Outcome:
    import pytest

    names: dict[str, Any] = {"__file__": path, "__name__": Path(path).stem}
    with pytest.MonkeyPatch.context() as patch:
        try:
            exec(code, names)
            names["AROUND"] = around
            test = next(names[name] for name in names if name.startswith("test_"))
            test(*[patch] * test.__code__.co_argcount)
        except AssertionError as failure:
            own = traceback.extract_tb(failure.__traceback__)[-1].filename == path
            return (str(failure) or "an assertion", "") if own else (None, format_error(failure))
        except Exception as error:
            return None, format_error(error)
    return "", ""
