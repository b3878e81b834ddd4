"""What one call on stated elements gives, with NaN or zeros where nothing is defined."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.judge import Judged, judge
from gemmproof.engine.observe import observe
from gemmproof.engine.wrapper_state import State
from gemmproof.properties import special, values
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import PlacedOperand, with_elements
from gemmproof.properties.finding import Mismatch
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic.conversions import Array, round_to, widen

_ELEMENT = re.compile(r"^[^:]*?\[([\d, ]*)\]")


class Zeros(Simulator):
    """The simulator with zeros in undefined lanes: what memory and registers often hold."""

    fills = ("zero", "zero", "zero")


@dataclass(frozen=True, slots=True)
class Wrong:
    """An element of a result that is wrong, and what it may be off by."""

    part: int
    at: tuple[int, ...]
    got: float
    expected: float
    allowed: float


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call on stated elements, judged."""

    observation: Observation
    judged: Judged

    @property
    def wrong(self) -> Wrong | None:
        """The first element that is wrong, where all that is compared with it is known."""
        for one in self.observation.split():
            if found := _find_wrong(one, self.judged):
                return found
        return None


@dataclass(frozen=True, slots=True)
class Bench:
    """A kernel at a case, on a simulator; `state` is what its modules held before any call."""

    kernel: KernelUnderTest
    case: Case
    backend: Simulator
    state: State

    def look(self, operands: Mapping[str, PlacedOperand], data: Mapping[str, Array]) -> SeenCall:
        """Call it on `data` in the places of `operands`, in new memory."""
        self.state.restore()
        made = {name: with_elements(x, data[name]) for name, x in operands.items()}
        observation = observe(self.kernel, self.case, self.backend, made=made)
        return SeenCall(observation, judge(observation))


def _find_wrong(one: Observation, judged: Judged) -> Wrong | None:
    if not one.has_result or one.case.is_sampled:
        return None
    for applies, find in ((values.exact_applies, _find_exact), (values.bound_applies, _find_bound)):
        if applies(one) and (found := find(one)):
            return found
    odd = next((f for f in judged.findings if f.property == special.NAME), None)
    place = _ELEMENT.match(odd.message) if odd else None
    if odd is None or place is None or odd.expected is None:
        return None
    at = tuple(int(i) for i in place[1].split(","))
    allowed = values.error_and_bound(one)[1][at]
    return Wrong(one.part, at, float(widen(one.result)[at]), float(odd.expected), float(allowed))


def _find_exact(one: Observation) -> Wrong | None:
    wrong = Mismatch.of(values.not_exact(one))
    if wrong is None:
        return None
    expected = round_exactly(one)[wrong.at]
    return Wrong(one.part, wrong.at, float(widen(one.result)[wrong.at]), float(expected), 0.0)


def round_exactly(one: Observation) -> Array:
    """The exact result, rounded once to the format of the result; float64."""
    want = values.exact(one).astype(np.float64)
    if one.out.kind == "int":
        return np.clip(want, *values.integer_range(one.out))
    return widen(round_to(want, one.out))


def _find_bound(one: Observation) -> Wrong | None:
    beyond = values.beyond_bound(one)
    if not beyond.any():
        return None
    error, bound = values.error_and_bound(one)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(beyond, np.where(bound > 0, error / bound, np.inf), 0.0)
    at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    got, expected = float(widen(one.result)[at]), float(values.exact(one)[at])
    return Wrong(one.part, at, got, expected, float(bound[at]))
