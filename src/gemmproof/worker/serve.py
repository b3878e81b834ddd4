"""The process in which a target runs: reads a request, writes events, may die at any point."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmproof.fake_device import DeviceRequest, fake_device
from gemmproof.properties.codec import encode
from gemmproof.reference.provenance import Heartbeat, format_error, words_of
from gemmproof.settings import find_pythonpath
from gemmproof.target import (
    Calling,
    Target,
    TargetError,
    call_theirs,
    line_of,
    load,
    load_file,
    require_case,
)
from gemmproof.worker.processes import die_with_parent, resident
from gemmproof.worker.protocol import STACK, WHERE_SIGNAL, Listener, Request, open_events

if TYPE_CHECKING:
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.kernel import KernelUnderTest

STARTED = time.time()  # before any target: of this process, or of the one that imported conftest


def main(folder: str) -> None:
    """Serve the request in `folder`, then end at once: no thread and no handler delays it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    path = Path(folder)
    stack = (path / STACK).open("w")
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(WHERE_SIGNAL, stack, all_threads=False)
    emit = open_events(path, resident)
    try:
        serve(Request.read(path), emit)
    except TargetError as error:
        emit({"event": "error", "message": str(error)})
    except SystemExit as error:
        how = f"{type(error).__name__}({words_of(error)})"
        emit({"event": "left", "how": how, "where": line_of(error)})
    except KeyboardInterrupt:  # SIGINT, which comes from outside: end as other processes do
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except MemoryError as error:
        text = str(error) or type(error).__name__
        how = f"this machine refused memory to gemmproof itself ({text})"
        emit({"event": "full", "how": how})
    except BaseException as error:  # an error of the engine, not of the target
        traceback.print_exc()
        emit({"event": "internal", "message": format_error(error)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(request: Request, emit: Listener) -> None:
    """Serve the request: list a project's kernels, load or judge one, shrink a fatal case, etc."""
    DeviceRequest.device = request.launch
    sys.path[:] = dict.fromkeys([*request.path, *sys.path])
    Heartbeat.send = staticmethod(lambda: emit({"event": "advanced"}))
    if request.ask == "drift":
        from gemmproof.drift.task import serve as serve_drift

        return serve_drift(request, _find_kernel, emit)
    if request.ask == "explain":
        from gemmproof.explain.task import serve as serve_explain

        return serve_explain(request, _find_kernel, _read_case, emit)
    if request.ask == "reproduce":
        from gemmproof.reproduce.task import serve as serve_reproduce

        return serve_reproduce(request, _find_kernel, emit)
    if request.ask == "locate":
        from gemmproof.reproduce.task import locate

        return locate(request, _find_kernel, emit)
    if request.ask == "try":
        from gemmproof.reproduce.task import try_test

        return try_test(request, emit)
    if request.ask == "mutate":
        from gemmproof.mutate.task import serve as serve_mutant

        return serve_mutant(request, _find_kernel, emit)
    if request.ask == "compile":
        module, _, function = request.plan["task"].partition(":")
        emit({"event": "ready"})
        getattr(import_module(module), function)(request, _find_kernel, emit)
        return emit({"event": "compiled"})
    if request.ask == "bench":
        from gemmproof.bench.task import serve as serve_bench

        return serve_bench(request, emit)
    if request.ask in ("list", "load"):
        emit({"event": "ready"})
        loaded = _list_kernels(request) if request.ask == "list" else [_find_kernel(request)]
        alone = [kernel.name for kernel in loaded if kernel.device_only]
        fields = {
            "names": [k.name for k in loaded],
            "formats": [k.contract.formats for k in loaded],
        }
        return emit({"event": "kernels", **fields, "alone": alone})
    from gemmproof.identity import describe
    from gemmproof.properties.contract import WITHOUT, list_gpus, list_promised

    module, _, function = request.engine.partition(":")
    check = getattr(import_module(module), function)
    emit({"event": "ready"})
    kernel = _find_kernel(request)
    # guarantees about compiled code are judged by separate workers (engine/guarantee_check.py)
    judged = replace(kernel, contract=replace(kernel.contract, **WITHOUT))
    engine = partial(check, judged, target=request.gpu, seconds=request.seconds)
    case = _read_case(request.case, kernel)
    if request.ask == "shrink":
        assert case is not None
        return _shrink(request, kernel, engine, case, emit)
    emit({"event": "source", "facts": asdict(describe(kernel, STARTED))})
    if promised := list_promised(kernel.contract):
        gpus, expected = list_gpus(kernel.contract, request.gpu), kernel.contract.reasons
        emit({"event": "promises", "names": promised, "gpus": gpus, "expected": expected})
    options: dict[str, Any] = {"max_examples": request.max_examples, "seed": request.seed}
    if request.kept and case is None:
        from gemmproof.properties.cases.case import Case

        options["first"] = [Case.from_json(text) for text in request.kept]
    if request.limits:
        options["limits"] = True
    if request.premise:
        options |= {"premise": True, "memory": request.memory // 2 or None}
    if request.premise or request.launch:
        options["workdir"] = request.workdir
    if request.proof:
        options |= {"proof": True, "proof_seconds": request.proof_seconds}
    if request.launch:
        from gemmproof.backends.cuda_device import find_gpu

        options |= {"launch": True, "device": find_gpu()}
    from gemmproof.properties.kernel import ContractError
    from gemmproof.reference.spec import SpecError

    try:
        report = engine(case=case, listener=emit, **options)
    except (SpecError, ContractError) as error:
        raise TargetError(f"{kernel.name}: {error}") from None
    emit({"event": "report", "report": encode(report)})
    return None


def _shrink(
    request: Request, kernel: Any, engine: Callable[..., Any], case: Case, emit: Listener
) -> None:
    from gemmproof.worker.crash_shrink import smallest

    def run(candidate: Case) -> None:
        engine(max_examples=1, seed=0, case=candidate, listener=lambda event: None)

    def tried() -> None:
        emit({"event": "tried"})

    limits = (request.seconds, request.memory)
    shrunk = smallest(case, kernel.contract, run, request.end, limits, tried)
    emit({"event": "shrunk", "case": shrunk.to_json()})


def _find_kernel(request: Request) -> KernelUnderTest:
    from gemmproof.properties.contract import ROLES, Contract
    from gemmproof.properties.kernel import KernelUnderTest

    if request.conftest is not None:
        kernels = {kernel.name: kernel for kernel in _list_kernels(request)}
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


def _list_kernels(request: Request) -> list[KernelUnderTest]:
    """Return the kernels that the project's conftest.py registers. Raises TargetError."""
    loaded = load_registered(request.conftest or "")
    if isinstance(loaded, TargetError):
        raise loaded
    return loaded


@cache
def load_registered(path: str) -> list[KernelUnderTest] | TargetError:
    """Return what `_list_kernels` returns or raises; a process and its forks import it once."""
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


def _read_case(text: str | None, kernel: KernelUnderTest) -> Case | None:
    from gemmproof.properties.cases.case import Case

    if text is None:
        return None
    case = Case.from_json(text)
    require_case(kernel, case)
    return case
