"""`gemmproof bench`: kernels on this machine's GPU compared with a peer, in one table."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gemmproof.bench.problems import read_problems
from gemmproof.bench.record import WRONG, BenchReport, TimedRow
from gemmproof.commands.check import calling_of
from gemmproof.commands.output import (
    answer,
    deliver,
    limits_of,
    refuse,
    show_end,
    undrawable,
    unwritable,
)
from gemmproof.properties.codec import decode, encode
from gemmproof.properties.contract import Contract
from gemmproof.report.files import STDOUT, Writer, replace_file, write_json
from gemmproof.report.record import EXIT
from gemmproof.target import Target, TargetError, parse
from gemmproof.terminal import Interrupted, progress, say
from gemmproof.worker.protocol import UNKNOWN_ENDS, Request, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Time the targets in a worker, print the table, write the requested reports."""
    if problem := unwritable(options, ("json", "svg")) or undrawable(options, "bench"):
        return refuse(options, problem)
    report = measure(options)
    if isinstance(report, int):
        return report
    from gemmproof.bench.text import lines

    def draw_svg(path: Path) -> None:
        from gemmproof.bench.plot import draw

        draw(report, path)

    code = EXIT["fail" if any(row.verdict == WRONG for row in report.rows) else "pass"]
    return answer(options, code, lines(report), {"json": make_writer(report), "svg": draw_svg})


def make_writer(report: BenchReport) -> Writer:
    """Return a function that writes the report as JSON."""
    return partial(write_json, data=encode(report), indent=1)


def measure(options: argparse.Namespace) -> BenchReport | int:
    """Return a worker's measurements, or the exit code after one line on why there are none.

    The JSON is written after each row: an interrupted run leaves what it measured.
    """
    try:
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    rows: list[TimedRow] = []
    with progress(request.name) as listener:

        def listen(event: dict[str, Any]) -> None:
            listener(event)
            if event["event"] == "ready":  # also of a worker that was restarted
                rows.clear()
            if event["event"] == "timed":
                rows.append(decode(TimedRow, event["row"], "row"))
                # a failure is reported when the whole report is written
                if options.json not in (None, STDOUT):
                    replace_file(options.json, make_writer(BenchReport({}, (), tuple(rows))))

        # heartbeats show progress; all shapes together may take hours
        try:
            worker = watch(request, replace(limits_of(options), total=math.inf), listen)
        except Interrupted:
            _show_rows(options, rows)
            raise
    if "report" not in worker.events:
        return _without_report(options, worker, request.name, rows)
    return decode(BenchReport, worker.events["report"]["report"], "bench")


def request_of(options: argparse.Namespace) -> Request:
    """Return the worker's request. Raises TargetError or ValueError, in one line."""
    try:
        problems = read_problems(options.shapes)
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    targets = [parse(text) for text in dict.fromkeys(options.targets)]
    names = _name(targets)
    calling = calling_of(options, names[0])
    formats = tuple(dict.fromkeys(options.dtype or ["fp16"]))
    contract = Contract(formats, accumulator=options.accumulator)
    return Request(
        ask="bench",
        name=" ".join(names),
        launch=True,
        contract=contract.to_dict(),
        calling=encode(calling),
        plan={
            "targets": [{**encode(t), "name": n} for t, n in zip(targets, names, strict=True)],
            "against": _read_peer(options.against),
            "problems": [encode(problem) for problem in problems],
            "formats": list(formats),
            "out": options.out_dtype,
            "columns": options.columns,
            "rounds": options.rounds,
            "settle": options.settle,
        },
    )


def _read_peer(text: str | None) -> str | dict[str, Any] | None:
    """Return a target with its name, or the name of a peer of torch's."""
    if text is None:
        return None
    if ":" in text:
        target = parse(text)
        return {**encode(target), "name": str(target)}
    from gemmproof.bench.peers import require_known

    require_known("--against", text)
    return text


def _name(targets: list[Target]) -> list[str]:
    """Return the name of each function; TARGET itself if two functions have the same name."""
    count = Counter(target.name for target in targets)
    return [t.name if count[t.name] == 1 else str(t) for t in targets]


def _without_report(
    options: argparse.Namespace, worker: WorkerExit, name: str, rows: Iterable[TimedRow]
) -> int:
    """Print the measurements before the worker failed or died, and one line on the reason."""
    if "internal" in worker.events:
        show_end(options, worker.output)
    _show_rows(options, rows)
    if failure := worker.explain_failure(name):
        return refuse(options, failure)
    case = worker.events["case"]["case"]
    died = f"{worker.where or name}: got {worker.how}, expected a time"
    say(f"gemmproof {options.command}: {case}: {died}")
    return EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]


def _show_rows(options: argparse.Namespace, rows: Iterable[TimedRow]) -> None:
    if measured := tuple(rows):
        from gemmproof.bench.text import tabulate

        deliver(options, tabulate(measured))
