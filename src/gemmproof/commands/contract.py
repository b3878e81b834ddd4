"""`gemmproof contract`: the widest contract that a kernel keeps, in the words of a conftest.py."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from gemmproof.commands.check import contract_of, reproduce_line, request_of
from gemmproof.commands.console import deliver, limits_of, progress
from gemmproof.commands.init import write_contract
from gemmproof.properties.cases.beyond import list_beyond
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.cases.survey import Survey
from gemmproof.properties.contract import Contract
from gemmproof.report.report import EXIT, Limit, Report
from gemmproof.report.text import STYLES, Line, clean, lines, list_limits
from gemmproof.target import TargetError, parse
from gemmproof.worker.verdict import judge

TILE = Survey().tiles[0][0]


def run(options: argparse.Namespace) -> int:
    """Widen the stated contract while the kernel keeps it; print it and its limits."""
    try:
        contract = contract_of(options, parse(options.target))
        request = request_of(options)
    except (TargetError, ValueError) as mistake:
        print(clean(f"gemmproof contract: {mistake}"), file=sys.stderr)
        return EXIT["error"]

    def check(contract: Contract) -> Report:
        with progress(f"{request.name} as Contract({write_contract(contract)})") as listener:
            asked = replace(request, contract=contract.to_dict())
            return judge(asked, limits_of(options), listener)[0]

    report = check(contract)
    broken: dict[str, Limit] = {}
    while report.verdict == "pass":
        held = {limit.name for limit in report.limits if limit.status == "holds"} - set(broken)
        wider = _widen(contract, held)
        if wider == contract:
            break
        tried = check(wider)
        if tried.verdict == "pass":
            contract, report = wider, tried
        else:
            broken |= _find_broken(contract, held, tried)
    beyond = tuple(x for x in report.limits if x.name not in broken)
    report = replace(report, limits=(*beyond, *broken.values()))
    if report.verdict != "pass":
        deliver(lines(report, lambda case: reproduce_line(options, case)))
        return EXIT[report.verdict]
    said: list[Line] = [(f"Contract({write_contract(contract)})", STYLES["pass"])]
    deliver([*said, *list_limits(report)])
    return EXIT["pass"]


def _widen(contract: Contract, held: set[str]) -> Contract:
    """The contract with every step promised that held."""
    for step in list_beyond(contract, TILE):
        if step.name in held:
            formats = dict.fromkeys((*contract.formats, *step.words.get("formats", ())))
            contract = replace(contract, **{**step.words, "formats": tuple(formats)})
    return contract


def _find_broken(contract: Contract, held: set[str], report: Report) -> dict[str, Limit]:
    """The step to give up, for each finding: one without which its case is not admitted.

    Where a case needs several, views are given up first, then formats, then sizes: any of them may
    be what the kernel does not take. All are given up where no finding tells.
    """
    found: dict[str, Limit] = {}
    steps = [step for step in list_beyond(contract, TILE) if step.name in held]
    steps.sort(key=lambda step: ("layouts" not in step.words, "formats" not in step.words))
    for finding in report.findings:
        for step in steps:
            if not _admits(_widen(contract, held - {step.name}), finding.case):
                more = ("limit", finding.message, finding.case)
                found.setdefault(step.name, Limit(step.name, step.option, *more))
                break
    why = report.note or "a contract of several such steps is not kept"
    return found or {name: Limit(name, "", "not tried", why) for name in sorted(held)}


def _admits(contract: Contract, case: Case) -> bool:
    # b^T a^T is made of transposed views where the contract admits any, and of copies elsewhere
    turned = case.compare == "transposed" and contract.layouts != ANY
    return is_admitted(case, contract) and not turned
