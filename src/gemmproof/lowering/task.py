"""Tasks of a worker: compile a kernel's launches, a sweep of their specialisations, and dots."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

from gemmproof.compiled.compile import (
    DIVISIBILITY,
    CapturedLaunch,
    PlannedLaunch,
    capture_case,
    capture_launches,
    compile_for,
    describe_launch,
    join_launches,
    send_result,
)
from gemmproof.compiled.record import FMA, PLAN, Failure, LoweredLaunch, Result
from gemmproof.lowering.record import (
    Dot,
    DotRequest,
    LaunchRequest,
    SweepPlan,
    Variant,
    format_known,
    list_changes,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import BATCHED, LAYOUTS, ROW, view
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.reference.fake_cuda import explain_lack
from gemmproof.reference.formats import FNUZ, FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count, format_error
from gemmproof.reference.simulation import SimulatorError
from gemmproof.target import TargetError, line_of, require_case
from gemmproof.worker.load_kernel import find_kernel
from gemmproof.worker.protocol import Advanced, PartialResult, Ready, WorkerContext

# -- launches ------------------------------------------------------------------------------------
# of each axis, unless the command or the contract gives another
SIZE, BATCH = 1024, 4


def compile_launches(request: LaunchRequest, context: WorkerContext) -> None:
    """Compile each launch of a kernel."""
    context.emit(Ready())
    kernel, planned = find_kernel(request.kernel), list[PlannedLaunch]()
    for case in choose_cases(request, kernel):
        captured = join_launches(capture_explained(kernel, case, request.gpu, request.every))
        _require_launch(kernel, captured)
        planned += (plan_launch(launch, case.dtype) for launch in captured)
    compile_for(context, planned)


def plan_launch(launch: CapturedLaunch, dtype: str, title: str | None = None) -> PlannedLaunch:
    """Return a launch to be compiled, labelled by its constants or a title."""
    record = describe_launch(launch, dtype)
    about = record.constants if title is None else title
    return PlannedLaunch(f"{record.kernel} {dtype} for {launch.gpu}: {about}", record, launch)


def _require_launch(kernel: KernelUnderTest, launches: Collection[object]) -> None:
    if not launches:
        raise TargetError(f"{kernel.name}: got no launch of a Triton kernel, expected one")


def choose_cases(request: LaunchRequest, kernel: KernelUnderTest) -> list[Case]:
    """Choose a case for each format: the given one, or the largest usual sizes admitted."""
    if request.case is not None:
        cases = [Case.from_json(request.case)]
    else:
        cases = [
            make_case(kernel, name, request.sizes, request.layouts)
            for name in kernel.contract.formats
        ]
    for case in cases:
        require_case(kernel, case)
    return cases


def make_case(
    kernel: KernelUnderTest,
    dtype: str,
    requested: Mapping[str, int] | None = None,
    layouts: Mapping[str, str] | None = None,
) -> Case:
    """Make the case of a format: the requested sizes and layouts, or the largest usual ones."""
    contract, requested = kernel.contract, requested or {}
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
    sides |= {"dtype": dtype, "layouts": tuple((layouts or {}).items())}
    try:
        return Case(**sides)
    except ValueError as mistake:
        raise TargetError(str(mistake)) from None


def capture_explained(
    kernel: KernelUnderTest, case: Case, gpu: str, every: bool
) -> list[CapturedLaunch]:
    """Capture the launches of a wrapper call. Raises TargetError, in one line, if it fails."""
    with explain_capture(kernel.name, gpu):
        return capture_case(kernel, case, gpu, every)


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


# -- previews -----------------------------------------------------------------------------------
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


def launch_dot(dot: Dot) -> None:
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


def compile_dots(request: DotRequest, context: WorkerContext) -> None:
    """Compile each dot."""
    context.emit(Ready())
    gpu, silent = request.gpu, replace(context, emit=lambda event: None)
    planned = [plan_dot(request.name, dot, gpu) for dot in request.dots]
    results = compile_for(context, planned)
    for number, (dot, result) in enumerate(zip(request.dots, results, strict=True)):
        if request.remedies and isinstance(result, LoweredLaunch) and is_without_cores(result):

            def try_dots(changed: Iterable[Dot], other: str) -> list[str | None]:
                """Compile dots for a GPU; return the label of each one's tensor core."""
                tried = [plan_dot(request.name, x, other) for x in changed]
                return [*map(_label_core, compile_for(silent, tried))]

            remedies = tuple(find_remedies(dot, gpu, try_dots))
            send_result(context.emit, number, replace(result, remedies=remedies))


def plan_dot(name: str, dot: Dot, gpu: str) -> PlannedLaunch:
    """Capture the launch of a dot."""
    with (
        explain_capture("--dot", gpu),
        capture_launches(gpu) as launches,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        launch_dot(dot)
    record = describe_launch(launches[0], dot.dtype)
    return PlannedLaunch(f"{name} {dot.dtype} for {gpu}: {dot.warps} warps", record, launches[0])


def is_without_cores(lowering: LoweredLaunch) -> bool:
    """Return whether a dot was compiled to fused multiply-adds alone."""
    units = [x.unit for dot in lowering.dots for x in dot.instructions]
    return bool(units) and all(unit == FMA for unit in units)


def find_remedies(
    dot: Dot, gpu: str, try_dots: Callable[[Iterable[Dot], str], list[str | None]]
) -> Iterator[str]:
    """Yield the changes that reach the tensor cores; of each parameter the smallest change.

    Each is compiled: nothing is concluded from a rule that the compiler may not follow. The GPU is
    changed only if nothing else helps.
    """
    changes = list(list_changes(dot))
    labels = try_dots([changed for _, changed in changes], gpu)
    helped: dict[str, str] = {}
    tried: dict[str, str] = {}
    for (text, _), label in zip(changes, labels, strict=True):
        parameter = text.partition("=")[0]
        if label:
            helped.setdefault(parameter, f"with {text}: {label}")
        elif label is not None:
            tried[parameter] = text
    yield from helped.values()
    if helped:
        return
    if tried:
        yield f"with {' or '.join(tried.values())}: still no tensor core"
    for other in GPUS.values():
        if other.is_amd == GPUS[gpu].is_amd and other.name != gpu:
            (label,) = try_dots([dot], other.name)
            if label:
                yield f"for {other.name}: {label}"
                return


def _label_core(lowered: Result) -> str | None:
    """Label the first tensor core instruction, "" if there is none; None if it is not known."""
    if isinstance(lowered, Failure):
        return None
    cores = (x for dot in lowered.dots for x in dot.instructions if x.is_core)
    return next((f"{x.label} of {x.a}" for x in cores), "")


# -- sweeps --------------------------------------------------------------------------------------
def compile_sweep(request: LaunchRequest, context: WorkerContext) -> None:
    """Compile the launches of a kernel, and each that differs by one change; send a SweepPlan."""
    context.emit(Ready())
    kernel, notes = find_kernel(request.kernel), list[str]()
    layouts = LAYOUTS if request.kernel.target else kernel.contract.layout_names

    def capture(case: Case) -> list[CapturedLaunch]:
        context.emit(Advanced())
        return capture_explained(kernel, case, request.gpu, request.every)

    swept: list[tuple[Variant, PlannedLaunch]] = []
    for case in choose_cases(request, kernel):
        changes = list(list_case_changes(case, kernel, layouts))
        variants = find_variants(case, changes, capture, notes)
        _require_launch(kernel, variants)
        for variant, launch in variants:
            title = variant.change or "unchanged"
            swept.append((variant, plan_launch(launch, case.dtype, title)))
            notes += () if variant.change else list_unspecialised(launch)
    swept.sort(key=lambda x: bool(x[0].change))
    bases = [x for x in swept if not x[0].change]
    _send_plan(context, swept, notes)
    results = compile_for(context, [x for _, x in bases], of=len(swept))
    # a base that does not compile has nothing to lose
    whole = {
        (planned.record.dtype, variant.base)
        for (variant, planned), result in zip(bases, results, strict=True)
        if isinstance(result, LoweredLaunch) and not result.error
    }
    rest = [x for x in swept[len(bases) :] if (x[1].record.dtype, x[0].base) in whole]
    count = len(bases) + len(rest)
    _send_plan(context, [*bases, *rest], notes)
    compile_for(context, [x for _, x in rest], len(bases), count)


def _send_plan(
    context: WorkerContext, swept: Iterable[tuple[Variant, PlannedLaunch]], notes: list[str]
) -> None:
    variants = tuple(variant for variant, _ in swept)
    context.emit(PartialResult(PLAN, SweepPlan(variants, tuple(notes))))


DIVISIBLE = 16  # the divisor that Triton specialises sizes, strides and addresses for
_SWEPT = ("column", "padded", "transposed", "sliced", "misaligned", "batch_inner", "shared")


def list_case_changes(
    case: Case, kernel: KernelUnderTest, layouts: Collection[str]
) -> Iterator[tuple[str, Case]]:
    """Yield each single change as text, and the changed case; only admitted sizes are tried.

    Two things change if a row is padded by what its length loses, so that its stride stays
    divisible.
    """
    sources = (_change_sizes(case), _change_layouts(case, layouts), _change_operands(case, kernel))
    for text, changes in (pair for source in sources for pair in source):
        try:
            changed = replace(case, **changes)
        except ValueError:  # more elements than a case may have
            continue
        if kernel.contract.admits(changed.sides):
            yield text, changed


Changes = Iterator[tuple[str, dict[str, Any]]]


def _change_sizes(case: Case) -> Changes:
    for axis, size in case.sides.items():
        odd = size - 1 if size > 1 else 3
        other = odd if size % DIVISIBLE == 0 or size == 1 else size + -size % DIVISIBLE
        for n in dict.fromkeys((other, 1)):
            if n != size:
                yield f"{axis}={n}", {axis: n}


def _change_layouts(case: Case, layouts: Collection[str]) -> Changes:
    for name, role in ROLES.items():
        for layout in (ROW, *_SWEPT):
            fits = case.batch is not None or layout not in BATCHED
            if fits and layout in layouts and layout != case.layout(name):
                yield f"{name} {layout}", _lay_out(case, name, layout)
        rows = role.axes[1]
        _, height, width = case.shape_of(name)
        lead = view("padded", (1, height, width), role.number, 2).strides[1]
        if "padded" in layouts and case.layout(name) == ROW and width > lead - width:
            size = width - (lead - width)
            padded = _lay_out(case, name, "padded")
            yield f"{rows}={size}, {name} padded", {rows: size, **padded}


def _lay_out(case: Case, name: str, layout: str) -> dict[str, Any]:
    return {"layouts": tuple({**dict(case.layouts), name: layout}.items())}


def _change_operands(case: Case, kernel: KernelUnderTest) -> Changes:
    declared = dict(case.arguments)
    for name, values in kernel.list_options().items():
        for value in values:
            if value != declared.get(name, values[0]) and (value in _SWEPT or value not in LAYOUTS):
                yield f"{name} {value}", {"arguments": tuple({**declared, name: value}.items())}


def find_variants(
    case: Case,
    changes: Iterable[tuple[str, Case]],
    capture: Callable[[Case], list[CapturedLaunch]],
    notes: list[str],
) -> list[tuple[Variant, CapturedLaunch]]:
    """Return the launches of a case, and those that a change of it or of an argument makes.

    `notes` gets a line on each change that the wrapper rejects or that alters the number of
    launches.
    """
    bases = join_launches(capture(case))
    swept = {(i, *base.key): (Variant(i), base) for i, base in enumerate(bases)}
    also: dict[tuple[int, str, str], list[str]] = {}
    for text, changed in changes:
        try:
            launches = join_launches(capture(changed))
        except TargetError as mistake:
            notes.append(f"{text}: {mistake}")
            continue
        if len(launches) != len(bases):
            kernels = " ".join(x.kernel for x in launches) or "none"
            count = format_count(len(launches), "launch")
            notes.append(f"{text}: got {count} ({kernels}), expected {len(bases)} to compare")
            continue
        for i, (base, launch) in enumerate(zip(bases, launches, strict=True)):
            arguments, constants = describe_difference(base, launch)
            variant = Variant(i, text, arguments=arguments, constants=constants)
            key = (i, *launch.key)
            if key in swept:
                also.setdefault(key, []).append(text)
            else:
                swept[key] = (variant, launch)
    for i, base in enumerate(bases):
        for name, before, after in list_alterations(base):
            launch = alter(base, name, after)
            text = f"{name} {format_known(after)}"
            altered = Variant(i, text, altered=True, arguments={name: (before, after)})
            swept.setdefault((i, *launch.key), (altered, launch))  # a real call's takes precedence
    named = [
        (replace(variant, also=tuple(also.get(key, ()))) if variant.change else variant, launch)
        for key, (variant, launch) in swept.items()
    ]
    return sorted(named, key=lambda x: (bool(x[0].change), x[0].base))


def describe_difference(
    base: CapturedLaunch, launch: CapturedLaunch
) -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Return the specialisations, and the constants of the source, that differ."""
    if base.kernel != launch.kernel:
        return {}, {"kernel": (base.kernel, launch.kernel)}
    before, after = base.specialised, launch.specialised
    arguments = {
        name: (before[name], after[name])
        for name in before
        if name in after and before[name] != after[name]
    }
    old, new = (_list_constants(x) for x in (base, launch))
    declared = dict.fromkeys((*old, *new))
    constants = {
        name: (old.get(name, "none"), new.get(name, "none"))
        for name in declared
        if old.get(name) != new.get(name)
    }
    options = (("warps", "num_warps"), ("stages", "num_stages"))
    for label, option in options:
        base_option, launch_option = (getattr(x.options, option) for x in (base, launch))
        constants |= (
            {label: (str(base_option), str(launch_option))} if base_option != launch_option else {}
        )
    return arguments, constants


def _list_constants(launch: CapturedLaunch) -> dict[str, str]:
    """Return the constants that the source declares, as text: tuned, heuristic, or passed."""
    declared = {p.name for p in launch.source.fn.params if p.is_constexpr}
    return {n: str(getattr(x, "value", x)) for n, x in launch.constants.items() if n in declared}


def list_alterations(launch: CapturedLaunch) -> Iterator[tuple[str, str, str]]:
    """Yield each argument that Triton specialises, with its present and another specialisation.

    Arguments that the kernel itself asks not to specialise are excluded.
    """
    for name, known in launch.specialised.items():
        parameter = next(p for p in launch.source.fn.params if p.name == name)
        if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
            continue
        yield name, known, "16" if known == "" else ""


def list_unspecialised(launch: CapturedLaunch) -> Iterator[str]:
    """Yield a line on what a kernel asks not to be specialised, if anything."""
    unspecialised = [p.name for p in launch.source.fn.params if p.do_not_specialize]
    if unspecialised:
        yield f"{launch.kernel} disables specialisation of {' '.join(unspecialised)}"
    if launch.descriptors:
        count = len(launch.descriptors)
        yield f"{launch.kernel} takes {count} descriptors, which are not specialised"


def alter(launch: CapturedLaunch, name: str, known: str) -> CapturedLaunch:
    """Return the launch with another specialisation of an argument: divisible by 16, or none."""
    source = launch.source
    path = (source.fn.arg_names.index(name),)
    signature, attrs = dict(source.signature), dict(source.attrs)
    constants = dict(source.constants)
    if constants.pop(path, None) is not None:
        signature[name] = "i32"
    others = [x for x in attrs.get(path, ()) if x[0] != DIVISIBILITY]
    attrs[path] = [[DIVISIBILITY, 16], *others] if known == "16" else others
    changed = type(source)(source.fn, signature, constants, attrs)
    return replace(launch, source=changed)
