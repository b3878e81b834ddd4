"""`gemmproof signoff`: every kernel of a project, each in a worker of its own, in one table."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from gemmproof.commands.console import deliver, limits_of, note_unpredicted, unwritable
from gemmproof.properties.cases.case import Case
from gemmproof.report.command import write_command
from gemmproof.report.report import EXIT, GRAVEST_FIRST, SCHEMA, Report
from gemmproof.report.text import STYLES, Line, clean, document, lines, table
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import preload, watch
from gemmproof.worker.verdict import judge


def run(options: argparse.Namespace) -> int:
    """Judge the kernels, write the reports that were asked for, print the table."""
    try:
        if problem := unwritable(options):
            raise ValueError(problem)
        if options.case:
            Case.from_json(options.case)
        if not Path(options.conftest).is_file():
            raise ValueError(
                f"--conftest: got {options.conftest!r} (no such file), expected a conftest.py that"
                " registers kernels"
            )
    except ValueError as mistake:
        return _refuse(mistake)
    # a conftest that is to meet the GPU is imported by each worker: no process that uses one forks
    imported = options.conftest if options.device == "cpu" else None
    with preload(imported, limits_of(options)):
        try:
            names, left_out = _kernels(options)
        except ValueError as mistake:
            return _refuse(mistake)
        reports = _judge_all(options, names)
    found = {report.verdict for report in reports} or {"incomplete"}
    verdict = next(v for v in GRAVEST_FIRST if v in found)
    _write(options, reports, verdict, left_out)
    why = "left out: registered device_only, it is judged with --device cuda"
    notes = [(clean(f"{name}: {why}"), "") for name in left_out]
    deliver([*_lines(options, reports, verdict), *notes])
    return EXIT[verdict]


def _refuse(mistake: ValueError) -> int:
    print(clean(f"gemmproof signoff: {mistake}"), file=sys.stderr)
    return EXIT["error"]


def _kernels(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The kernels to judge, by name, and those left out because only a GPU can judge them.

    A kernel that is asked for by name is never left out. Raises ValueError where there are none.
    """
    worker = watch(Request(ask="list", conftest=options.conftest), limits_of(options))
    if failure := worker.explain_failure(options.conftest):
        raise ValueError(failure)
    names: list[str] = worker.events["kernels"]["names"]
    for name in options.kernel or []:
        if name not in names:
            raise ValueError(f"--kernel: got {name!r}, expected one of: {' '.join(names)}")
    if not names:
        raise ValueError(f"{options.conftest}: got no kernels, expected at least one")
    if options.kernel:
        return options.kernel, []
    left_out = worker.events["kernels"]["alone"] if options.device == "cpu" else []
    return [name for name in names if name not in left_out], left_out


def _judge_all(options: argparse.Namespace, names: list[str]) -> list[Report]:
    jobs = options.jobs or max(1, min(os.cpu_count() or 1, len(names)))
    with ThreadPoolExecutor(jobs) as pool:
        started = {pool.submit(_judge_one, options, name): name for name in names}
        for future in as_completed(started):
            report = future.result()
            done = f"{report.target}: {report.verdict} after {report.seconds:.1f} s"
            print(clean(done), file=sys.stderr, flush=True)
    reports = {name: future.result() for future, name in started.items()}
    return [reports[name] for name in names]


def _judge_one(options: argparse.Namespace, name: str) -> Report:
    request = Request(
        ask="check",
        name=name,
        conftest=options.conftest,
        max_examples=options.max_examples,
        seed=options.seed,
        gpu=options.gpu,
        launch=options.device == "cuda",
        limits=True,
        case=options.case,
        proof=options.proof,
    )
    return judge(request, limits_of(options))[0]


def _reproduce(options: argparse.Namespace, name: str) -> Callable[[Case], str]:
    def line(case: Case) -> str:
        words = ["gemmproof", "signoff", "--kernel", name]
        if options.conftest != "conftest.py":
            words += ["--conftest", options.conftest]
        if options.gpu:
            words += ["--target", options.gpu]
        if options.device != "cpu":
            words += ["--device", options.device]
        return write_command([*words, "--case", case.to_json()])

    return line


def _write(
    options: argparse.Namespace, reports: list[Report], verdict: str, left_out: list[str]
) -> None:
    if options.json:
        kernels = [document(r, _reproduce(options, r.target)) for r in reports]
        whole: dict[str, Any] = {"schema": SCHEMA, "verdict": verdict, "kernels": kernels}
        whole["left_out"] = left_out
        Path(options.json).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    if options.junit:
        from gemmproof.report.junit import write as write_junit

        reproduce = {r.target: _reproduce(options, r.target) for r in reports}
        write_junit(Path(options.junit), reports, reproduce)


def _lines(options: argparse.Namespace, reports: list[Report], verdict: str) -> list[Line]:
    out: list[Line] = []
    for report in reports:
        if report.verdict != "pass":
            out += [*lines(report, _reproduce(options, report.target)), ("", "")]
    out += [(row, "") for row in table(reports, shutil.get_terminal_size((100, 24)).columns)]
    legend = "cases judged; before them, the worst error as a share of its bound"
    if any(p.is_proved for report in reports for p in report.properties):
        legend += ", and what is proved for every size"
    out += [("", ""), (legend, "dim")]
    counts = {v: sum(r.verdict == v for r in reports) for v in GRAVEST_FIRST}
    told = ", ".join(f"{count} {v}" for v, count in counts.items() if count)
    said = (f"signoff: {verdict} ({told or 'no kernel judged'})", STYLES[verdict])
    return [*out, said, *note_unpredicted(options.gpu)]
