"""Properties of accesses: what the simulator's observers saw, as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome
from gemmproof.reference.observation import Fault

Judge = Callable[[Outcome], Iterator[Finding]]

BOUNDS = "stays_in_bounds"
ONCE = "stores_each_element_once"
LANES = "undefined_lanes_never_stored"
HINTS = "every_hint_holds"
FIT = "offsets_fit"
RACES = "no_races"
COMPILES = "compiles"
ENDS = "runs_to_completion"

# kind of fault -> the property that it breaks
PROPERTY_OF: Mapping[str, str] = MappingProxyType(
    {
        "out_of_bounds": BOUNDS,
        "wrapped_offset": FIT,
        "stored_twice": ONCE,
        "never_stored": ONCE,
        "race": RACES,
        "undefined_stored": LANES,
        "undefined_used": LANES,
        "false_hint": HINTS,
        "bad_descriptor": HINTS,
        "failed_assert": ENDS,
    }
)


def judge_faults(name: str) -> Judge:
    """A judge that turns every fault that breaks property `name` into a finding."""

    def judge(outcome: Outcome) -> Iterator[Finding]:
        for fault in outcome.faults:
            if PROPERTY_OF.get(fault.kind) == name:
                yield from_fault(name, fault, outcome)

    return judge


def from_fault(name: str, fault: Fault, outcome: Outcome) -> Finding:
    """The finding of property `name` that a fault of the simulator is."""
    where = str(fault.where) if fault.where.line else None
    place = f"{fault.access} of {fault.operand}" if fault.operand else fault.access
    if where is not None:
        place = f"{place} at {where}"
    # an address outside an operand says what is wrong by itself: rows 3..15 of a (M=3)
    expected = "" if fault.kind == "out_of_bounds" else f", expected {fault.expected}"
    got = fault.got if fault.kind == "out_of_bounds" else f"got {fault.got}"
    axis = fault.axis
    if fault.kind == "wrapped_offset" and axis is None:
        axis = _longest_axis(fault.operand, outcome)
        expected += "" if axis is None else f"; the offset along {axis} needs 64 bits"
    return Finding(
        property=name,
        fault=fault.kind,
        message=f"{place}: {got}{expected}",
        case=outcome.case,
        operand=fault.operand or None,
        axis=axis,
        where=where,
        got=fault.got,
        expected=fault.expected,
        cause=_cause(fault, outcome),
    )


def _cause(fault: Fault, outcome: Outcome) -> str | None:
    # a lane whose offset wrapped is not performed either, and the simulator calls it stray
    kinds = {other.kind for other in outcome.faults}
    if fault.follows == "out_of_bounds" and fault.follows not in kinds:
        return FIT if "wrapped_offset" in kinds else None
    return PROPERTY_OF.get(fault.follows)


def _longest_axis(name: str, outcome: Outcome) -> str | None:
    """The axis along which an operand reaches furthest: whose index and stride make the offset."""
    for operand in outcome.operands:
        if operand.name == name:
            reach = [
                (side - 1) * stride
                for side, stride in zip(operand.view.shape, operand.view.strides, strict=True)
            ]
            axes = {"a": ("batch", "M", "K"), "b": ("batch", "K", "N")}[name]
            return axes[reach.index(max(reach))]
    return None
