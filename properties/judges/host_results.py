"""The judge of where results come from: launched kernels, or operations on the host."""

from __future__ import annotations

from collections.abc import Iterator

from gemmproof.properties.finding import Finding, make_finding
from gemmproof.properties.observation import ObservedCase
from gemmproof.reference.simulation import HostWork
from gemmproof.reference.simulator.call import span

NAME = "computed_by_kernels"
_FAULTS = {"product": "host_product", "formula": "host_formula", "earlier": "earlier_result"}


def applies(observation: ObservedCase) -> bool:
    """Return whether all writers of the results are known; an empty product needs no kernel."""
    sides = observation.case.sides.values()
    return (
        observation.is_known
        and len(observation.calls) > 0
        and 0 not in sides
        and all(call.run.host_work is not None for call in observation.calls)
    )


def judge(observation: ObservedCase) -> Iterator[Finding]:
    """Yield one finding for each operation whose values are in a result, and for old results."""
    for work in _list_undeclared(observation):
        if work.kind not in _FAULTS:
            continue
        if work.kind == "earlier":
            got, expected, more = f"{_label(work)} not written by this call", "a new result", {}
        else:
            got = f"{_label(work)} written by {_label_operation(work)} at {work.where}"
            expected = "the work of a launched kernel"
            more = {"where": str(work.where), "file": work.where.file}
        yield make_finding(
            observation, NAME, _FAULTS[work.kind], got=got, expected=expected,
            operand=work.result, result=work.result, message=f"{got}, expected {expected}", **more,
        )  # fmt: skip


def list_epilogues(observation: ObservedCase) -> tuple[str, ...]:
    """List the operations on the host that continue what kernels computed, undeclared ones."""
    if observation.kernel.memory_only or not applies(observation):
        return ()
    return tuple(
        f"{_label_operation(work)} at {work.where} takes part in {work.result}"
        f" (--host-epilogue {work.operation})"
        for work in _list_undeclared(observation)
        if work.kind == "epilogue"
    )


def _list_undeclared(observation: ObservedCase) -> list[HostWork]:
    """Return each operation of any call that the contract does not declare, once."""
    declared = observation.kernel.contract.host_epilogue
    every = {
        (work.kind, work.result, work.operation, work.where): work
        for call in observation.calls
        for work in call.run.host_work or ()
    }
    return [work for work in every.values() if work.operation not in declared]


def _label(work: HostWork) -> str:
    """Format the elements: "c is", or "rows 0..3, columns 0..15 of c are"."""
    return f"{work.result} is" if work.hit.all() else f"{span(work.hit)} of {work.result} are"


def _label_operation(work: HostWork) -> str:
    return "Python" if work.operation == "python" else f"torch.{work.operation}"
