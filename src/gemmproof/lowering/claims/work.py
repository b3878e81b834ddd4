"""The claims of a contract judged in this process: each launch compiled and weighed, one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmproof.lowering.claims.conclude import Outcome, conclude
from gemmproof.lowering.claims.plan import plan_launches
from gemmproof.lowering.claims.weigh import weigh
from gemmproof.lowering.compile import can_compile_here
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import list_promised
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.report import Report

Listener = Callable[[dict[str, Any]], None]


def weigh_launches(
    kernel: KernelUnderTest,
    target: str | None,
    case: Case | None,
    most: int,
    room: Path,
    tell: Listener,
    done: int = 0,
) -> Outcome:
    """What each launch says, told as it is known; the first `done` of them were told before.

    A launch is announced before it is compiled, so that who listens knows of which one this
    process died. It ends before the first launch that needs a process of its own.
    """
    plan, captured = plan_launches(kernel, target, case, most)
    tell({"event": "planned", "plan": plan.to_dict()})
    outcome = Outcome(plan)
    for index, (planned, launch) in enumerate(zip(plan.launches, captured, strict=True)):
        if index < done:
            continue
        if not can_compile_here(launch):
            words = "not compiled: Triton 3.6 compiles fp8 for one GPU in a process"
            outcome.mistake = f"{planned.name}: {words}"
            break
        about = {"case": planned.name, "phase": "compile", "index": index, "of": len(captured)}
        tell({"event": "case", **about})
        outcome.weighed[index] = one = weigh(kernel.contract, launch, planned, room)
        tell({"event": "weighed", "index": index, "weighed": one.to_dict()})
    return outcome


def add_claims(
    report: Report, kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> Report:
    """The report with what becomes of the claims, judged here: no compilation is cut short."""
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as room:
        outcome = weigh_launches(kernel, target, case, most, Path(room), lambda event: None)
    contract = kernel.contract
    promised = list_promised(contract)
    return conclude(report, outcome, promised, contract.reasons, is_whole=case is None)
