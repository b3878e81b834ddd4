"""`gemmproof explain`: what a kernel reads and writes, for every size, in closed form."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from gemmproof.commands.check import request_of
from gemmproof.commands.console import deliver, limits_of, progress, unwritable
from gemmproof.properties.cases.case import Case
from gemmproof.report.report import EXIT
from gemmproof.report.text import STYLES, clean
from gemmproof.target import TargetError
from gemmproof.worker.protocol import UNKNOWN_ENDS, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Follow the target in a worker, write what was asked for, print the address map."""
    problem = unwritable(options, ("json", "svg")) or _refuse_undrawable(options)
    if problem:
        return _refuse(problem)
    try:
        request = request_of(options)
    except (TargetError, ValueError) as mistake:
        return _refuse(str(mistake))
    config = options.config
    if config is None:
        config = Case.from_json(options.case).config if options.case else 0
    form = "svg" if options.svg else ""
    request = replace(request, ask="explain", config=config, format=form)
    with progress(request.name) as listener:
        worker = watch(request, limits_of(options), listener)
    if "explained" not in worker.events:
        return _without_answer(worker, request.name)

    from gemmproof.properties.explanation.record import AddressMap
    from gemmproof.report.explain_text import lines, list_lines

    explanation = AddressMap.from_dict(worker.events["explained"]["explanation"])
    known = list_lines(explanation)
    if options.json:
        text = json.dumps(explanation.to_dict(), indent=2)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    if not known:
        reasons = [*explanation.open, *(one.failed for one in explanation.kernels if one.failed)]
        why = "; ".join(dict.fromkeys(reasons)) or "the wrapper launches no Triton kernel"
        said = f"gemmproof explain: {request.name}: nothing could be followed: {why}"
        deliver([(clean(said), STYLES["incomplete"])], to_stderr=True)
        return EXIT["incomplete"]
    if options.line is not None and options.line not in known:
        there = " ".join(map(str, known))
        return _refuse(f"--line: got {options.line}, expected a line that loads or stores: {there}")
    if options.svg:
        from gemmproof.report.explain_plot import draw

        draw(worker.events["explained"]["picture"], options.svg)
    deliver(lines(explanation, options.line))
    return EXIT["pass"]


def _refuse_undrawable(options: argparse.Namespace) -> str | None:
    from importlib.util import find_spec

    if options.svg and find_spec("matplotlib") is None:
        return "--svg: got no matplotlib, expected it: pip install 'gemmproof[plots]'"
    return None


def _without_answer(worker: WorkerExit, name: str) -> int:
    """What can be said of a worker that gave none: an error, or how the target died."""
    if "internal" in worker.events:
        deliver([(clean(line), "") for line in worker.output.splitlines()[-10:]], to_stderr=True)
    if failure := worker.explain_failure(name):
        return _refuse(failure)
    said = f"gemmproof explain: {worker.where or name}: got {worker.how}, expected an address map"
    deliver([(clean(said), STYLES["fail"])], to_stderr=True)
    return EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]


def _refuse(message: str) -> int:
    print(clean(f"gemmproof explain: {message}"), file=sys.stderr)
    return EXIT["error"]
