"""`gemmproof drift`: one target's accumulator and its errors against K, answered on one screen."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path

from gemmproof.commands.console import deliver, limits_of, progress, unwritable
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.report.report import EXIT, Report
from gemmproof.report.text import STYLES, clean
from gemmproof.target import TargetError, parse
from gemmproof.worker.protocol import UNKNOWN_ENDS, Request, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Measure the target in a worker, write what was asked for, print the answer."""
    problem = (
        unwritable(options, ("json", "svg"))
        or _refuse_undrawable(options)
        or _refuse_unmodelled(options)
    )
    if problem:
        return _refuse(problem)
    try:
        request = request_of(options)
    except TargetError as mistake:
        return _refuse(str(mistake))
    with progress(request.name) as listener:
        worker = watch(request, limits_of(options), listener)
    if "report" not in worker.events:
        return _without_report(worker, request.name)
    report = Report.from_dict(worker.events["report"]["report"])
    report = replace(report, target=options.target, seconds=round(worker.seconds, 2))
    if options.device == "cuda" and worker.events["device"]["gpu"] is None:
        note = "--device cuda: torch finds no CUDA GPU here; the kernel was simulated only"
        verdict = "incomplete" if report.verdict == "pass" else report.verdict
        report = replace(report, verdict=verdict, note=note)
    if options.json:
        Path(options.json).write_text(report.to_json() + "\n", encoding="utf-8")
    if options.svg:
        from gemmproof.report.drift_plot import draw

        draw(report, options.svg)
    from gemmproof.report.drift_text import lines  # brings numpy, which bad usage needs not

    deliver(lines(report))
    return EXIT[report.verdict]


def _refuse_unmodelled(options: argparse.Namespace) -> str | None:
    """One line on a target whose bits nothing predicts."""
    if options.gpu not in UNMODELLED:
        return None
    known = " ".join(TARGETS)
    return (
        f"--target: got {options.gpu}, which has no model of its matrix cores, expected one of:"
        f" {known} ieee"
    )


def request_of(options: argparse.Namespace) -> Request:
    """What the worker is asked. Raises TargetError, in one line."""
    target = parse(options.target)
    return Request(
        ask="drift",
        name=target.name,
        target=asdict(target),
        contract={"batched": options.batched or target.name == "bmm"},
        format=options.dtype,
        declared=options.accumulator,
        sizes=options.sizes,
        gpu=None if options.gpu == "ieee" else options.gpu,
        launch=options.device == "cuda",
    )


def _refuse_undrawable(options: argparse.Namespace) -> str | None:
    from importlib.util import find_spec

    if options.svg and find_spec("matplotlib") is None:
        return "--svg: got no matplotlib, expected it: pip install 'gemmproof[plots]'"
    return None


def _without_report(worker: WorkerExit, name: str) -> int:
    """What can be said of a worker that made none: an error, or how the target died."""
    if "internal" in worker.events:
        deliver([(clean(line), "") for line in worker.output.splitlines()[-10:]], to_stderr=True)
    if failure := worker.explain_failure(name):
        return _refuse(failure)
    died = f"{worker.where or name}: got {worker.how}, expected a product"
    deliver([(clean(f"{name} at {worker.events['case']['case']}: {died}"), STYLES["fail"])])
    return EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "fail"]


def _refuse(message: str) -> int:
    print(clean(f"gemmproof drift: {message}"), file=sys.stderr)
    return EXIT["error"]
