"""Cases that exercise a property: they would show its violation, if there were one.

A property that holds in cases which could not show its violation is not judged: an error of 5 % of
all fractions is invisible while every result is an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gemmproof.properties.cases.generate import list_relations
from gemmproof.properties.judges import exact_values, metamorphic
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase
from gemmproof.reference.arithmetic import Array, round_to, widen, widen_nearest
from gemmproof.reference.bounds import special_values
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.simulation import Launch

WHOLE = ("",)


def _list_whole(kernel: KernelUnderTest) -> tuple[str, ...]:
    return WHOLE


def _bar_nothing(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Exercise:
    """The cases that exercise a property: `text` completes the sentence "no case had ...".

    `shows(observation)`: whether a case to which the property applies exercised it. `parts(kernel)`
    are those of the property that are exercised separately, "" for the property as a whole, and
    `part(observation)` is the one that a case exercised. `bar(observation)` yields parts that a
    case shows to be impossible for the kernel, each with the reason.
    """

    text: str
    shows: Callable[[ObservedCase], bool]
    parts: Callable[[KernelUnderTest], tuple[str, ...]] = _list_whole
    part: Callable[[ObservedCase], str] = lambda observation: ""
    bar: Callable[[ObservedCase], Iterator[tuple[str, str]]] = _bar_nothing


# -- launches ------------------------------------------------------------------------------------
def _count_programs(launch: Launch) -> int:
    return math.prod(launch.grid)


def _has_programs(observation: ObservedCase) -> bool:
    # a device does not show its launches
    launches = observation.launches
    return not observation.is_simulated or any(_count_programs(x) > 0 for x in launches)


def _has_several_programs(observation: ObservedCase) -> bool:
    return any(_count_programs(launch) > 1 for launch in observation.launches)


def _bar_races(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    if not observation.launches or _has_several_programs(observation):
        return
    tiles, contract, case = observation.tiles, observation.kernel.contract, observation.case
    for axis, index in (("M", 0), ("N", 1)):
        size = getattr(case, axis)
        if tiles and size > 0 and size > max(tile[index] for tile in tiles):
            yield "", "one program computes all tiles"
            return
        if size != contract.sizes(axis).high:
            return
    yield "", "the largest problem has one program"


def _uses_hints(observation: ObservedCase) -> bool:
    return any(launch.uses_hints for launch in observation.launches)


def _bar_hints(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    if observation.launches and not any(launch.has_hints for launch in observation.launches):
        yield "", "no launched kernel has a hint"


CALL = Exercise("a call", lambda observation: True)
LAUNCH = Exercise("a launch of a program", _has_programs)
HINT = Exercise("a program that computes a value with a hint", _uses_hints, bar=_bar_hints)
PROGRAMS = Exercise("a launch of more than one program", _has_several_programs, bar=_bar_races)


# -- values --------------------------------------------------------------------------------------
def _is_exact_product(observation: ObservedCase) -> bool:
    value = exact_values.exact(observation)
    if observation.kernel.spec is not None:
        value = value[exact_values.evaluated(observation).exact]
    value = value.astype(np.float64)
    return bool(np.any(np.isfinite(value) & (value != 0)))


def _needs_rounding(observation: ObservedCase) -> bool:
    value = exact_values.exact(observation).astype(np.float64)
    formats = (observation.out, FORMATS[exact_values.held_by(observation)])
    return any(_changes(value, fmt) for fmt in formats)


def _changes(value: Array, fmt: Format) -> bool:
    """Return whether some finite value is no number of a format, within its range."""
    value = value[np.abs(value) <= fmt.max]
    rounded = np.rint(value) if fmt.kind == "int" else widen(round_to(value, fmt))
    return bool(np.any(rounded != value))


def _bar_exact(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    case = observation.case
    if observation.kernel.spec is None or not observation.has_result or case.is_sampled:
        return
    if min(case.M, case.N, case.K) > 0 and exact_values.rests_on_approximations(observation):
        yield "", "every element of the formula rests on an approximated function"


def _bar_rounding(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    if not observation.has_result:
        return
    others = (FORMATS[x.format] for x in observation.kernel.tensors.values())
    formats = (observation.case.format, observation.out, *others)
    if all(fmt.kind == "int" for fmt in formats):
        yield "", "all operands and results are integers"


def _has_special(observation: ObservedCase) -> bool:
    if observation.kernel.spec is not None:
        # the values of some lines are special, and must stay there
        c = exact_values.evaluated(observation)
        return bool(np.any(c.known) and np.any(~(np.isfinite(c.value) & c.known)))
    odd = special_values(*(widen(x) for x in exact_values.inputs(observation)))
    if odd is not None and np.any(odd != 0):
        return True
    beyond = np.abs(exact_values.accumulator(observation).exact) > observation.out.max
    return bool(np.any(beyond))


EXACT = Exercise(
    "a product that no sum rounds, other than 0, with K > 0",
    _is_exact_product,
    bar=_bar_exact,
)
ROUNDED = Exercise(
    "an exact result that the output or the accumulator must round",
    _needs_rounding,
    bar=_bar_rounding,
)
SPECIAL = Exercise("NaN, Inf or an overflow that reaches a result", _has_special)


# -- further calls -------------------------------------------------------------------------------
def _is_called_again(observation: ObservedCase) -> bool:
    return len(observation.calls) > 1 and observation.result.size > 0


def _is_changed(observation: ObservedCase) -> bool:
    """Return whether a relation changes the operands of a result that is not all 0."""
    case = observation.case
    sides = {"permuted_rows": case.M, "permuted_columns": case.N}
    is_moved = sides.get(case.compare or "", 2) > 1
    return is_moved and bool(np.any(widen_nearest(observation.result) != 0))


def _list_related(kernel: KernelUnderTest) -> tuple[str, ...]:
    possible = list_relations(kernel.contract)
    return tuple(name for name in metamorphic.RELATIONS if name in possible)


def _label_relation(observation: ObservedCase) -> str:
    return observation.case.compare or ""


def _bar_relation(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    relation = observation.case.compare
    if relation in metamorphic.RELATIONS and observation.has_result and not observation.related:
        yield relation, "the contract admits no such call"


def _follows_another_shape(observation: ObservedCase) -> bool:
    own = observation.case.sides
    earlier = observation.related[:-1]
    return any(other.asked.case.sides != own for other in earlier)


def _bar_order(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    sizes = map(observation.kernel.contract.sizes, observation.case.sides)
    if all(x.low == x.high for x in sizes):
        yield "", "the contract admits no other shape"


def _bar_rows(observation: ObservedCase) -> Iterator[tuple[str, str]]:
    sizes = observation.kernel.contract.sizes("M")
    if sizes.low == sizes.high:
        yield "", f"M is always {sizes.high}"


AGAIN = Exercise("a later call over memory with other contents", _is_called_again)
RELATION = Exercise(
    "a further call under the relation, with a result other than 0",
    _is_changed,
    parts=_list_related,
    part=_label_relation,
    bar=_bar_relation,
)
ORDER = Exercise("an earlier call of another shape", _follows_another_shape, bar=_bar_order)
ROWS = Exercise(
    "the same rows in a call at another M",
    lambda observation: observation.result.size > 0,
    bar=_bar_rows,
)
PREDICTED = Exercise(
    "a result on the device whose bits are predicted",
    lambda observation: observation.result.size > 0,
)
COMPILED = Exercise("a compiled launch", lambda observation: True)
