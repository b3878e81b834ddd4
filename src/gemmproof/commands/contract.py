"""`gemmproof contract`: the widest contract that a kernel keeps, as a conftest.py writes it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Collection
from dataclasses import replace

from gemmproof.commands.check import Checks, contract_of, merge, reproduce_line, request_of
from gemmproof.commands.init import write_contract
from gemmproof.commands.output import answer, limits_of, refuse
from gemmproof.properties.cases.beyond import list_beyond
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey, is_admitted
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.contract import Contract
from gemmproof.report.record import EXIT, Limit, Report
from gemmproof.report.text import STYLES, lines, list_limits
from gemmproof.target import TargetError, parse
from gemmproof.terminal import say
from gemmproof.worker.supervisor import preload

TILE = Survey().tiles[0][0]


def run(options: argparse.Namespace) -> int:
    """Widen the declared contract while the kernel keeps it; print it and its limits."""
    try:
        contract = contract_of(options, parse(options.target))
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    limits = limits_of(options)
    with preload(limits=limits):
        jobs = options.jobs or os.cpu_count() or 1
        checks = Checks(request, limits, jobs, options.quiet)
        contract, report = _find_widest(contract, checks)
    if report.verdict != "pass":
        text = lines(report, lambda case: reproduce_line(options, case))
        return answer(options, EXIT[report.verdict], text)
    text = [(f"Contract({write_contract(contract)})", STYLES["pass"]), *list_limits(report)]
    return answer(options, EXIT["pass"], text)


def _find_widest(contract: Contract, checks: Checks) -> tuple[Contract, Report]:
    """Return the widest kept contract, with the limits beyond it; the declared one if it fails."""
    report = merge(_check(contract, checks))
    broken: dict[str, Limit] = {}
    while _holds(report):
        held = {limit.name for limit in report.limits if limit.status == "holds"} - set(broken)
        wider = _widen(contract, held)
        if wider == contract:
            break
        tried = _check(wider, checks, contract.formats)
        if len(tried) == len(wider.formats) and all(map(_holds, tried.values())):
            contract, report = wider, merge(tried)
        else:
            broken |= _find_broken(contract, held, tried)
    beyond = tuple(x for x in report.limits if x.name not in broken)
    return contract, replace(report, limits=(*beyond, *broken.values()))


def _check(contract: Contract, checks: Checks, kept: Collection[str] = ()) -> dict[str, Report]:
    """Return the reports on a contract, by format; print the outcome on stderr."""
    began, text = time.monotonic(), f"Contract({write_contract(contract)})"
    tried = checks.check(contract, f"{checks.request.name} as {text}", kept)
    failed = [f"{report.verdict} at {name}" for name, report in tried.items() if not _holds(report)]
    how = ", ".join(failed) or "kept"
    say(f"{text}: {how} ({time.monotonic() - began:.1f} s)")
    return tried


def _holds(report: Report) -> bool:
    return report.verdict == "pass"


def _widen(contract: Contract, held: set[str]) -> Contract:
    """Return the contract with every step added that held."""
    for step in list_beyond(contract, TILE):
        if step.name in held:
            formats = dict.fromkeys((*contract.formats, *step.changes.get("formats", ())))
            contract = replace(contract, **{**step.changes, "formats": tuple(formats)})
    return contract


def _find_broken(
    contract: Contract, held: set[str], reports: dict[str, Report]
) -> dict[str, Limit]:
    """Return the step to drop, for each finding: one without which its case is not admitted.

    If a case needs several, views are dropped first, then formats, then sizes: any of them may
    be what the kernel does not support. If no finding decides, the format that failed is dropped,
    or all steps if it is one of the declared formats.
    """
    broken: dict[str, Limit] = {}
    steps = [step for step in list_beyond(contract, TILE) if step.name in held]
    steps.sort(key=lambda step: ("layouts" not in step.changes, "formats" not in step.changes))
    for dtype, report in reports.items():
        causes: dict[str, Limit] = {}
        for finding in report.findings:
            for step in steps:
                if not _admits(_widen(contract, held - {step.name}), finding.case):
                    more = ("limit", finding.message, finding.case)
                    causes.setdefault(step.name, Limit(step.name, step.option, *more))
                    break
        if not causes and not _holds(report):
            reason = report.note or "a contract of several such steps is not kept"
            names = held & {dtype} or held
            causes = {name: Limit(name, "", "not tried", reason) for name in sorted(names)}
        for name, limit in causes.items():
            broken.setdefault(name, limit)
    return broken


def _admits(contract: Contract, case: Case) -> bool:
    # b^T a^T uses transposed views if the contract admits any, else copies
    turned = case.compare == "transposed" and contract.layouts != ANY
    return is_admitted(case, contract) and not turned
