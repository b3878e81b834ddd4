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
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import overwrite
from gemmproof.properties.cases.operands import PlacedOperand, with_elements
from gemmproof.properties.finding import Mismatch
from gemmproof.properties.judges import exact_values
from gemmproof.properties.kernel import READ, KernelUnderTest
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic import Array, bits, round_to, widen
from gemmproof.reproduction.calls import ALONE, Before, Series

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
    """A call on stated elements, judged; `first` is what it is to be the same as, if anything.

    Of that it is to have the bits in as many `rows`, None for all.
    """

    observation: Observation
    judged: Judged
    first: Observation | None = None
    rows: int | None = None

    @property
    def ends(self) -> bool:
        """Whether it raised, or gave another kind of result than it is compared with."""
        one, first = self.observation, self.first
        if one.raised is not None:
            return True
        if first is None or not first.has_result:
            return False
        kinds = [[(x.dtype, x.shape) for x in _list_results(each)] for each in (first, one)]
        return self.rows is None and kinds[0] != kinds[1]

    @property
    def wrong(self) -> Wrong | None:
        """The first element that is wrong, where all that is compared with it is known."""
        if self.first is not None:
            pairs = zip(self.first.split(), self.observation.split(), strict=False)
            return next(filter(None, (_find_other(*pair, self.rows) for pair in pairs)), None)
        for one in self.observation.split():
            if found := _find_wrong(one, self.judged):
                return found
        return None


@dataclass(frozen=True, slots=True)
class Bench:
    """A kernel at a case, on a simulator; `state` is what its modules held before any call.

    The calls of `series` are made before each of the case.
    """

    kernel: KernelUnderTest
    case: Case
    backend: Simulator
    state: State
    series: Series = ALONE

    def look(self, operands: Mapping[str, PlacedOperand], data: Mapping[str, Array]) -> SeenCall:
        """Call it on `data` in the places of `operands`, in new memory."""
        self.state.restore()
        made = {name: with_elements(x, data[name]) for name, x in operands.items()}
        first: Observation | None = None
        for one in self.series.before:
            observation = self._call(one, made, data)
            first = observation if first is None else first
            if observation.raised is not None:
                return SeenCall(observation, judge(observation))
        observation = observe(self.kernel, self.case, self.backend, made=made)
        compared = (first, self.series.rows) if self.series.same else (None, None)
        return SeenCall(observation, judge(observation), *compared)

    def _call(
        self, one: Before, made: Mapping[str, PlacedOperand], data: Mapping[str, Array]
    ) -> Observation:
        """A call before that of the case, whose tensors have its elements again afterwards."""
        elements = one.elements(data)
        placed = {name: with_elements(x, elements[name]) for name, x in one.placed.items()}
        if not one.shares:
            return observe(self.kernel, one.case, self.backend, made=placed)
        renewed = [n for n, x in made.items() if one.data is not None or x.use != READ]
        for name in renewed:
            overwrite(made[name].tensor, placed[name].tensor)
        observation = observe(self.kernel, one.case, self.backend, made=made)
        for name in renewed:
            overwrite(made[name].tensor, with_elements(made[name], data[name]).tensor)
        return observation


def _find_wrong(one: Observation, judged: Judged) -> Wrong | None:
    if not one.has_result or one.case.is_sampled:
        return None
    for applies, find in (
        (exact_values.exact_applies, _find_exact),
        (exact_values.bound_applies, _find_bound),
    ):
        if applies(one) and (found := find(one)):
            return found
    odd = next((f for f in judged.findings if f.property == exact_values.NAME), None)
    place = _ELEMENT.match(odd.message) if odd else None
    if odd is None or place is None or odd.expected is None:
        return None
    at = tuple(int(i) for i in place[1].split(","))
    allowed = exact_values.error_and_bound(one)[1][at]
    return Wrong(one.part, at, float(widen(one.result)[at]), float(odd.expected), float(allowed))


def _list_results(one: Observation) -> list[Array]:
    return [x for x in one.calls[0].results if x is not None]


def _find_other(first: Observation, one: Observation, rows: int | None) -> Wrong | None:
    """The first element that has other bits than the first call gave."""
    if not (first.has_result and one.has_result) or first.out is not one.out:
        return None
    got, expected = one.result, first.result
    if rows is not None:
        got, expected = got[..., :rows, :], expected[..., :rows, :]
    if got.shape != expected.shape:
        return None
    wrong = Mismatch.of(bits(got) != bits(expected))
    if wrong is None:
        return None
    x, y = (float(widen(array)[wrong.at]) for array in (got, expected))
    return Wrong(one.part, wrong.at, x, y, 0.0)


def _find_exact(one: Observation) -> Wrong | None:
    wrong = Mismatch.of(exact_values.not_exact(one))
    if wrong is None:
        return None
    expected = round_exactly(one)[wrong.at]
    return Wrong(one.part, wrong.at, float(widen(one.result)[wrong.at]), float(expected), 0.0)


def round_exactly(one: Observation) -> Array:
    """The exact result, rounded once to the format of the result; float64."""
    want = exact_values.exact(one).astype(np.float64)
    if one.out.kind == "int":
        return np.clip(want, *exact_values.integer_range(one.out))
    return widen(round_to(want, one.out))


def _find_bound(one: Observation) -> Wrong | None:
    beyond = exact_values.beyond_bound(one)
    if not beyond.any():
        return None
    error, bound = exact_values.error_and_bound(one)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(beyond, np.where(bound > 0, error / bound, np.inf), 0.0)
    at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    got, expected = float(widen(one.result)[at]), float(exact_values.exact(one)[at])
    return Wrong(one.part, at, got, expected, float(bound[at]))
