"""`gemmproof lowering`: the compiled code of a kernel's launches, for GPUs that are not present."""

from __future__ import annotations

import argparse
import os
import time

from gemmproof.commands.check import calling_of
from gemmproof.commands.output import answer, limits_of, refuse, show_end, unwritable
from gemmproof.lowering.run import LAUNCHES, SWEEP, ask_preview, lower, refuse_without_dot
from gemmproof.lowering.text import (
    MOST_BLOCKS,
    document,
    lines,
    sweep_document,
    sweep_lines,
    tabulate,
    tabulate_dots,
)
from gemmproof.options.registered import CALLING, ask_registered, is_registered
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.reference.formats import OPERANDS
from gemmproof.reference.gpus import DEFAULT
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT
from gemmproof.target import TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import preload


def run(options: argparse.Namespace) -> int:
    """Have workers compile for each target, print the results, write the requested reports."""
    try:
        if problem := unwritable(options, ("json",)):
            raise ValueError(problem)
        request = ask_preview(options) if options.dot else _request_of(options)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    gpus = list(dict.fromkeys(options.gpus or [DEFAULT]))
    jobs = min(len(gpus), options.jobs or os.cpu_count() or 1)
    started = time.monotonic()
    limits = limits_of(options)
    with (
        progress(request.name, options.quiet, len(gpus), "targets") as course,
        preload(None, limits),
    ):
        results = lower(request, gpus, limits, course.follow, jobs)
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
    if options.sweep:
        whole = sweep_document(request.name, results, failures)
        shown = sweep_lines(request.name, results, seconds)
    else:
        whole = document(request.name, lowerings, failures)
        as_table, most = (tabulate_dots, 1) if options.dot else (tabulate, MOST_BLOCKS)
        shown = lines(request.name, results, seconds, as_table, most)
    written: dict[str, Writer] = {"json": lambda path: write_json(path, whole)}
    return answer(options, code, shown, written)


def _request_of(options: argparse.Namespace) -> Request:
    """Return the workers' request. Raises TargetError or ValueError, in one line."""
    refuse_without_dot(options)
    if other := next((name for name in options.dtype or () if name not in OPERANDS), None):
        raise ValueError(f"--dtype: got {other} without --dot, expected of {' '.join(OPERANDS)}")
    registered = is_registered(options, CALLING)
    case = None if options.case is None else Case.from_json(options.case)
    if case is not None and (options.sizes or options.layouts or options.dtype):
        raise ValueError("--case: got --sizes, --layouts or --dtype with it, expected one of them")
    plan = {
        "sizes": options.sizes,
        "layouts": options.layouts,
        "every": options.config == "all",
        "task": SWEEP if options.sweep else LAUNCHES,
    }
    if registered:
        of = ask_registered(options, options.kernel)
        return Request(ask="compile", case=options.case, plan=plan, **of)
    target = parse(options.target)
    calling = calling_of(options, target.name)
    if case is not None:
        calling.state(target.name).require(case)
    batched = options.batched or target.name == "bmm" or (case and case.batch is not None)
    formats = options.dtype or [case.dtype if case else "fp16"]
    contract = {"formats": list(dict.fromkeys(formats)), "batched": bool(batched)}
    return Request(
        ask="compile",
        name=target.name,
        target=encode(target),
        contract=contract,
        calling=encode(calling),
        case=options.case,
        plan=plan,
    )
