"""`gemmproof lowering`: the compiled code of a kernel's launches, for GPUs that are not present."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse, show_end, unwritable
from gemmproof.lowering.record import (
    PRECISIONS,
    PREVIEWED,
    USUAL_WARPS,
    WARPS,
    Dot,
    DotRequest,
    LaunchRequest,
    is_fp32,
    sums_of,
)
from gemmproof.options import Command, flag, group, option, spell
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import LAYOUTS
from gemmproof.properties.contract import AXES, Contract
from gemmproof.reference.formats import FP8, OPERANDS
from gemmproof.reference.gpus import DEFAULT, GPUS
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT
from gemmproof.spelling import format_of, one_of
from gemmproof.target import Calling, KernelRef, TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.supervisor import preload

# the functions that compile in a worker
LAUNCHES = "gemmproof.lowering.task:compile_launches"
SWEEP = "gemmproof.lowering.task:compile_sweep"
DOTS = "gemmproof.lowering.task:compile_dots"


def _read_sizes(text: str) -> tuple[tuple[str, int], ...]:
    sizes = groups.read_pairs(text)
    for axis, size in sizes:
        is_size = size.isascii() and size.isdigit() and 0 < int(size) < 2**31
        if axis not in AXES or not is_size:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected such as M=4096,N=4096,K=64")
    return tuple((axis, int(size)) for axis, size in sizes)


def _read_layouts(text: str) -> tuple[tuple[str, str], ...]:
    layouts = groups.read_pairs(text)
    if any(name not in ("a", "b") or layout not in LAYOUTS for name, layout in layouts):
        expected = f"expected such as b=transposed, of: {' '.join(LAYOUTS)}"
        raise argparse.ArgumentTypeError(f"got {text!r}, {expected}")
    return layouts


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The call of a kernel whose launches are compiled."""

    sizes: tuple[tuple[str, int], ...] = option(
        "AXIS=N,...", "sizes of M, N, K and batch (default 1024 each, batch 4): M=4096,K=64",
        _read_sizes, (), write=groups.write_pairs
    )  # fmt: skip
    case: str | None = option("JSON", "take sizes, format and layouts from this case")
    batched: bool = groups.batched_flag()
    config: str = option(
        "WHICH", "configurations of an autotuned kernel: first, or all that its pruning leaves",
        one_of("first", "all"), "first"
    )  # fmt: skip
    sweep: bool = flag(
        "change one size, layout or operand at a time, and print the cost of each change"
    )


@dataclass(frozen=True, slots=True)
class DotOptions:
    """A dot of its own: its tile, and how it is compiled."""

    title: ClassVar = "a single tl.dot, instead of TARGET"
    tile: tuple[int, int, int] | None = option(
        ("M", "N", "K"),
        "compile tl.dot of this tile in a plain loop over K; --dtype may then also be "
        f"{' '.join(name for name in PREVIEWED if name not in OPERANDS)}", groups.positive,
        name="dot"
    )  # fmt: skip
    warps: tuple[int, ...] = option(
        "N", "number of warps per block, repeatable (default 4)",
        lambda text: int(one_of(*map(str, WARPS))(text)), repeated=True
    )  # fmt: skip
    stages: int | None = option("N", "number of pipeline stages of the loop", groups.positive)
    precision: str | None = option(
        "PRECISION", f"input_precision of fp32 products: {' '.join(PRECISIONS)}",
        one_of(*PRECISIONS)
    )  # fmt: skip
    acc: str | None = option(
        "FORMAT", "format of the accumulator: fp32 fp16", format_of("fp32", "fp16")
    )
    max_num_imprecise_acc: int | None = option(
        "N", "add partial sums of fp8 products in fp32 after this many k, on GPUs with wgmma",
        groups.natural
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """The options of `gemmproof lowering`."""

    command: ClassVar = Command(
        "lowering",
        help="show what a kernel compiles to, for any supported GPU",
        description="Compile what the wrapper f(a, b) -> c launches, and print the resulting"
        " instructions, registers and copies. No GPU is needed.",
        examples=(
            "gemmproof lowering my_kernels.py:matmul --target sm_80 --target sm_90",
            "gemmproof lowering --dot 64 64 32 --dtype fp8e4m3 --target sm_90",
        ),
        exits="0 printed, 2 bad usage or target, 3 something could not be compiled",
    )

    choice: groups.KernelOptions = group(groups.KernelOptions())
    gpus: tuple[str, ...] = option(
        "GPU", f"compile for this GPU, repeatable (default %(default)s): {' '.join(GPUS)}",
        one_of(*GPUS), (DEFAULT,), name="target", repeated=True
    )  # fmt: skip
    dtype: tuple[str, ...] = groups.formats_option(PREVIEWED)
    layouts: tuple[tuple[str, str], ...] = option(
        "OPERAND=LAYOUT,...", f"layouts of a and b (default row): {' '.join(LAYOUTS)}",
        _read_layouts, (), write=groups.write_pairs
    )  # fmt: skip
    launch: LaunchOptions = group(LaunchOptions())
    jobs: int | None = groups.jobs_option()
    json: str | None = groups.output_file("write all results (- for stdout)")
    quiet: bool = groups.quiet_flag()
    calling: Calling = group(Calling())
    dot: DotOptions = group(DotOptions())
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=120))


def run(options: LoweringOptions) -> int:
    """Have workers compile for each target, print the results, write the requested reports."""
    from gemmproof.compiled.run import compile_for_gpus
    from gemmproof.lowering import text

    try:
        if problem := unwritable(options):
            raise ValueError(problem)
        of_dots = options.dot.tile is not None
        request = _ask_preview(options) if of_dots else _request_of(options)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    gpus = list(dict.fromkeys(options.gpus))
    jobs = min(len(gpus), options.jobs or os.cpu_count() or 1)
    started = time.monotonic()
    limits = options.worker.limits
    with (
        progress(request.name, options.quiet, len(gpus), "targets") as course,
        preload(None, limits),
    ):
        function = DOTS if of_dots else SWEEP if options.launch.sweep else LAUNCHES
        requests = [replace(request, gpu=gpu) for gpu in gpus]
        results = compile_for_gpus(function, requests, limits, course.follow, jobs)
    for result in results:
        if result.output:
            show_end(options, result.output)
    mistakes = list(dict.fromkeys(result.mistake for result in results if result.mistake))
    if len(mistakes) == 1 and not any(result.lowerings or result.failures for result in results):
        return refuse(options, mistakes[0])  # an error of the target is the same for every GPU
    lowerings = [x for result in results for x in result.lowerings]
    failures = [line for result in results for line in (*result.failures, result.mistake) if line]
    code = EXIT["incomplete" if failures or any(x.error for x in lowerings) else "pass"]
    seconds = time.monotonic() - started
    if options.launch.sweep:
        whole: object = text.report_sweep(request.name, results, failures)
        shown = text.sweep_lines(request.name, results, seconds)
    else:
        whole = text.LoweringReport(request.name, tuple(lowerings), tuple(failures))
        table = (text.tabulate_dots, 1) if of_dots else (text.tabulate, text.MOST_BLOCKS)
        shown = text.lines(request.name, results, seconds, *table)
    written: dict[str, Writer] = {"json": lambda path: write_json(path, whole)}
    return answer(options, code, shown, written)


def _request_of(options: LoweringOptions) -> LaunchRequest:
    """Return the request to compile launches. Raises TargetError or ValueError, in one line."""
    launch, calling, choice = options.launch, options.calling, options.choice
    if of_a_dot := spell(options.dot):
        raise ValueError(f"{of_a_dot[0]}: got it without --dot, expected it with --dot M N K")
    if other := next((name for name in options.dtype if name not in OPERANDS), None):
        raise ValueError(f"--dtype: got {other} without --dot, expected of {' '.join(OPERANDS)}")
    given = spell(LaunchOptions(batched=launch.batched)) + spell(calling)
    registered = groups.is_registered(choice, options.dtype, given)
    case = None if launch.case is None else Case.from_json(launch.case)
    if case is not None and (launch.sizes or options.layouts or options.dtype):
        raise ValueError("--case: got --sizes, --layouts or --dtype with it, expected one of them")
    if registered:
        ref = groups.refer_to_registered(choice, options.dtype)
    else:
        target = parse(str(choice.target))
        if case is not None:
            calling.state(target.name).require(case)
        has_batch = case is not None and case.batch is not None
        batched = launch.batched or target.name == "bmm" or has_batch
        formats = list(dict.fromkeys(options.dtype)) or [case.dtype if case else "fp16"]
        contract = Contract(tuple(formats), batched=batched)
        ref = KernelRef(target.name, None, target, contract, calling)
    sizes, layouts = dict(launch.sizes), dict(options.layouts)
    return LaunchRequest(ref, launch.case, sizes, layouts, launch.config == "all")


def _ask_preview(options: LoweringOptions) -> DotRequest:
    """Return the request to compile dots. Raises ValueError for conflicting options."""
    dot, choice = options.dot, options.choice
    if choice.target is not None:
        raise ValueError(f"target: got {choice.target!r} and --dot, expected one of them")
    named = groups.KernelOptions(kernel=choice.kernel)
    if of_a_kernel := [*spell(named), *spell(options.launch), *spell(options.calling)]:
        name = of_a_kernel[0].partition("=")[0]
        raise ValueError(f"{name}: got it with --dot, expected it with TARGET")
    for name, layout in options.layouts:
        if layout not in ("row", "column"):
            raise ValueError(f"--layouts: got {name}={layout} with --dot, expected row or column")
    formats = dict.fromkeys(options.dtype or ("fp16",))
    for dtype in formats:
        sums = sums_of(dtype)
        if dot.acc and dot.acc not in sums:
            raise ValueError(f"--acc: got {dot.acc} for {dtype}, expected {' or '.join(sums)}")
        if dot.precision and not is_fp32(dtype):
            got = f"{dot.precision} for {dtype}"
            raise ValueError(f"--precision: got {got}, expected it for fp32 alone")
    tile = dot.tile or (0, 0, 0)
    if dot.max_num_imprecise_acc is not None:
        _require_promotion(dot, formats, options.gpus, tile[2])
    dots = [
        Dot(
            tile,
            dtype,
            warps,
            dot.stages,
            dot.precision or ("tf32" if dtype == "tf32" else None),
            dot.acc,
            dot.max_num_imprecise_acc,
            **dict(options.layouts),
        )
        for dtype, warps in product(formats, dict.fromkeys(dot.warps or [USUAL_WARPS]))
    ]
    return DotRequest(f"dot {'x'.join(map(str, tile))}", tuple(dots), remedies=True)


def _require_promotion(
    dot: DotOptions, formats: Iterable[str], gpus: Iterable[str], most: int
) -> None:
    """Refuse max_num_imprecise_acc where Triton ignores or refuses it.

    Only wgmma of fp8 onto fp32 is promoted; a test compiles the others with it and without.
    """
    value = dot.max_num_imprecise_acc or 0
    name = f"--max-num-imprecise-acc: got {value}"
    for dtype in formats:
        if dtype not in FP8:
            raise ValueError(f"{name} for {dtype}, expected it for {' or '.join(FP8)} alone")
    if dot.acc == "fp16":
        raise ValueError(f"{name} for sums of fp16, expected it for those of fp32 alone")
    for gpu in gpus:
        if GPUS[gpu].core("wgmma") is None:
            known = " or ".join(x.name for x in GPUS.values() if x.core("wgmma"))
            raise ValueError(f"{name} for {gpu}, expected it for {known} alone, which has wgmma")
    if value > most:
        raise ValueError(f"{name}, expected at most K = {most}")
