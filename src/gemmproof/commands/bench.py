"""`gemmproof bench`: kernels on this machine's GPU beside a peer, in one table."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
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
from gemmproof.properties.contract import Contract
from gemmproof.report.files import STDOUT, Writer, replace_file, write_json
from gemmproof.report.record import EXIT
from gemmproof.target import Target, TargetError, parse
from gemmproof.terminal import Interrupted, progress, say
from gemmproof.worker.protocol import UNKNOWN_ENDS, Request, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Time the targets in a worker, print the table, write what was asked for."""
    if problem := unwritable(options, ("json", "svg")) or undrawable(options, "bench"):
        return refuse(options, problem)
    report = measure(options)
    if isinstance(report, int):
        return report
    from gemmproof.bench.text import lines

    def draw_svg(place: Path) -> None:
        from gemmproof.bench.plot import draw

        draw(report, place)

    code = EXIT["fail" if any(row.verdict == WRONG for row in report.rows) else "pass"]
    return answer(options, code, lines(report), {"json": make_writer(report), "svg": draw_svg})


def make_writer(report: BenchReport) -> Writer:
    """What writes it as JSON."""
    return partial(write_json, data=report.to_dict(), indent=1)


def measure(options: argparse.Namespace) -> BenchReport | int:
    """What a worker measured; or the exit code, where one line has said why there is nothing.

    The JSON is written after each row: a run that is cut short leaves what it measured.
    """
    try:
        request = request_of(options)
    except (TargetError, ValueError) as mistake:
        return refuse(options, str(mistake))
    rows: list[TimedRow] = []
    with progress(request.name) as listener:

        def listen(event: dict[str, Any]) -> None:
            listener(event)
            if event["event"] == "ready":  # of a worker that was started again, too
                rows.clear()
            if event["event"] == "timed":
                rows.append(TimedRow.from_dict(event["row"]))
                # where that fails, it is said of the whole report
                if options.json not in (None, STDOUT):
                    replace_file(options.json, make_writer(BenchReport({}, (), tuple(rows))))

        # what takes long is told by signs of life; all shapes together may take hours
        try:
            worker = watch(request, replace(limits_of(options), total=math.inf), listen)
        except Interrupted:
            _show_rows(options, rows)
            raise
    if "report" not in worker.events:
        return _without_report(options, worker, request.name, rows)
    return BenchReport.from_dict(worker.events["report"]["report"])


def request_of(options: argparse.Namespace) -> Request:
    """What the worker is asked. Raises TargetError or ValueError, in one line."""
    try:
        problems = read_problems(options.shapes)
    except ValueError as mistake:
        raise ValueError(f"--{mistake}") from None
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
        calling=asdict(calling),
        plan={
            "targets": [{**asdict(t), "name": n} for t, n in zip(targets, names, strict=True)],
            "against": _read_peer(options.against),
            "problems": [asdict(problem) for problem in problems],
            "formats": list(formats),
            "out": options.out_dtype,
            "columns": options.columns,
            "rounds": options.rounds,
            "settle": options.settle,
        },
    )


def _read_peer(text: str | None) -> str | dict[str, Any] | None:
    """A target with its name, or the name of a peer of torch's."""
    if text is None:
        return None
    if ":" in text:
        target = parse(text)
        return {**asdict(target), "name": str(target)}
    from gemmproof.bench.peers import require_known

    require_known("--against", text)
    return text


def _name(targets: list[Target]) -> list[str]:
    """The name of each function; TARGET itself where two functions have the same."""
    count = Counter(target.name for target in targets)
    return [t.name if count[t.name] == 1 else str(t) for t in targets]


def _without_report(
    options: argparse.Namespace, worker: WorkerExit, name: str, rows: Iterable[TimedRow]
) -> int:
    """What was measured before the worker failed or died, and one line on why it did."""
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
    if made := tuple(rows):
        from gemmproof.bench.text import tabulate

        deliver(options, tabulate(made))
