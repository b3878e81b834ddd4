"""Checks in a worker process: of a kernel, and of smaller cases of which it dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemmproof.properties.codec import encode
from gemmproof.target import TargetError
from gemmproof.worker import serve
from gemmproof.worker.load_kernel import find_kernel, read_case
from gemmproof.worker.protocol import Listener, Request

if TYPE_CHECKING:
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.report.record import Report

    Engine = Callable[..., Report]


def check(request: Request, emit: Listener) -> None:
    """Judge the kernel of the request, and emit its identity, its guarantees and the report."""
    kernel, engine = _load(request, emit)
    # what imports numpy follows the engine, whose memory is not the target's
    from gemmproof.identity import describe
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.contract import list_gpus, list_promised
    from gemmproof.properties.kernel import ContractError
    from gemmproof.reference.spec import SpecError

    case = read_case(request.case, kernel)
    emit({"event": "source", "facts": encode(describe(kernel, serve.STARTED))})
    if promised := list_promised(kernel.contract):
        gpus, expected = list_gpus(kernel.contract, request.gpu), kernel.contract.reasons
        emit({"event": "promises", "names": promised, "gpus": gpus, "expected": expected})
    options: dict[str, Any] = {"max_examples": request.max_examples, "seed": request.seed}
    if request.saved and case is None:
        options["first"] = [Case.from_json(text) for text in request.saved]
    if request.limits:
        options["limits"] = True
    if request.check_model:
        options |= {"check_model": True, "memory": request.memory // 2 or None}
    if request.check_model or request.launch:
        options["workdir"] = request.workdir
    if request.proof:
        options |= {"proof": True, "proof_seconds": request.proof_seconds}
    if request.launch:
        from gemmproof.backends.cuda_device import find_gpu

        options |= {"launch": True, "device": find_gpu()}
    try:
        report = engine(case=case, listener=emit, **options)
    except (SpecError, ContractError) as error:
        raise TargetError(f"{kernel.name}: {error}") from None
    emit({"event": "report", "report": encode(report)})


def shrink(request: Request, emit: Listener) -> None:
    """Emit the smallest case of which the kernel dies as it does of the request's."""
    kernel, engine = _load(request, emit)
    from gemmproof.worker.crash_shrink import smallest

    def run(candidate: Any) -> None:
        engine(max_examples=1, seed=0, case=candidate, listener=lambda event: None)

    def advance() -> None:
        emit({"event": "tried"})

    case, limits = read_case(request.case, kernel), (request.seconds, request.memory)
    assert case is not None
    shrunk = smallest(case, kernel.contract, run, request.end, limits, advance)
    emit({"event": "shrunk", "case": shrunk.to_json()})


def compile_guaranteed(request: Request, emit: Listener) -> None:
    """Compile every launch of the request's kernel, for each of its GPUs, to judge guarantees."""
    from gemmproof.compiled.compile import compile_for
    from gemmproof.engine.guarantee_check import plan_launches

    emit({"event": "ready"})
    kernel = find_kernel(request)
    case = read_case(request.case, kernel)
    plan, launches = plan_launches(kernel, request.gpu, case, request.max_examples)
    emit({"event": "planned", "plan": encode(plan)})
    compile_for(request, emit, launches)


def _load(request: Request, emit: Listener) -> tuple[KernelUnderTest, Engine]:
    """Return the kernel, and the engine for it without guarantees about compiled code.

    Those are judged by workers of their own (engine/guarantee_check.py).
    """
    module, _, function = request.engine.partition(":")
    engine = getattr(import_module(module), function)
    emit({"event": "ready"})
    kernel = find_kernel(request)
    from gemmproof.properties.contract import WITHOUT

    judged = replace(kernel, contract=replace(kernel.contract, **WITHOUT))
    return kernel, partial(engine, judged, target=request.gpu, seconds=request.seconds)
