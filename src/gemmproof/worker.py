"""The process in which a target runs: reads a request, writes events, and may die at any point."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from gemmproof.imagined import Wanted, imagined_device
from gemmproof.processes import die_with_parent
from gemmproof.target import Target, TargetError, call_theirs, line_of, load, load_file

REQUEST, EVENTS, STACK = "request.json", "events.jsonl", "stack.txt"
# A signal that targets hardly ever handle: it asks a hanging worker where it is.
WHERE_SIGNAL = signal.SIGRTMIN + 7

Emit = Callable[[dict[str, Any]], None]


def main(folder: str) -> None:
    """Serve the request in `folder`, then end at once: no thread and no handler delays it."""
    die_with_parent()
    place = Path(folder)
    stack = (place / STACK).open("w")
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(WHERE_SIGNAL, stack, all_threads=False)
    emit = _emitter(place / EVENTS)
    try:
        serve(json.loads((place / REQUEST).read_text()), emit)
    except TargetError as error:
        emit({"event": "error", "message": str(error)})
    except (SystemExit, KeyboardInterrupt) as error:
        how = f"{type(error).__name__}({error})"
        emit({"event": "left", "how": how, "where": line_of(error)})
    except BaseException as error:  # the engine's own mistake: told apart from the target's
        traceback.print_exc()
        emit({"event": "internal", "message": f"{type(error).__name__}: {error}"})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(request: dict[str, Any], emit: Emit) -> None:
    """Do what the request asks: list a project's kernels, load or judge one, find what kills it."""
    Wanted.device = request.get("device") == "cuda"
    if request["ask"] == "list":
        emit({"event": "kernels", "names": [kernel.name for kernel in _registered(request)]})
        return
    if request["ask"] == "load":
        emit({"event": "kernels", "names": [_kernel(request).name]})
        return
    if request["ask"] == "drift":
        from gemmproof.drift_worker import serve as serve_drift

        serve_drift(request, emit)
        return
    place, _, function = request["engine"].partition(":")
    module = import_module(place)
    kernel = _kernel(request)
    table = import_module(request["table"]).owed(kernel)
    case = _case(request["case"], kernel)
    launches = request.get("device") == "cuda"
    if launches:
        from gemmproof.properties.launched import owed

        table += owed(kernel)
    emit({"event": "properties", "claims": {claim.name: claim.claim for claim in table}})
    engine = partial(getattr(module, function), kernel, target=request["gpu"])
    if request["ask"] == "shrink":
        _shrink(request, kernel, engine, case, emit)
        return
    drawn: list[Any] = []

    def listener(event: dict[str, Any]) -> None:
        emit(event)
        if launches and event["event"] == "case" and event.get("phase") != "shrink":
            drawn.append(event["case"])

    report = engine(
        max_examples=request["max_examples"], seed=request["seed"], case=case, listener=listener
    )
    if launches:
        report = _launched(kernel, report, drawn, emit)
    emit({"event": "report", "report": report.to_json()})


def _launched(kernel: Any, report: Any, drawn: list[str], emit: Emit) -> Any:
    from gemmproof import gpu
    from gemmproof.launched import launched
    from gemmproof.properties.case import Case

    return launched(kernel, report, map(Case.from_json, drawn), gpu.found(), emit)


def _shrink(
    request: dict[str, Any], kernel: Any, engine: Callable[..., Any], case: Any, emit: Emit
) -> None:
    from gemmproof.forked import smallest

    def run(candidate: Any) -> None:
        engine(max_examples=1, seed=0, case=candidate, listener=lambda event: None)

    def tried() -> None:
        emit({"event": "tried"})

    limits = (request["seconds"], request["memory"])
    found = smallest(case, kernel.contract, run, request["end"], limits, tried)
    emit({"event": "shrunk", "case": found.to_json()})


def _kernel(request: dict[str, Any]) -> Any:
    from gemmproof.properties.contract import Contract, KernelUnderTest

    if "conftest" in request:
        return next(k for k in _registered(request) if k.name == request["kernel"])
    target = Target(**request["target"])
    # JSON knows lists only, the contract tuples only.
    stated: dict[str, Any]
    stated = {k: tuple(v) if isinstance(v, list) else v for k, v in request["contract"].items()}
    return KernelUnderTest(target.name, load(target), Contract(**stated))


def _registered(request: dict[str, Any]) -> list[Any]:
    """The kernels that the project's conftest.py registers; raises TargetError for nonsense."""
    from gemmproof.properties.contract import KernelUnderTest

    path = request["conftest"]
    hook = getattr(load_file(Path(path)), "pytest_gemm_kernels", None)
    if not callable(hook):
        raise TargetError(f"{path}: got no pytest_gemm_kernels(), expected a function of that name")

    def answer() -> Any:
        with imagined_device():
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


def _case(text: str | None, kernel: Any) -> Any:
    from gemmproof.properties.case import Case

    if text is None:
        return None
    case = Case.from_json(text)
    if (case.batch is not None) != kernel.contract.batched:
        got, expected = ("no batch", "one") if case.batch is None else ("a batch", "none")
        raise TargetError(f"case: got {got}, expected {expected} for {kernel.name}")
    return case


def _emitter(path: Path) -> Emit:
    worker = os.getpid()
    path = path.resolve()

    def emit(event: dict[str, Any]) -> None:
        if os.getpid() != worker:
            os._exit(0)  # a forked child came back from the target into the engine
        # Opened each time: a target may close every file descriptor, or change the folder.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            rest = memoryview(json.dumps(event).encode() + b"\n")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    return emit
