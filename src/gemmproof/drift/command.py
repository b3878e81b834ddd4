"""`gemmproof drift`: one target's accumulator and its errors against K, answered on one screen."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, refuse, refuse_failure, undrawable, unwritable
from gemmproof.drift.record import DEVICE, DriftRequest, read_drift
from gemmproof.options import Command, argument, group, option
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract
from gemmproof.reference.formats import FLOAT_OPERANDS
from gemmproof.reference.gpus import DEFAULT, TARGETS, UNMODELLED
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT, Report
from gemmproof.report.text import STYLES, clean
from gemmproof.spelling import format_of, one_of
from gemmproof.target import KernelRef, TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.ends import UNKNOWN_ENDS, WorkerExit
from gemmproof.worker.entry_points import MEASURE_DRIFT
from gemmproof.worker.supervisor import watch


def _read_sizes(text: str) -> tuple[int, ...]:
    low, dots, high = text.partition("..")
    powers = {str(1 << n): n for n in range(5, 17)}
    first, last = powers.get(low, 1), powers.get(high if dots else low, 0)
    if first > last:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected LOW..HIGH, powers of two from 32 to 65536"
        )
    return tuple(1 << n for n in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """The options of `gemmproof drift`."""

    command: ClassVar = Command(
        "drift",
        help="identify the accumulator and measure how errors grow with K",
        description="Identify the accumulator of f(a, b) -> c, and measure how its errors"
        " grow with K.",
        examples=("gemmproof drift my_kernels.py:matmul --dtype fp8e4m3 --target sm_90",),
        exits="0 as declared, 1 findings, 2 bad usage or target, 3 incomplete",
    )

    target: str = argument("TARGET", groups.TARGET)
    dtype: str = option(
        "FORMAT", f"format of a and b (default %(default)s): {' '.join(FLOAT_OPERANDS)}",
        format_of(*FLOAT_OPERANDS), "fp16"
    )  # fmt: skip
    batched: bool = groups.batched_flag()
    accumulator: str = groups.accumulator_option()
    gpu: str = option(
        "GPU", f"predict the dot products of this GPU (default %(default)s): {' '.join(TARGETS)}"
        " ieee",
        one_of(*TARGETS, *UNMODELLED, "ieee"), DEFAULT, name="target"
    )  # fmt: skip
    sizes: tuple[int, ...] = option(
        "LOW..HIGH", "measure at the powers of two in this range", _read_sizes,
        _read_sizes("512..16384"),
        write=lambda sizes: f"{sizes[0]}..{sizes[-1]}", name="K"
    )  # fmt: skip
    device: str = option(
        "DEVICE", "cuda: launch on the GPU (default cpu: simulate)", one_of("cpu", "cuda"), "cpu"
    )
    json: str | None = groups.output_file(groups.JSON)
    svg: str | None = groups.output_file("draw the errors against K (needs matplotlib)")
    quiet: bool = groups.quiet_flag()
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=120))


def run(options: DriftOptions) -> int:
    """Measure the target in a worker, print the answer, write the requested reports."""
    problem = unwritable(options) or undrawable(options.svg) or _refuse_unmodelled(options)
    if problem:
        return refuse(options, problem)
    try:
        request = request_of(options)
    except TargetError as error:
        return refuse(options, str(error))
    with progress(request.name, options.quiet) as listener:
        worker = watch(MEASURE_DRIFT, request, options.worker.limits, listener)
    report = read_drift(worker)
    if not isinstance(report, Report):
        return _without_report(options, worker, request.name)
    report = replace(report, target=options.target, seconds=round(worker.seconds, 2))
    if options.device == "cuda" and worker.parts[DEVICE] is None:
        note = "--device cuda: torch finds no CUDA GPU here; the kernel was simulated only"
        report = report.with_note(note, "incomplete")
    from gemmproof.drift.plot import draw
    from gemmproof.drift.text import lines  # imports numpy, which bad usage does not need

    written: dict[str, Writer] = {
        "json": lambda path: write_json(path, encode(report)),
        "svg": lambda path: draw(report, path),
    }
    return answer(options, EXIT[report.verdict], lines(report), written)


def _refuse_unmodelled(options: DriftOptions) -> str | None:
    """Return one line on a target whose bits have no model, or None."""
    if options.gpu not in UNMODELLED:
        return None
    known = " ".join(TARGETS)
    return (
        f"--target: got {options.gpu}, which has no model of its matrix cores, expected one of:"
        f" {known} ieee"
    )


def request_of(options: DriftOptions) -> DriftRequest:
    """Return the request to measure. Raises TargetError, in one line."""
    target = parse(options.target)
    batched = options.batched or target.name == "bmm"
    return DriftRequest(
        KernelRef(target.name, None, target, Contract(batched=batched), format=options.dtype),
        gpu=None if options.gpu == "ieee" else options.gpu,
        declared=options.accumulator,
        sizes=options.sizes,
        launch=options.device == "cuda",
    )


def _without_report(options: DriftOptions, worker: WorkerExit, name: str) -> int:
    """Answer for a worker without a report: an error, or how the target died."""
    if failure := refuse_failure(options, worker, name):
        return failure
    assert worker.case is not None
    died = f"{worker.where or name}: {worker.how}"
    code = EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "fail"]
    text = clean(f"{name} at {worker.case.case}: {died}")
    return answer(options, code, [(text, STYLES["fail"])])
