"""`gemmproof contract`: the widest contract that a kernel keeps, as a conftest.py writes it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.init import write_contract
from gemmproof.commands.output import answer, refuse
from gemmproof.options import Command, argument, group
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, lines, list_limits
from gemmproof.target import Calling, TargetError, parse
from gemmproof.worker.supervisor import preload


@dataclass(frozen=True, slots=True)
class ContractSearchOptions:
    """The options of `gemmproof contract`."""

    command: ClassVar = Command(
        "contract",
        help="find the widest contract that a kernel satisfies",
        description="Find the widest contract that f(a, b) -> c satisfies, starting from the"
        " declared one.",
        examples=("gemmproof contract my_kernels.py:matmul",),
        exits="0 found, 1 findings within the declared contract, 2 bad usage or target, 3"
        " incomplete",
    )

    target: str = argument("TARGET", groups.TARGET)
    search: groups.SearchOptions = group(groups.SearchOptions())
    jobs: int | None = groups.jobs_option()
    quiet: bool = groups.quiet_flag()
    contract: groups.ContractOptions = group(groups.ContractOptions())
    calling: Calling = group(Calling())
    worker: groups.WorkerOptions = group(groups.WorkerOptions())


def run(options: ContractSearchOptions) -> int:
    """Widen the declared contract while the kernel keeps it; print it and its limits."""
    try:
        target = parse(options.target)
        request = groups.ask_check(target, options.contract, options.calling, options.search)
        contract = groups.contract_of(options.contract, target)
    except (TargetError, ValueError) as error:
        return refuse(options, str(error))
    from gemmproof.contract_search.widest import Checks, find_widest  # imports numpy

    limits = options.worker.limits
    with preload(limits=limits):
        jobs = options.jobs or os.cpu_count() or 1
        checks = Checks(request, limits, jobs, options.quiet)
        contract, report = find_widest(contract, checks)
    if report.verdict != "pass":
        kernel = [options.target, *groups.spell_declared(options.contract, options.calling)]
        text = lines(report, partial(groups.replay, "check", kernel, options.search.gpu))
        return answer(options, EXIT[report.verdict], text)
    text = [(f"Contract({write_contract(contract)})", STYLES["pass"]), *list_limits(report)]
    return answer(options, EXIT["pass"], text)
