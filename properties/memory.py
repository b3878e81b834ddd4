"""Properties of accesses and of memory: what the simulator's checks saw, and what calls changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from gemmproof.properties.contract import AXES
from gemmproof.properties.finding import Finding, make_finding
from gemmproof.properties.naming import axis_named, introduce, word
from gemmproof.properties.observation import Observation
from gemmproof.reference.simulation import Fault

Judge = Callable[[Observation], Iterator[Finding]]

BOUNDS = "stays_in_bounds"
ONCE = "stores_each_element_once"
LANES = "undefined_lanes_never_stored"
HINTS = "every_hint_holds"
FIT = "offsets_fit"
RACES = "no_races"
ENDS = "runs_to_completion"
INPUTS = "leaves_inputs_untouched"

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

    def judge(observation: Observation) -> Iterator[Finding]:
        for fault in observation.faults:
            if PROPERTY_OF.get(fault.kind) == name:
                yield _from_fault(name, fault, observation)

    return judge


def _from_fault(name: str, fault: Fault, observation: Observation) -> Finding:
    where = str(fault.where) if fault.where.line else None
    named = introduce(observation, fault.operand)
    place = f"{fault.access} of {named}" if named else fault.access
    if where is not None:
        place = f"{place} at {where}"
    axis, note = axis_named(fault.axis) or fault.axis, ""
    if fault.kind == "wrapped_offset" and axis is None:
        axis = _longest_axis(fault.operand, observation)
        note = "" if axis is None else f"; the offset along {axis} needs 64 bits"
    more = {"operand": fault.operand or None, "axis": axis, "where": where}
    more |= {"cause": _cause(fault, observation), "file": fault.where.file or None}
    if fault.kind == "out_of_bounds":
        # an address outside an operand says what is wrong by itself: rows 3..15 of a (M=3)
        more["message"] = f"{place}: {fault.got}"
    return make_finding(
        observation, name, fault.kind, place, fault.got, fault.expected, note, **more
    )


def _cause(fault: Fault, observation: Observation) -> str | None:
    # a lane whose offset wrapped is not performed either, and the simulator calls it stray
    kinds = {other.kind for other in observation.faults}
    if fault.follows == "out_of_bounds" and fault.follows not in kinds:
        return FIT if "wrapped_offset" in kinds else None
    return PROPERTY_OF.get(fault.follows)


def _longest_axis(name: str, observation: Observation) -> str | None:
    """The axis along which an operand reaches furthest: whose index and stride make the offset."""
    operand = observation.operands.get(name)
    result = observation.calls[0].run.result
    axes: tuple[str, ...] = ("batch", "M", "N")
    if operand is not None:
        sides = zip(operand.view.shape, operand.view.strides, strict=True)
        axes = ("batch", *operand.role.axes)
    elif name == "c" and getattr(result, "shape", None) == observation.case.result_shape:
        sides = zip(result.shape, result.stride(), strict=True)
    else:
        return None
    reach = [(n - 1) * stride for n, stride in sides]
    axis = axes[-len(reach) :][reach.index(max(reach))]
    return axis if axis in AXES else None  # another operand's may be a part of one


def judge_inputs(observation: Observation) -> Iterator[Finding]:
    """One finding per operand and kind of memory that changed."""
    nouns = {"element": "elements", "gap": "gap elements", "guard": "guard elements"}
    for change in observation.touched:
        if change.what == "view":
            got, expected = change.place, "the view it was given"
        else:
            place = change.place.removeprefix(change.operand)
            first = f"{word(observation, change.operand)}{place}"
            noun = nouns[change.what]
            many = f"{change.count} {noun} changed, first {first}"
            got = many if change.count > 1 else f"{noun.removesuffix('s')} {first} changed"
            expected = "none changed"
        named = introduce(observation, change.operand)
        place, fault = f"operand {named}", f"{change.what}_changed"
        yield make_finding(observation, INPUTS, fault, place, got, expected, operand=change.operand)
