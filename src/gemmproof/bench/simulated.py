"""Without a GPU: how long the tile simulator and the judgement of a case take, and no ratio."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemmproof.bench.problems import Problem
from gemmproof.report.text import kernel_name
from gemmproof.target import TargetError, call_theirs

if TYPE_CHECKING:
    from gemmproof.properties.kernel import KernelUnderTest

DEVICE = "simulator"
SECONDS = 300.0  # of CPU time for a call


@dataclass(frozen=True, slots=True)
class Step:
    """What is timed of a problem: `name` "simulate" or "judge", and the call that does it."""

    name: str
    call: Callable[[], object]


def shrink(kernel: KernelUnderTest, problem: Problem) -> Problem:
    """A small version of a problem, of sizes that the kernel's contract admits if it has any."""
    small = problem.shrink()
    lead = {} if small.batch is None else {"batch": small.batch}
    sides = {"M": small.M, "N": small.N, "K": small.K, **lead}
    fitted: dict[str, Any] = kernel.contract.fit(sides) or {}
    return replace(small, **fitted)


def list_steps(kernel: KernelUnderTest, problem: Problem) -> list[Step]:
    """The simulated call on a small problem, and the judgement of that case.

    The case is judged once before: a kernel that is wrong is not timed. Raises TargetError with the
    first finding, or with what the simulator cannot run.
    """
    from gemmproof.engine.check import check
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.cases.operands import tensors_of
    from gemmproof.properties.kernel import Misstated
    from gemmproof.reference.simulator import run
    from gemmproof.reference.spec import SpecError

    (dtype,), name = kernel.contract.formats, kernel.name
    kernel = replace(kernel, contract=replace(kernel.contract, batched=problem.batch is not None))
    case = Case(problem.M, problem.N, problem.K, dtype, batch=problem.batch)

    def judge() -> Any:
        return check(kernel, case=case, max_examples=1, seconds=SECONDS)

    try:
        report = judge()
    except (SpecError, Misstated) as mistake:
        raise TargetError(f"{name} at {problem} {dtype}: {mistake}") from None
    if report.verdict != "pass":
        said = report.findings[0].message if report.findings else report.note
        raise TargetError(f"{kernel_name(report)} at {problem} {dtype}, {said}")
    tensors = tensors_of(case, kernel)

    def launch(*arguments: Any) -> Any:
        return kernel.call(case, dict(zip(tensors, arguments, strict=True)))

    def simulate() -> object:
        return run(launch, *tensors.values(), operands=tensors, seconds=SECONDS)

    call_theirs(name, f"simulating it at {problem} {dtype}", simulate)
    return [Step("simulate", simulate), Step("judge", judge)]
