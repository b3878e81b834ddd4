"""`gemmproof bench`: kernels on this machine's GPU beside a peer, in one table."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gemmproof.bench.problems import read_problems
from gemmproof.bench.records import WRONG, BenchReport, TimedRow
from gemmproof.commands.check import calling_of
from gemmproof.commands.console import deliver, limits_of, progress, unwritable
from gemmproof.properties.contract import Contract
from gemmproof.report.report import EXIT
from gemmproof.report.text import clean
from gemmproof.target import Target, TargetError, parse
from gemmproof.worker.protocol import UNKNOWN_ENDS, Request, WorkerExit
from gemmproof.worker.supervisor import watch


def run(options: argparse.Namespace) -> int:
    """Time the targets in a worker, write what was asked for, print the table.

    The JSON is written after each row: a run that is cut short leaves what it measured.
    """
    if problem := unwritable(options, ("json", "svg")) or _refuse_undrawable(options):
        return _refuse(problem)
    report = measure(options, "bench")
    if isinstance(report, int):
        return report
    if options.svg:
        from gemmproof.report.bench_plot import draw

        draw(report, options.svg)
    from gemmproof.report.bench_text import lines

    deliver(lines(report))
    return EXIT["fail" if any(row.verdict == WRONG for row in report.rows) else "pass"]


def measure(options: argparse.Namespace, command: str) -> BenchReport | int:
    """What a worker measured; or the exit code, where one line has said why there is nothing."""
    try:
        request = request_of(options)
    except (TargetError, ValueError) as mistake:
        return _refuse(str(mistake), command)
    rows: list[TimedRow] = []
    with progress(request.name) as listener:

        def listen(event: dict[str, Any]) -> None:
            listener(event)
            if event["event"] == "ready":  # of a worker that was started again, too
                rows.clear()
            if event["event"] == "timed":
                rows.append(TimedRow.from_dict(event["row"]))
                _write(options, BenchReport({}, (), tuple(rows)))

        # what takes long is told by signs of life; all shapes together may take hours
        worker = watch(request, replace(limits_of(options), total=math.inf), listen)
    if "report" not in worker.events:
        return _without_report(command, worker, request.name, rows)
    report = BenchReport.from_dict(worker.events["report"]["report"])
    _write(options, report)
    return report


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
    from gemmproof.bench.peers.registry import require_known

    require_known("--against", text)
    return text


def _name(targets: list[Target]) -> list[str]:
    """The name of each function; TARGET itself where two functions have the same."""
    count = Counter(target.name for target in targets)
    return [t.name if count[t.name] == 1 else str(t) for t in targets]


def _write(options: argparse.Namespace, report: BenchReport) -> None:
    if options.json:
        text = json.dumps(report.to_dict(), indent=1)
        Path(options.json).write_text(text + "\n", encoding="utf-8")


def _refuse_undrawable(options: argparse.Namespace) -> str | None:
    from importlib.util import find_spec

    if options.svg and find_spec("matplotlib") is None:
        return "--svg: got no matplotlib, expected it: pip install 'gemmproof[bench]'"
    return None


def _without_report(command: str, worker: WorkerExit, name: str, rows: Iterable[TimedRow]) -> int:
    """What was measured before the worker failed or died, and one line on why it did."""
    if "internal" in worker.events:
        deliver([(clean(line), "") for line in worker.output.splitlines()[-10:]], to_stderr=True)
    if made := tuple(rows):
        from gemmproof.report.bench_text import tabulate

        deliver(tabulate(made))
    if failure := worker.explain_failure(name):
        return _refuse(failure, command)
    case = worker.events["case"]["case"]
    died = f"{worker.where or name}: got {worker.how}, expected a time"
    print(clean(f"gemmproof {command}: {case}: {died}"), file=sys.stderr)
    return EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]


def _refuse(message: str, command: str = "bench") -> int:
    print(clean(f"gemmproof {command}: {message}"), file=sys.stderr)
    return EXIT["error"]
