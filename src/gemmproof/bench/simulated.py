"""Without a GPU: how long the tile simulator and the judgement of a case take, and no ratio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmproof.bench.problems import Problem
from gemmproof.reference.formats import FORMATS
from gemmproof.report.text import kernel_name
from gemmproof.target import TargetError, call_theirs

DEVICE = "simulator"
SECONDS = 300.0  # of CPU time for a call


@dataclass(frozen=True, slots=True)
class Step:
    """What is timed of a problem: `name` "simulate" or "judge", and the call that does it."""

    name: str
    call: Callable[[], object]


def list_steps(name: str, function: Callable[..., Any], problem: Problem, dtype: str) -> list[Step]:
    """The simulated call on a small problem, and the judgement of that case.

    The case is judged once before: a kernel that is wrong is not timed. Raises TargetError with the
    first finding, or with what the simulator cannot run.
    """
    from gemmproof.bench.operands import fill_uniform, make_buffers
    from gemmproof.engine.check import check
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.contract import Contract
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.reference.simulator import run

    contract = Contract(formats=(dtype,), batched=problem.batch is not None)
    kernel = KernelUnderTest(name, function, contract)
    case = Case(problem.M, problem.N, problem.K, dtype, batch=problem.batch)

    def judge() -> Any:
        return check(kernel, case=case, max_examples=1, seconds=SECONDS)

    report = judge()
    if report.verdict != "pass":
        said = report.findings[0].message if report.findings else report.note
        raise TargetError(f"{kernel_name(report)} at {problem} {dtype}, {said}")
    fmt = FORMATS[dtype]
    buffers = make_buffers(problem, fmt, "cpu", columns=False)
    fill_uniform(buffers, fmt, 0)

    def simulate() -> object:
        return run(function, buffers.a, buffers.b, seconds=SECONDS)

    call_theirs(name, f"simulating it at {problem} {dtype}", simulate)
    return [Step("simulate", simulate), Step("judge", judge)]
