"""`gemmproof drift`: one target's accumulator and its errors against K, answered on one screen."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmproof.answer import deliver, limits_of, progress, unwritable
from gemmproof.cli import EXIT, TARGETS, UNMODELLED
from gemmproof.render import STYLES, Line, clean
from gemmproof.supervise import Outcome, watch
from gemmproof.target import TargetError, parse

if TYPE_CHECKING:
    from gemmproof.drift import DriftReport
    from gemmproof.reference.accumulator.record import Accumulator


def drift_command(options: argparse.Namespace) -> int:
    """Measure the target in a worker, write what was asked for, print the answer."""
    problem = unwritable(options, ("json", "svg")) or _undrawable(options) or _unmodelled(options)
    if problem:
        return _refuse(problem)
    try:
        request = request_of(options)
    except TargetError as mistake:
        return _refuse(str(mistake))
    with progress(request["name"]) as listener:
        outcome = watch(request, limits_of(options), listener)
    if "report" not in outcome.events:
        return _without_report(outcome, request["name"])
    from gemmproof.drift import DriftReport

    report = DriftReport.from_json(outcome.events["report"]["report"])
    report = replace(report, target=options.target, seconds=round(outcome.seconds, 2))
    if options.device == "cuda" and outcome.events["device"]["gpu"] is None:
        note = "--device cuda: torch finds no CUDA GPU here; the kernel was simulated only"
        verdict = "incomplete" if report.verdict == "pass" else report.verdict
        report = replace(report, verdict=verdict, note=note)
    if options.json:
        Path(options.json).write_text(report.to_json() + "\n", encoding="utf-8")
    if options.svg:
        from gemmproof.drift_picture import draw

        draw(report, options.svg)
    deliver(lines(report))
    return EXIT[report.verdict]


def _unmodelled(options: argparse.Namespace) -> str | None:
    """One line on a target whose bits nothing predicts."""
    if options.gpu not in UNMODELLED:
        return None
    known = " ".join(TARGETS)
    return (
        f"--target: got {options.gpu}, which has no model of its matrix cores, expected one of:"
        f" {known} ieee"
    )


def request_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the worker is asked. Raises TargetError, in one line."""
    target = parse(options.target)
    return {
        "ask": "drift",
        "name": target.name,
        "target": asdict(target),
        "batched": options.batched or target.name == "bmm",
        "format": options.dtype,
        "declared": options.accumulator,
        "sizes": options.sizes,
        "gpu": None if options.gpu == "ieee" else options.gpu,
        "device": options.device,
    }


def lines(report: DriftReport) -> list[Line]:
    """The findings, the accumulator, a line for each K, and the verdict last."""
    out: list[Line] = []
    for found in report.findings:
        out.append((clean(f"{report.name} drifts more than declared: {found.message}"), "bold"))
    if report.findings:
        out.append(("", ""))
    if report.accumulator:
        out += [(clean(f"  {text}"), "") for text in _described(report.accumulator)]
        out += [("", ""), *((text, "") for text in _table(report)), ("", "")]
    return [*out, (clean(summary(report)), STYLES[report.verdict])]


def summary(report: DriftReport) -> str:
    """The verdict in a line."""
    where = f"{report.in_format} on {report.gpu}"
    worst = max((m.ratio for m in report.measures), default=0.0)
    words = {
        "pass": f"pass: sums as {report.declared} ones, worst error {worst:.3g} of its bound",
        "fail": f"fail: {len(report.findings)} finding{'s' * (len(report.findings) != 1)}",
        "incomplete": f"incomplete: sums as {report.declared} ones where simulated",
    }[report.verdict]
    note = f"; {report.note}" if report.note else ""
    return f"{report.name}, {where}: {words} ({report.seconds:.1f} s){note}"


def _described(acc: Accumulator) -> list[str]:
    """What the probes found, a line a fact."""
    rest = "all count" if acc.reading == "none" else f"the others {acc.reading}"
    facts = [
        ("accumulator", acc.name),
        ("operands", f"{acc.read} significant bits of {acc.in_format}, {rest}"),
    ]
    if acc.block == 1:
        facts.append(("added", f"one k at a time, {acc.order}"))
    elif acc.block:
        cut = f"{acc.width} bits below the largest are kept"
        facts.append(("added", f"{acc.block} k at once, {cut}; k {acc.order}"))
    facts.append(("carried on", f"{acc.register} bits, {acc.rounding}"))
    if acc.promotion:
        facts.append(("summed apart", f"every {acc.promotion} k, then added in {acc.carried} bits"))
    if acc.split > 1:
        facts.append(("shares of K", f"{acc.split}, joined in {acc.split_bits} bits"))
    if acc.downcast:
        facts.append(("rounded", f"to {acc.downcast_bits} bits every {acc.downcast} k"))
    how = "" if acc.output == "none" else f", rounding: {acc.output}"
    facts.append(("result", f"{acc.out_format}{how}"))
    return [f"{label:<13}{text}" for label, text in facts]


def _table(report: DriftReport) -> list[str]:
    """Bias of data of one sign, and for each kind of data the worst error and its share."""
    from gemmproof.properties.drift import DATA

    head = "".join(f"{label:>20}" for label in DATA.values())
    rows = [
        f"  {'':>6}{'bias':>11}{head}",
        f"  {'K':>6}{'same sign':>11}" + f"{'worst  of bound':>20}" * len(DATA),
    ]
    for K in sorted({m.K for m in report.measures}):
        here = {m.data: m for m in report.measures if m.K == K}
        cells = "".join(f"{here[kind].worst:>11.1e}{here[kind].ratio:>9.2g}" for kind in DATA)
        rows.append(f"  {K:>6}{here['positive'].bias:>+11.1e}{cells}")
    return [*rows, "  errors are shares of |A||B|, element by element"]


def _undrawable(options: argparse.Namespace) -> str | None:
    from importlib.util import find_spec

    if options.svg and find_spec("matplotlib") is None:
        return "--svg: got no matplotlib, expected it: pip install 'gemmproof[plots]'"
    return None


def _without_report(outcome: Outcome, name: str) -> int:
    """What can be said of a worker that made none: an error, or how the target died."""
    events = outcome.events
    if "error" in events:
        return _refuse(events["error"]["message"])
    if "internal" in events:
        message = events["internal"]["message"]
        deliver([(clean(line), "") for line in outcome.output.splitlines()[-10:]], to_stderr=True)
        return _refuse(f"gemmproof itself failed, please report it: {message}")
    if "case" not in events:
        return _refuse(f"{outcome.where or name}: loading it: {outcome.how}")
    died = f"{outcome.where or name}: got {outcome.how}, expected a product"
    deliver([(clean(f"{name} at {events['case']['case']}: {died}"), STYLES["fail"])])
    return EXIT["incomplete" if outcome.end == "time" else "fail"]


def _refuse(message: str) -> int:
    print(clean(f"gemmproof drift: {message}"), file=sys.stderr)
    return EXIT["error"]
