"""Checks in a worker process: of a kernel, and of smaller cases of which it dies."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemmproof.engine.request import (
    CASE,
    END,
    GUARANTEES,
    IDENTITY,
    SURVEY,
    CasesRequest,
    CheckRequest,
    GuaranteeRequest,
    Guarantees,
    ShrinkRequest,
)
from gemmproof.fake_device import DeviceRequest
from gemmproof.target import TargetError
from gemmproof.worker import serve
from gemmproof.worker.load_kernel import find_kernel, read_case
from gemmproof.worker.protocol import Advanced, CaseStarted, PartialResult, Ready, WorkerContext

if TYPE_CHECKING:
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.report.record import Report

    Engine = Callable[..., Report]

DRAFT = "the operands and the formula are a draft that nobody confirmed"


def check(request: CheckRequest, context: WorkerContext) -> Report:
    """Judge a kernel; send its identity and its guarantees before any case."""
    DeviceRequest.device = request.launch
    kernel, engine = _load(request, context)
    # what imports numpy follows the engine, whose memory is not the target's
    from gemmproof.identity import describe
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.contract import list_gpus, list_guaranteed
    from gemmproof.properties.kernel import ContractError
    from gemmproof.reference.spec import SpecError

    case = read_case(request.case, kernel)
    context.emit(PartialResult(IDENTITY, describe(kernel, serve.STARTED)))
    if promised := list_guaranteed(kernel.contract):
        gpus = list_gpus(kernel.contract, request.gpu)
        guarantees = Guarantees(tuple(promised), tuple(gpus), kernel.contract.reasons)
        context.emit(PartialResult(GUARANTEES, guarantees))
    options: dict[str, Any] = {"max_examples": request.max_examples, "seed": request.seed}
    if request.saved and case is None:
        options["first"] = [Case.from_json(text) for text in request.saved]
    if request.limits:
        options["limits"] = True
    if request.check_model:
        options |= {"check_model": True, "memory": context.memory // 2 or None}
    if request.check_model or request.launch:
        options["workdir"] = str(context.folder)
    if request.proof:
        options |= {"proof": True, "proof_seconds": request.proof_seconds}
    if request.launch:
        from gemmproof.backends.cuda_device import find_gpu

        options |= {"launch": True, "device": find_gpu()}
    try:
        report = engine(case=case, listener=context.emit, **options)
    except (SpecError, ContractError) as error:
        raise TargetError(f"{kernel.name}: {error}") from None
    return report.with_note(DRAFT, "draft") if kernel.draft else report


def shrink(request: ShrinkRequest, context: WorkerContext) -> str:
    """Return the JSON of the smallest case of which the kernel crashes."""
    kernel, engine = _load(request, context)
    from gemmproof.worker.crash_shrink import smallest

    def run(candidate: Any) -> None:
        engine(max_examples=1, seed=0, case=candidate, listener=lambda event: None)

    def advance() -> None:
        context.emit(Advanced())

    case, limits = read_case(request.case, kernel), (context.seconds, request.memory)
    assert case is not None
    return smallest(case, kernel.contract, run, limits, advance).to_json()


IDLE = 1.0  # seconds between two heartbeats of a worker that waits for a request


def judge_cases(request: CasesRequest, context: WorkerContext) -> None:
    """Judge each case that comes on the pipe; send its answer before the next one is read."""
    from gemmproof.engine.single_case import judge_case, survey
    from gemmproof.properties.cases.case import Case

    context.emit(Ready())
    kernel = find_kernel(request.kernel)

    def start(case: Case) -> None:
        context.emit(CaseStarted(case.to_json(), "draw"))

    for text in _read_requests(request.pipe, context):
        options = (request.gpu, context.seconds, start)
        if text == SURVEY:
            answer = survey(kernel, kernel.contract.formats[0], *options)
        else:
            answer = judge_case(kernel, Case.from_json(text), *options)
        context.emit(PartialResult(SURVEY if text == SURVEY else CASE, answer))


def _read_requests(pipe: str, context: WorkerContext) -> Iterator[str]:
    """Yield each request until END comes, and send heartbeats while waiting."""
    while True:
        # opened each time: a kernel may close every file descriptor
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while not select.select([descriptor], [], [], IDLE)[0]:
                context.emit(Advanced())
            lines = os.read(descriptor, select.PIPE_BUF * 16).decode().splitlines()
        finally:
            os.close(descriptor)
        for line in lines:
            if line == END:
                return
            yield line


def compile_guaranteed(request: GuaranteeRequest, context: WorkerContext) -> None:
    """Compile every launch of a kernel, for each of its GPUs, to judge guarantees."""
    from gemmproof.compiled.compile import compile_for
    from gemmproof.compiled.record import PLAN
    from gemmproof.engine.guarantee_check import plan_launches

    context.emit(Ready())
    kernel = find_kernel(request.kernel)
    case = read_case(request.case, kernel)
    plan, launches = plan_launches(kernel, request.gpu, case, request.max_examples)
    context.emit(PartialResult(PLAN, plan))
    compile_for(context, launches)


def _load(
    request: CheckRequest | ShrinkRequest, context: WorkerContext
) -> tuple[KernelUnderTest, Engine]:
    """Return the kernel, and the engine for it without guarantees about compiled code.

    Those are judged by workers of their own (engine/guarantee_check.py).
    """
    module, _, function = request.engine.partition(":")
    engine = getattr(import_module(module), function)
    context.emit(Ready())
    from gemmproof.engine.checker_reads import listen

    listen()
    kernel = find_kernel(request.kernel)
    from gemmproof.properties.contract import WITHOUT

    judged = replace(kernel, contract=replace(kernel.contract, **WITHOUT))
    return kernel, partial(engine, judged, target=request.gpu, seconds=context.seconds)
