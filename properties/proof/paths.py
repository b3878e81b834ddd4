"""The paths of a wrapper over a domain, and the cases on either side of its decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.domain import Domain
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, evaluate
from gemmproof.reference.symbolic.tracing import Path, Trace, WrapperRun, take_config, trace_wrapper

MOST_PATHS = 24
USUAL = (3, 37, 53, 29)  # batch, M, N, K
MOST_CONFIGS = 16


# sizes of a domain at which a condition holds, None where none were found
Decided = dict[tuple[Cond, Cond], Mapping[Atom, int] | None]


# what was seen of a domain, in whichever configuration
Traced = dict[tuple[Case, tuple[Atom, ...], Cond], Trace]


class Notes(Protocol):
    """Where it is kept what was not decided."""

    kernel: KernelUnderTest
    unvisited: dict[str, None]
    decided: Decided
    traced: Traced

    def leave_all_open(self, why: str, late: bool = False) -> None: ...


def list_paths(
    book: Notes, domain: Domain, target: str | None, config: int, solver: Solver, deadline: float,
    see: Callable[[Case, WrapperRun], None] = lambda case, run: None,
) -> Iterator[Path]:  # fmt: skip
    """The paths; what they leave of the domain is written into the book.

    `see` is told of each run, with the case whose sizes alone it changes. A wrapper that ran in one
    configuration runs again in another only where that may change more than its launches.
    """
    key = (domain.case, domain.axes, domain.condition)
    seen = book.traced.get(key)
    kernel, case = book.kernel, replace(domain.case, config=config)

    def call(tensors: dict[str, Any]) -> Any:
        return kernel.call(case, tensors)

    def find(cond: Cond) -> Mapping[Atom, int] | None:
        asked = (domain.condition, cond)  # formats and configurations ask the same
        with contextlib.suppress(OutOfTime):
            if asked not in book.decided:
                book.decided[asked] = solver.find(cond, small=domain.axes)
            return book.decided[asked]
        return None

    trace = None if seen is None else take_config(seen, config)
    if trace is None:
        hint = _usual_sizes(domain, kernel) or solver.find(domain.condition, small=domain.axes)
        if hint is None:
            book.leave_all_open("no sizes were found that the contract admits")
            return
        trace = trace_wrapper(
            call, domain.operands, domain.condition, target, hint, find,
            most_paths=MOST_PATHS, config=config, deadline=deadline,
        )  # fmt: skip
        book.traced[key] = trace
    for left in trace.unvisited:
        if not _is_ruled_out(solver, left.condition):
            where = f"{left.where}: " if left.where else ""
            book.leave_all_open(f"{where}a path that was not run: {left.why}", left.late)
            book.unvisited[f"{where}{left.why}"] = None
    for run in trace.runs:
        see(case, run)
    yield from trace.paths


def _is_ruled_out(solver: Solver, cond: Cond) -> bool:
    with contextlib.suppress(OutOfTime):
        return solver.decide(cond) == "unsat"
    return False


def _usual_sizes(domain: Domain, kernel: KernelUnderTest) -> Mapping[Atom, int] | None:
    """Sizes that are neither small nor round, so that most wrappers take their general path."""
    sides = kernel.contract.fit(dict(zip(domain.sizes, USUAL[-len(domain.sizes) :], strict=True)))
    if sides is None:
        return None
    values = {size.atom: max(1, sides[axis]) for axis, size in domain.sizes.items() if size.atom}
    for operand in domain.operands.values():
        step = 1
        for n, stride in reversed(list(zip(operand.shape, operand.strides, strict=True))):
            if stride.atom is not None:
                values.setdefault(stride.atom, step)
            step = int(evaluate(n, values)) * (step + 3)
    return values if bool(evaluate(domain.condition, values)) else None
