"""Properties of addresses: what the machine's observers saw, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome
from gemmproof.reference.machine.observation import Fault

Judge = Callable[[Outcome], Iterator[Finding]]


def judge_faults(name: str, kinds: tuple[str, ...]) -> Judge:
    """A judge that turns every fault of the given kinds into a finding of property `name`."""

    def judge(outcome: Outcome) -> Iterator[Finding]:
        for fault in outcome.faults:
            if fault.kind in kinds:
                yield from_fault(name, fault, outcome)

    return judge


def from_fault(name: str, fault: Fault, outcome: Outcome) -> Finding:
    """The finding of property `name` that a fault of the machine is."""
    where = str(fault.where) if fault.where.line else None
    place = f"{fault.access} of {fault.operand}" if fault.operand else fault.access
    if where is not None:
        place = f"{place} at {where}"
    # an address outside an operand says what is wrong by itself: rows 3..15 of a (M=3)
    expected = "" if fault.kind == "out_of_bounds" else f", expected {fault.expected}"
    got = fault.got if fault.kind == "out_of_bounds" else f"got {fault.got}"
    return Finding(
        property=name,
        fault=fault.kind,
        message=f"{place}: {got}{expected}",
        case=outcome.case,
        operand=fault.operand or None,
        axis=fault.axis,
        where=where,
        got=fault.got,
        expected=fault.expected,
    )
