"""Tasks of a worker: lower launches, preview dots, sweep specialisations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from gemmproof.lowering.compile import (
    CapturedLaunch,
    capture_launches,
    compile_launch,
    join_launches,
)
from gemmproof.lowering.facts import tell
from gemmproof.lowering.guarantee_outcome import weigh_launches
from gemmproof.lowering.preview import Dot, list_changes
from gemmproof.lowering.record import FMA, UNKNOWN, LoweredLaunch
from gemmproof.lowering.sweep import Variant, find_variants, list_case_changes, list_unspecialised
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import LAYOUTS
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.reference.fake_cuda import explain_lack
from gemmproof.reference.formats import FNUZ, FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_error
from gemmproof.reference.simulation import CompileError, SimulatorError
from gemmproof.target import TargetError, display_path, line_of, require_case
from gemmproof.worker.protocol import Listener, Request

# -- kernel of a preview -------------------------------------------------------------------------
_DTYPES = {fmt.name: fmt.dtype for fmt in (*FORMATS.values(), *FNUZ)}
_SIDE = 1 << 16  # of the operands: divisible by 16, as any real product's strides are


@triton.jit
def dot_kernel(  # type: ignore[no-untyped-def]
    a_ptr, b_ptr, c_ptr, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr,
):  # fmt: skip
    """Compute c = a @ b in tiles that divide M, N and K."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        acc = tl.dot(
            a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=ACC
        )
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :], acc)


def launch(dot: Dot) -> None:
    """Launch the dot on absent operands: only their types and strides matter."""
    dtype = getattr(torch, _DTYPES[dot.dtype])
    acc = getattr(torch, _DTYPES[dot.accumulator])
    a, b = (torch.empty(16, dtype=dtype, device="cuda") for _ in range(2))
    c = torch.empty(16, dtype=acc, device="cuda")
    strides = [1 if name == "column" else _SIDE for name in (dot.a, dot.b)]
    across = [_SIDE if name == "column" else 1 for name in (dot.a, dot.b)]
    options: dict[str, Any] = {"num_warps": dot.warps}
    if dot.stages is not None:
        options["num_stages"] = dot.stages
    dot_kernel[(1,)](
        a, b, c, _SIDE, strides[0], across[0], strides[1], across[1], _SIDE, *dot.tile,
        getattr(tl, _DTYPES[dot.accumulator]), dot.precision, dot.imprecise, **options,
    )  # fmt: skip


# -- launches ------------------------------------------------------------------------------------
# of each axis, unless the command or the contract gives another
SIZE, BATCH = 1024, 4


def serve(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """Compile each launch of the request's kernel for its GPU; runs in the worker.

    `plan`: `sizes` and `layouts` by name, `every` configuration or only the first, `room` for
    files, and `done`, how many launches an earlier worker reported. A launch is announced before it
    is compiled, so that the supervisor knows which one a worker died of.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    cases = choose_cases(request, kernel)
    plan, gpu = request.plan, request.gpu or ""
    launches: list[tuple[Case, CapturedLaunch]] = []
    for case in cases:
        captured = join_launches(capture_case(kernel, case, gpu, plan["every"]))
        if not captured:
            raise TargetError(f"{kernel.name}: got no launch of a Triton kernel, expected one")
        launches += [(case, launch) for launch in captured]
    for i, (case, launch) in enumerate(launches[plan["done"] :], plan["done"]):
        constants = " ".join(f"{name}={x}" for name, x in launch.configuration.items())
        shown = f"{launch.kernel} {case.dtype} for {gpu}: {constants}"
        about = {"case": shown, "phase": "compile", "index": i, "of": len(launches)}
        emit({"event": "case", **about})
        lowering = lower_launch(launch, case.dtype, plan)
        emit({"event": "lowered", "lowering": lowering.to_dict()})
    emit({"event": "compiled", "launches": len(launches)})


def choose_cases(request: Request, kernel: KernelUnderTest) -> list[Case]:
    """Choose a case for each format: the given one, or the largest usual sizes admitted."""
    if request.case is not None:
        cases = [Case.from_json(request.case)]
    else:
        cases = [make_case(request, kernel, name) for name in kernel.contract.formats]
    for case in cases:
        require_case(kernel, case)
    return cases


def make_case(request: Request, kernel: KernelUnderTest, dtype: str) -> Case:
    """Make the case of a format: the sizes and layouts of the plan, or the largest usual ones."""
    contract, requested = kernel.contract, request.plan["sizes"]
    axes = ("M", "N", "K", "batch") if contract.batched else ("M", "N", "K")
    for axis in requested:
        if axis not in axes:
            raise TargetError(f"--sizes: got {axis}, expected one of {' '.join(axes)}")
    sides: dict[str, Any] = {}
    for axis in axes:
        most = BATCH if axis == "batch" else SIZE
        usual = (most >> n for n in range(most.bit_length()))
        admitted = [n for n in usual if n in contract.sizes(axis)]
        low = contract.sizes(axis).low
        sides[axis] = requested.get(axis) or (admitted[0] if admitted else low)
    if not requested and not contract.admits(sides):
        got = " ".join(f"{axis}={n}" for axis, n in sides.items())
        expected = "sizes that the contract admits: --sizes"
        raise TargetError(f"{kernel.name}: got {got}, expected {expected}")
    sides |= {"dtype": dtype, "layouts": tuple(request.plan["layouts"].items())}
    try:
        return Case(**sides)
    except ValueError as mistake:
        raise TargetError(str(mistake)) from None


def capture_case(
    kernel: KernelUnderTest, case: Case, gpu: str, every: bool
) -> list[CapturedLaunch]:
    """Capture the launches of a wrapper call. Raises TargetError, in one line, if it fails."""
    with explain_capture(kernel.name, gpu):
        tensors = {name: x.tensor for name, x in operands(case, kernel).items()}
        with capture_launches(gpu, every) as launches, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel.call(case, tensors)
    return launches


@contextmanager
def explain_capture(name: str, gpu: str) -> Iterator[None]:
    """Turn a wrapper's exception in the context into a TargetError, in a line with its place."""
    try:
        yield
    except ContractError as error:
        raise TargetError(f"{name}: {error}") from None
    except SimulatorError as error:
        raise TargetError(str(error)) from None
    except Exception as error:
        missing = explain_lack(error, GPUS[gpu])
        if missing is not None:
            raise TargetError(str(missing)) from None
        where = line_of(error)
        if where is None:  # no line of the target is at fault
            raise
        message = f"{where}: got {format_error(error)}, expected launches for {gpu}"
        raise TargetError(message) from None


def lower_launch(launch: CapturedLaunch, dtype: str, plan: dict[str, Any]) -> LoweredLaunch:
    """Compile a launch to a record: its facts, or the compiler's message."""
    fields = LoweredLaunch(
        target=launch.gpu,
        kernel=launch.kernel,
        dtype=dtype,
        configuration=launch.configuration,
        configurations=launch.configurations,
        grid=launch.grids[0] if launch.grids else None,
        launches=len(launch.grids),
        specialised=launch.specialised,
        warps=int(launch.options.num_warps),
        stages=int(launch.options.num_stages),
    ).to_dict()
    try:
        compiled = compile_launch(launch, Path(plan["room"]))
    except CompileError as error:
        where = error.where
        location = "" if where is None else f"{display_path(where.file)}:{where.line}"
        return LoweredLaunch.from_dict({**fields, "error": error.message, "where": location})
    binary = compiled.asm["cubin" if "cubin" in compiled.asm else "hsaco"]
    fields |= {"seconds": round(compiled.seconds, 3), "binary": sha256(binary).hexdigest()}
    return LoweredLaunch(**_keep_records(fields | tell(compiled)))


def _keep_records(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `to_dict`, with the grid as a tuple."""
    return {**fields, "grid": None if fields["grid"] is None else tuple(fields["grid"])}


# -- previews ------------------------------------------------------------------------------------
def serve_preview(request: Request, emit: Listener) -> None:
    """Compile each dot of the request's plan for its GPU; runs in the worker.

    `plan`: `dots`, the fields of each; `room` for files; `done`, how many an earlier worker
    reported; `remedies`, whether changes are tried for those that miss the tensor cores.
    """
    emit({"event": "ready"})
    plan, gpu = request.plan, request.gpu or ""
    dots = [Dot(**{**fields, "tile": tuple(fields["tile"])}) for fields in plan["dots"]]
    for i, dot in enumerate(dots[plan["done"] :], plan["done"]):
        shown = f"{request.name} {dot.dtype} for {gpu}: {dot.warps} warps"
        about = {"case": shown, "phase": "compile", "index": i, "of": len(dots)}
        emit({"event": "case", **about})
        lowering = lower_dot(dot, gpu, plan)
        if plan["remedies"] and not lowering.error and is_without_cores(lowering):
            lowering = replace(lowering, remedies=tuple(_find_remedies(dot, gpu, plan, emit)))
        emit({"event": "lowered", "lowering": lowering.to_dict()})
    emit({"event": "compiled", "launches": len(dots)})


def lower_dot(dot: Dot, gpu: str, plan: dict[str, Any]) -> LoweredLaunch:
    """Compile one dot and return its record."""
    with (
        explain_capture("--dot", gpu),
        capture_launches(gpu) as launches,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        launch(dot)
    return lower_launch(launches[0], dot.dtype, plan)


def is_without_cores(lowering: LoweredLaunch) -> bool:
    """Return whether a dot was compiled to fused multiply-adds alone."""
    units = [x.unit for dot in lowering.dots for x in dot.instructions]
    return bool(units) and all(unit == FMA for unit in units)


def _find_remedies(dot: Dot, gpu: str, plan: dict[str, Any], emit: Listener) -> Iterator[str]:
    """Yield the changes that reach the tensor cores; of each parameter the smallest change.

    Each is compiled: nothing is concluded from a rule that the compiler may not follow. The GPU is
    changed only if nothing else helps.
    """
    helped: set[str] = set()
    tried: dict[str, str] = {}
    for text, changed in list_changes(dot):
        parameter = text.partition("=")[0]
        if parameter in helped:
            continue
        emit({"event": "advanced"})
        tried[parameter] = text
        if label := _label_core(lower_dot(changed, gpu, plan)):
            helped.add(parameter)
            yield f"with {text}: {label}"
    if helped:
        return
    if tried:
        yield f"with {' or '.join(tried.values())}: no tensor core either"
    for other in GPUS.values():
        if other.is_amd == GPUS[gpu].is_amd and other.name != gpu:
            emit({"event": "advanced"})
            if label := _label_core(lower_dot(dot, other.name, plan)):
                yield f"for {other.name}: {label}"
                return


def _label_core(lowering: LoweredLaunch) -> str:
    """Label the first tensor core instruction, "" if there is none."""
    if lowering.error:
        return ""
    for instruction in (x for dot in lowering.dots for x in dot.instructions):
        if instruction.unit not in (FMA, UNKNOWN):
            m, n, k = instruction.shape or ("?", "?", "?")
            return f"{instruction.unit} m{m}n{n}k{k} of {instruction.a}"
    return ""


# -- sweeps --------------------------------------------------------------------------------------
def serve_sweep(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """Compile the launches of the request's kernel, and each that differs by one change.

    Runs in the worker; the plan is that of `serve`. A launch is reported with its `variant`
    (Variant.to_dict); `compiled` has the `notes`: a line on each change that is not compared.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    plan, gpu = request.plan, request.gpu or ""
    notes: list[str] = []
    layouts = LAYOUTS if request.target is not None else kernel.contract.layout_names

    def capture(case: Case) -> list[CapturedLaunch]:
        emit({"event": "advanced"})
        return capture_case(kernel, case, gpu, plan["every"])

    launches: list[tuple[Case, Variant]] = []
    for case in choose_cases(request, kernel):
        changes = list(list_case_changes(case, kernel, layouts))
        variants = find_variants(case, changes, capture, notes)
        if not variants:
            raise TargetError(f"{kernel.name}: got no launch of a Triton kernel, expected one")
        launches += [(case, variant) for variant in variants]
        notes += [x for v in variants if not v.change for x in list_unspecialised(v.launch)]
    for i, (case, variant) in enumerate(launches):
        # a base that does not compile has nothing to lose; it may have killed its worker
        begun = Path(plan["room"]) / f"{gpu}-{case.dtype}-{variant.base}.begun"
        if i < plan["done"] or begun.exists():
            continue
        if not variant.change:
            begun.touch()
        title = variant.change or "as it is"
        shown = f"{variant.launch.kernel} {case.dtype} for {gpu}: {title}"
        about = {"case": shown, "phase": "compile", "index": i, "of": len(launches)}
        emit({"event": "case", **about})
        lowering = lower_launch(variant.launch, case.dtype, plan)
        emit({"event": "lowered", "lowering": lowering.to_dict(), "variant": variant.to_dict()})
        if not lowering.error:
            begun.unlink(missing_ok=True)
    emit({"event": "compiled", "launches": len(launches), "notes": notes})


# -- guarantees ----------------------------------------------------------------------------------
def serve_claims(
    request: Request, find_kernel: Callable[[Request], KernelUnderTest], emit: Listener
) -> None:
    """Assess every launch of the request's kernel, for each of its GPUs; runs in the worker.

    `plan`: `room` for files, and `done`, how many launches an earlier worker reported.
    """
    emit({"event": "ready"})
    kernel = find_kernel(request)
    case = None if request.case is None else Case.from_json(request.case)
    workdir, done = Path(request.plan["room"]), request.plan["done"]
    outcome = weigh_launches(kernel, request.gpu, case, request.max_examples, workdir, emit, done)
    emit({"event": "compiled", "launches": len(outcome.plan.launches)})
