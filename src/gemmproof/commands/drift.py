"""`gemmproof drift`: one target's accumulator and its errors against K, answered on one screen."""

from __future__ import annotations

import argparse
from dataclasses import replace

from gemmproof.commands.output import answer, limits_of, refuse, show_end, undrawable, unwritable
from gemmproof.properties.codec import decode, encode
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT, Report
from gemmproof.report.text import STYLES, clean
from gemmproof.target import TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.protocol import UNKNOWN_ENDS, Request, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Measure the target in a worker, print the answer, write the requested reports."""
    problem = (
        unwritable(options, ("json", "svg")) or undrawable(options) or _refuse_unmodelled(options)
    )
    if problem:
        return refuse(options, problem)
    try:
        request = request_of(options)
    except TargetError as error:
        return refuse(options, str(error))
    with progress(request.name, options.quiet) as listener:
        worker = watch(request, limits_of(options), listener)
    if "report" not in worker.events:
        return _without_report(options, worker, request.name)
    report = decode(Report, worker.events["report"]["report"], "report")
    report = replace(report, target=options.target, seconds=round(worker.seconds, 2))
    if options.device == "cuda" and worker.events["device"]["gpu"] is None:
        note = "--device cuda: torch finds no CUDA GPU here; the kernel was simulated only"
        report = report.with_note(note, "incomplete")
    from gemmproof.drift.plot import draw
    from gemmproof.drift.text import lines  # imports numpy, which bad usage does not need

    written: dict[str, Writer] = {
        "json": lambda path: write_json(path, encode(report)),
        "svg": lambda path: draw(report, path),
    }
    return answer(options, EXIT[report.verdict], lines(report), written)


def _refuse_unmodelled(options: argparse.Namespace) -> str | None:
    """Return one line on a target whose bits have no model, or None."""
    if options.gpu not in UNMODELLED:
        return None
    known = " ".join(TARGETS)
    return (
        f"--target: got {options.gpu}, which has no model of its matrix cores, expected one of:"
        f" {known} ieee"
    )


def request_of(options: argparse.Namespace) -> Request:
    """Return the worker's request. Raises TargetError, in one line."""
    target = parse(options.target)
    return Request(
        ask="drift",
        name=target.name,
        target=encode(target),
        contract={"batched": options.batched or target.name == "bmm"},
        format=options.dtype,
        declared=options.accumulator,
        sizes=options.sizes,
        gpu=None if options.gpu == "ieee" else options.gpu,
        launch=options.device == "cuda",
    )


def _without_report(options: argparse.Namespace, worker: WorkerExit, name: str) -> int:
    """Answer for a worker without a report: an error, or how the target died."""
    if "internal" in worker.events:
        show_end(options, worker.output)
    if failure := worker.explain_failure(name):
        return refuse(options, failure)
    died = f"{worker.where or name}: got {worker.how}, expected a product"
    code = EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "fail"]
    text = clean(f"{name} at {worker.events['case']['case']}: {died}")
    return answer(options, code, [(text, STYLES["fail"])])
