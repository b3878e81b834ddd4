"""The wrapper behind a finding, with the state and calls that it needs."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import CaseResult, State, judge, keep_state, observe
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import TORCH_DTYPES, overwrite
from gemmproof.properties.cases.layouts import GUARD
from gemmproof.properties.cases.operands import (
    AllocatedOperand,
    find_unread,
    operands,
    with_elements,
)
from gemmproof.properties.contract import ROLES
from gemmproof.properties.finding import Finding, Mismatch
from gemmproof.properties.judges import (
    determinism,
    exact_values,
    memory_use,
    metamorphic,
)
from gemmproof.properties.kernel import READ, WRITTEN, KernelUnderTest
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic import Array, bits, round_to, widen
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.work import counted_seconds
from gemmproof.reproduce.bug import (
    ALWAYS,
    BY_CHANCE,
    ENDS,
    NEVER,
    Bug,
    Index,
    StatedCall,
    StatedOperand,
    Unreproducible,
)
from gemmproof.reproduce.needed_calls import ALONE, Before, Series, list_series, reduce_items

# -- recorded calls ------------------------------------------------------------------------------
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
class ReproducedCall:
    """A call on stated elements, judged; `first` is what it is to be the same as, if anything.

    Of that it is to have the bits in as many `rows`, None for all.
    """

    observation: Observation
    judged: CaseResult
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

    def look(
        self, operands: Mapping[str, AllocatedOperand], data: Mapping[str, Array]
    ) -> ReproducedCall:
        """Call it on `data` in the places of `operands`, in new memory."""
        self.state.restore()
        made = {name: with_elements(x, data[name]) for name, x in operands.items()}
        first: Observation | None = None
        for one in self.series.before:
            observation = self._call(one, made, data)
            first = observation if first is None else first
            if observation.raised is not None:
                return ReproducedCall(observation, judge(observation))
        observation = observe(self.kernel, self.case, self.backend, made=made)
        compared = (first, self.series.rows) if self.series.same else (None, None)
        return ReproducedCall(observation, judge(observation), *compared)

    def _call(
        self, one: Before, made: Mapping[str, AllocatedOperand], data: Mapping[str, Array]
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


def _find_wrong(one: Observation, judged: CaseResult) -> Wrong | None:
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


# -- state of a wrapper --------------------------------------------------------------------------
MOST_LISTED = 64  # elements of a result that a test lists


def state(
    finding: Finding,
    kernel: KernelUnderTest,
    placed: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
    seen: ReproducedCall | None,
    shown: str,
    given: int,
    room: bool,
    series: Series,
) -> Bug:
    """The bug of a finding, on the elements `data`."""
    wrong = None if seen is None else seen.wrong
    one = None if seen is None else seen.observation
    if one is not None:
        one = one.split()[wrong.part if wrong else 0]
    stated, chosen = _state_operands(kernel, finding.case, placed, data)
    wanted = _list_wanted(one, wrong)
    if series.same:  # what the first call gave
        wanted = ((wrong.at, wrong.expected, 0.0),) if wrong else ()
    return Bug(
        finding=finding,
        operands=stated,
        values=chosen,
        at=wrong.at if wrong else None,
        got=wrong.got if wrong else None,
        wanted=wanted,
        result=wrong.part if wrong else 0,
        results=len(one.calls[0].results) if one is not None and one.calls else 1,
        written=kernel.written,
        shown=shown,
        exact=kernel.spec is None and finding.case.sums_are_exact,
        kept=count(placed, data),
        given=given,
        tuned=_find_tuned(kernel, finding.case.config, one),
        room=room,
        before=tuple(_state_call(kernel, one, data) for one in series.before),
        same=series.same,
        rows=series.rows,
    )


def _state_call(kernel: KernelUnderTest, one: Before, data: Mapping[str, Array]) -> StatedCall:
    stated, chosen = _state_operands(kernel, one.case, one.placed, one.elements(data))
    return StatedCall(one.words, stated, chosen, one.shares)


def _state_operands(
    kernel: KernelUnderTest,
    case: Case,
    placed: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
) -> tuple[tuple[StatedOperand, ...], dict[str, str]]:
    """The tensors of a call, and its Python values in words."""
    values_ = kernel.values_of(case)
    names = set(values_) & set(kernel.tensors)  # None for these
    stated = tuple(_place(x, data[n]) for n, x in placed.items() if n not in names)
    return stated, {name: _write_value(x) for name, x in values_.items()}


def _list_wanted(
    one: Observation | None, wrong: Wrong | None
) -> tuple[tuple[Index, float, float], ...]:
    """What a test compares where it is not all of an exact product."""
    if one is None or not one.has_result:
        return ()
    exact = exact_values.exact_applies(one)
    if one.kernel.spec is None and exact and one.case.sums_are_exact:
        fits = bool((np.abs(exact_values.exact(one).astype(np.float64)) <= one.out.max).all())
        if fits and (wrong is None or wrong.allowed == 0):
            return ()
    if wrong is not None:
        return ((wrong.at, wrong.expected, wrong.allowed),)
    if exact:
        rounded = round_exactly(one)
        known = np.ones(rounded.shape, bool)
        if one.kernel.spec is not None:
            known = np.broadcast_to(exact_values.evaluated(one).exact, rounded.shape)
        places = np.argwhere(known & np.isfinite(rounded))[:MOST_LISTED]
        return tuple((tuple(map(int, at)), float(rounded[tuple(at)]), 0.0) for at in places)
    if not exact_values.bound_applies(one):
        return ()
    bound, want = exact_values.error_and_bound(one)[1], exact_values.exact(one)
    places = np.argwhere(np.isfinite(bound) & np.isfinite(want))[:MOST_LISTED]
    return tuple(
        (tuple(map(int, at)), float(want[tuple(at)]), float(bound[tuple(at)])) for at in places
    )


def _place(operand: AllocatedOperand, data: Array) -> StatedOperand:
    skip = 3 - operand.tensor.dim()
    wide = widen(data) if FORMATS[operand.dtype].kind == "float" else data
    unset = operand.use == WRITTEN
    found = ((),) if unset else data.view(f"u{data.itemsize}").nonzero()
    elements = tuple(
        (tuple(map(int, at))[skip:], float(wide[at])) for at in zip(*found, strict=True)
    )
    view = operand.view
    dtype = str(TORCH_DTYPES[operand.dtype])
    offset = view.first - GUARD
    name, shape, strides = operand.role.name, view.shape[skip:], view.strides[skip:]
    return StatedOperand(name, dtype, shape, strides, offset, elements, operand.use)


def count(placed: Mapping[str, AllocatedOperand], data: Mapping[str, Array]) -> int:
    read = (name for name, operand in placed.items() if operand.use == READ)
    return sum(int(np.count_nonzero(data[n].view(f"u{data[n].itemsize}"))) for n in read)


def _write_value(value: Any) -> str:
    return str(value) if type(value).__module__ == "torch" else repr(value)


def _find_tuned(kernel: KernelUnderTest, config: int, one: Observation | None) -> dict[str, int]:
    """The tuned kernels of the wrapper's module by name, and the configuration that ran."""
    from triton.runtime.autotuner import Autotuner

    ran = list(one.launches) if one is not None else []
    found: dict[str, int] = {}
    for name, tuner in _list_names(kernel.launch):
        if not isinstance(tuner, Autotuner) or len(tuner.configs) < 2:
            continue
        if ran and tuner.base_fn.__name__ not in {launch.kernel for launch in ran}:
            continue
        # a tuner may prune its list, in which case the numbers are others
        sets = [one.kwargs.items() for one in tuner.configs]
        known = [launch.constexprs.items() for launch in ran]
        same = (i for i, x in enumerate(sets) if any(x <= items for items in known))
        found[name] = next(same, min(config, len(sets) - 1))
    return found


def _list_names(launch: Any) -> Iterator[tuple[str, Any]]:
    """What stands in the modules that hold a wrapper, which may be a partial one, by name."""
    holders = (vars(module) for module in list(sys.modules.values()) if module is not None)
    for holder in [x for x in holders if any(value is launch for value in list(x.values()))]:
        yield from list(holder.items())
    while isinstance(launch, functools.partial):
        launch = launch.func
    yield from getattr(launch, "__globals__", {}).items()


# -- wrappers ------------------------------------------------------------------------------------
SECONDS = 20.0  # counted, for the search of the fewest elements
MOST_PLACED = 2**24  # elements of an operand's memory
# findings that say nothing but that values are wrong
OF_VALUES = (exact_values.EXACT, exact_values.BOUND, exact_values.NAME, determinism.SAME)
COMPARED = (determinism.ORDER, determinism.ROWS)
OF_RESULTS = (memory_use.ONCE, memory_use.LANES, memory_use.RACES, determinism.SAME)

Item = tuple[str, Index]


def find_bug(
    kernel: KernelUnderTest,
    finding: Finding,
    target: str | None,
    seconds: float,
    tell: Callable[[], None],
    call: bool = True,
) -> Bug:
    """The bug of a finding, reduced. Raises Unreproducible.

    `tell` is called between runs. Where nobody may `call` the wrapper, which ends its process, the
    operands are those of the case.
    """
    case = finding.case
    if finding.property == metamorphic.NAME:
        words = "which compares calls on other operands, expected one that a call by itself shows"
        raise Unreproducible(f"got a finding of {finding.property}, {words}")
    placed = operands(case, kernel, find_unread(kernel, case))
    _require_small(case, placed)
    data = {name: operand.data for name, operand in placed.items()}
    given = count(placed, data)
    room = finding.property in OF_RESULTS or _is_store(finding)
    if not call:
        series = [ALONE, *list_series(kernel, case, placed)][-1]
        return state(finding, kernel, placed, data, None, ENDS, given, room, series)
    kept, alone = keep_state(kernel.launch), replace(case, calls=1, compare=None)
    nan = Bench(kernel, alone, Simulator(target, seconds=seconds), kept)
    zeros = Bench(kernel, alone, Zeros(target, seconds=seconds), kept)
    found = None if finding.property in COMPARED else _look(nan, zeros, finding, placed, data)
    bench, shown, seen = found or _look_at_series(nan, zeros, finding, placed, data, tell)
    if bench.series.before:
        room = room and shown == BY_CHANCE
    # a stray store of a test may end its process
    room = room or any(map(_is_store, seen.judged.findings))
    until = counted_seconds() + SECONDS

    def shows(tried: Bench, elements: Mapping[str, Array]) -> bool | None:
        tell()
        if counted_seconds() > until:
            return None
        return _is_shown(tried.look(placed, elements), finding, shown, bench)

    bench = _reduce_series(bench, lambda tried: shows(tried, data))
    items = list(_list_items(kernel, placed, data))

    def fails(left: Collection[Item]) -> bool | None:
        return shows(bench, _keep(placed, data, items, left))

    left: Sequence[Item] = items
    wrong = seen.wrong
    if wrong is not None and kernel.spec is None:  # only a row of a and a column of b meet there
        near = [item for item in items if _meets(item, wrong.at)]
        left = near if fails(near) else items
    left = reduce_items(left, fails)
    data = _keep(placed, data, items, left)
    seen = bench.look(placed, data)
    return state(finding, kernel, placed, data, seen, shown, given, room, bench.series)


def _require_small(case: Case, placed: Mapping[str, AllocatedOperand]) -> None:
    """Raise Unreproducible for what is too large for a test."""
    large = [x.role.name for x in placed.values() if x.view.extent > MOST_PLACED]
    if case.is_sampled or large:
        what = f"{large[0]} of {placed[large[0]].view.extent} elements" if large else "such a c"
        raise Unreproducible(f"got {what}, expected at most {MOST_PLACED} in a test")


def _look(
    nan: Bench,
    zeros: Bench,
    finding: Finding,
    placed: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
) -> tuple[Bench, str, ReproducedCall] | None:
    """Whether values show it, on which simulator, and what that saw. Raises Unreproducible.

    None where a call by itself shows nothing of a finding that takes several.
    """
    with_zeros, with_nan = zeros.look(placed, data), nan.look(placed, data)
    _require_known(with_zeros)
    _require_known(with_nan)
    if with_zeros.wrong is not None:
        return zeros, ALWAYS, with_zeros
    if with_nan.wrong is not None:
        return nan, BY_CHANCE, with_nan
    raised = with_nan.observation.raised
    if finding.case.calls > 1 and not _is_among(finding, with_nan):
        return None
    if not with_nan.judged.findings:
        raise Unreproducible(
            "got a case that holds when it is called once, expected one that fails"
        )
    return nan, NEVER if raised is None else ENDS, with_nan


def _look_at_series(
    nan: Bench,
    zeros: Bench,
    finding: Finding,
    placed: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
    tell: Callable[[], None],
) -> tuple[Bench, str, ReproducedCall]:
    """The same of the first calls in a row that show it. Raises Unreproducible where none do."""
    every = list(list_series(nan.kernel, finding.case, placed))
    for one in (before for series in every for before in series.before):
        _require_small(one.case, one.placed)
    for shown, bench in ((ALWAYS, zeros), (BY_CHANCE, nan)):
        for series in every:
            tell()
            tried = replace(bench, series=series)
            seen = tried.look(placed, data)
            _require_known(seen)
            if seen.wrong is not None:
                return tried, shown, seen
            if seen.ends:
                return tried, ENDS, seen
            if seen.observation.touched:
                return tried, NEVER, seen
    why = (
        "only accesses show it, and neither their order nor undefined lanes are those of a plain"
        " run"
    )
    if any(launch.written > 1 for launch in seen.observation.launches):
        why = "only trial runs of a tuner show it, and a test pins one configuration"
    got = f"got a finding of {finding.property} whose calls in a row give the right values"
    raise Unreproducible(f"{got}: {why}; expected one that values show")


def _reduce_series(bench: Bench, shows: Callable[[Bench], bool | None]) -> Bench:
    """The fewest calls before that of the case, of the fewest elements that are not zero."""
    first = bench.series.before[: bench.series.same]  # to which the others are compared
    others = bench.series.before[len(first) :]

    def make(before: Iterable[Before]) -> Bench:
        return replace(bench, series=replace(bench.series, before=(*first, *before)))

    left = reduce_items(others, lambda kept: shows(make(kept)))
    bench = make(left)
    for number, one in enumerate(bench.series.before):
        if one.data is not None:
            bench = _reduce_elements(bench, number, one, shows)
    return bench


def _reduce_elements(
    bench: Bench, number: int, one: Before, shows: Callable[[Bench], bool | None]
) -> Bench:
    """The same with the fewest elements in one of the calls before."""
    data = one.data or {}
    items = list(_list_items(bench.kernel, one.placed, data))
    before = bench.series.before

    def make(left: Collection[Item]) -> Bench:
        other = replace(one, data=_keep(one.placed, data, items, left))
        every = (*before[:number], other, *before[number + 1 :])
        return replace(bench, series=replace(bench.series, before=every))

    return make(reduce_items(items, lambda left: shows(make(left))))


def _require_known(seen: ReproducedCall) -> None:
    raised = seen.observation.raised
    if raised is not None and not seen.observation.is_known:
        raise Unreproducible(f"got {raised.text}, expected a case that can be judged")


def _is_shown(seen: ReproducedCall, finding: Finding, shown: str, bench: Bench) -> bool:
    """Whether what was seen is the same fault, shown by values where it was."""
    if bench.series.before and shown in (ENDS, NEVER):
        return seen.ends if shown == ENDS else len(seen.observation.touched) > 0
    if shown in (ALWAYS, BY_CHANCE) and seen.wrong is None:
        return False
    if bench.series.before:
        return True
    if finding.property in OF_VALUES:
        return seen.wrong is not None or shown == NEVER
    return _is_among(finding, seen)


def _is_among(finding: Finding, seen: ReproducedCall) -> bool:
    about = (finding.property, finding.fault, finding.operand)
    return any((f.property, f.fault, f.operand) == about for f in seen.judged.findings)


def _is_store(finding: Finding) -> bool:
    return finding.message.startswith(("store", "atomic"))


def _list_items(
    kernel: KernelUnderTest, placed: Mapping[str, AllocatedOperand], data: Mapping[str, Array]
) -> Iterator[Item]:
    """The elements that are not zero and may be: those of floats that no function makes."""
    for name, operand in placed.items():
        stated = kernel.tensors.get(name)
        made = stated is not None and (stated.values is not None or stated.use != READ)
        usual = name in ROLES or FORMATS[operand.dtype].kind == "float"
        if usual and not made:
            found = data[name].view(f"u{data[name].itemsize}").nonzero()
            yield from ((name, tuple(map(int, at))) for at in zip(*found, strict=True))


def _keep(
    placed: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
    items: Collection[Item],
    left: Collection[Item],
) -> dict[str, Array]:
    """The data with zeros in the places of the items that are not left."""
    kept = {name: array.copy() for name, array in data.items()}
    stays = set(left)
    for name, at in items:
        if (name, at) not in stays:
            kept[name].view(f"u{kept[name].itemsize}")[at] = 0
    return kept


def _meets(item: Item, at: Index) -> bool:
    """Whether an element of a or b has a part in an element of the product."""
    name, (batch, row, column) = item
    if name not in ROLES:
        return True
    same = row == at[-2] if name == "a" else column == at[-1]
    return same and (len(at) == 2 or batch == at[0])
