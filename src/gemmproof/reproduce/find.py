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
from gemmproof.engine.observe import CaseResult, judge, observe
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
from gemmproof.properties.judges import determinism, exact_values, memory_use, metamorphic
from gemmproof.properties.kernel import READ, WRITTEN, KernelUnderTest
from gemmproof.properties.observation import ObservedCase
from gemmproof.properties.wrapper_state import State, find_state
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
    """The simulator with zeros in undefined lanes, which memory and registers often hold."""

    fills = ("zero", "zero", "zero")


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong element of a result, and its allowed error."""

    part: int
    at: tuple[int, ...]
    got: float
    expected: float
    allowed: float


@dataclass(frozen=True, slots=True)
class ReproducedCall:
    """A judged call on given elements; `first` is the call that it must equal, if any.

    The bits of the first `rows` rows are compared, of all rows if None.
    """

    observation: ObservedCase
    judged: CaseResult
    first: ObservedCase | None = None
    rows: int | None = None

    @property
    def ends(self) -> bool:
        """True if it raised, or if the dtypes or shapes of its results differ from `first`."""
        observation, first = self.observation, self.first
        if observation.raised is not None:
            return True
        if first is None or not first.has_result:
            return False
        kinds = [[(x.dtype, x.shape) for x in _list_results(each)] for each in (first, observation)]
        return self.rows is None and kinds[0] != kinds[1]

    @property
    def wrong(self) -> Wrong | None:
        """The first wrong element, where all that it is compared with is known, or None."""
        if self.first is not None:
            pairs = zip(self.first.split(), self.observation.split(), strict=False)
            return next(filter(None, (_find_difference(*pair, self.rows) for pair in pairs)), None)
        for part in self.observation.split():
            if wrong := _find_wrong(part, self.judged):
                return wrong
        return None


@dataclass(frozen=True, slots=True)
class Bench:
    """A kernel at a case, on a simulator; `state` is that of its modules before any call.

    The calls of `series` precede each call of the case.
    """

    kernel: KernelUnderTest
    case: Case
    backend: Simulator
    state: State
    series: Series = ALONE

    def look(
        self, operands: Mapping[str, AllocatedOperand], data: Mapping[str, Array]
    ) -> ReproducedCall:
        """Call the kernel on `data` as the elements of `operands`, in new memory."""
        self.state.restore()
        allocated = {name: with_elements(x, data[name]) for name, x in operands.items()}
        first: ObservedCase | None = None
        for call in self.series.before:
            observation = self._call(call, allocated, data)
            first = observation if first is None else first
            if observation.raised is not None:
                return ReproducedCall(observation, judge(observation))
        observation = observe(self.kernel, self.case, self.backend, allocated=allocated)
        compared = (first, self.series.rows) if self.series.same else (None, None)
        return ReproducedCall(observation, judge(observation), *compared)

    def _call(
        self, call: Before, allocated: Mapping[str, AllocatedOperand], data: Mapping[str, Array]
    ) -> ObservedCase:
        """Run a preceding call, then restore the elements of the tensors of the case."""
        elements = call.elements(data)
        own = {name: with_elements(x, elements[name]) for name, x in call.allocated.items()}
        if not call.shares:
            return observe(self.kernel, call.case, self.backend, allocated=own)
        renewed = [n for n, x in allocated.items() if call.data is not None or x.use != READ]
        for name in renewed:
            overwrite(allocated[name].tensor, own[name].tensor)
        observation = observe(self.kernel, call.case, self.backend, allocated=allocated)
        for name in renewed:
            overwrite(allocated[name].tensor, with_elements(allocated[name], data[name]).tensor)
        return observation


def _find_wrong(obs: ObservedCase, judged: CaseResult) -> Wrong | None:
    if not obs.has_result or obs.case.is_sampled:
        return None
    for applies, find in (
        (exact_values.exact_applies, _find_exact),
        (exact_values.bound_applies, _find_bound),
    ):
        if applies(obs) and (wrong := find(obs)):
            return wrong
    finding = next((f for f in judged.findings if f.property == exact_values.NAME), None)
    match = _ELEMENT.match(finding.message) if finding else None
    if finding is None or match is None or finding.expected is None:
        return None
    at = tuple(int(i) for i in match[1].split(","))
    allowed = exact_values.error_and_bound(obs)[1][at]
    return Wrong(
        obs.part, at, float(widen(obs.result)[at]), float(finding.expected), float(allowed)
    )


def _list_results(obs: ObservedCase) -> list[Array]:
    return [x for x in obs.calls[0].results if x is not None]


def _find_difference(first: ObservedCase, obs: ObservedCase, rows: int | None) -> Wrong | None:
    """Return the first element whose bits differ from those of the first call."""
    if not (first.has_result and obs.has_result) or first.out is not obs.out:
        return None
    got, expected = obs.result, first.result
    if rows is not None:
        got, expected = got[..., :rows, :], expected[..., :rows, :]
    if got.shape != expected.shape:
        return None
    wrong = Mismatch.of(bits(got) != bits(expected))
    if wrong is None:
        return None
    x, y = (float(widen(array)[wrong.at]) for array in (got, expected))
    return Wrong(obs.part, wrong.at, x, y, 0.0)


def _find_exact(obs: ObservedCase) -> Wrong | None:
    wrong = Mismatch.of(exact_values.not_exact(obs))
    if wrong is None:
        return None
    expected = round_exactly(obs)[wrong.at]
    return Wrong(obs.part, wrong.at, float(widen(obs.result)[wrong.at]), float(expected), 0.0)


def round_exactly(obs: ObservedCase) -> Array:
    """Return the exact result, rounded once to the format of the result, as float64."""
    exact = exact_values.exact(obs).astype(np.float64)
    if obs.out.kind == "int":
        return np.clip(exact, *exact_values.integer_range(obs.out))
    return widen(round_to(exact, obs.out))


def _find_bound(obs: ObservedCase) -> Wrong | None:
    beyond = exact_values.beyond_bound(obs)
    if not beyond.any():
        return None
    error, bound = exact_values.error_and_bound(obs)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(beyond, np.where(bound > 0, error / bound, np.inf), 0.0)
    at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    got, expected = float(widen(obs.result)[at]), float(exact_values.exact(obs)[at])
    return Wrong(obs.part, at, got, expected, float(bound[at]))


# -- state of a wrapper --------------------------------------------------------------------------
MOST_LISTED = 64  # elements of a result that a test lists


def state(
    finding: Finding,
    kernel: KernelUnderTest,
    allocated: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
    reproduced: ReproducedCall | None,
    shown: str,
    initial: int,
    guarded: bool,
    series: Series,
) -> Bug:
    """Return the bug of a finding, on the elements `data`."""
    wrong = None if reproduced is None else reproduced.wrong
    obs = None if reproduced is None else reproduced.observation
    if obs is not None:
        obs = obs.split()[wrong.part if wrong else 0]
    declared, values = _state_operands(kernel, finding.case, allocated, data)
    expected = _list_expected(obs, wrong)
    if series.same:  # what the first call gave
        expected = ((wrong.at, wrong.expected, 0.0),) if wrong else ()
    return Bug(
        finding=finding,
        operands=declared,
        values=values,
        at=wrong.at if wrong else None,
        got=wrong.got if wrong else None,
        expected=expected,
        result=wrong.part if wrong else 0,
        results=len(obs.calls[0].results) if obs is not None and obs.calls else 1,
        written=kernel.written,
        shown=shown,
        exact=kernel.spec is None and finding.case.sums_are_exact,
        kept=count(allocated, data),
        given=initial,
        tuned=_find_tuned(kernel, finding.case.config, obs),
        guarded=guarded,
        before=tuple(_state_call(kernel, call, data) for call in series.before),
        same=series.same,
        rows=series.rows,
    )


def _state_call(kernel: KernelUnderTest, call: Before, data: Mapping[str, Array]) -> StatedCall:
    declared, values = _state_operands(kernel, call.case, call.allocated, call.elements(data))
    return StatedCall(call.label, declared, values, call.shares)


def _state_operands(
    kernel: KernelUnderTest,
    case: Case,
    allocated: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
) -> tuple[tuple[StatedOperand, ...], dict[str, str]]:
    """Return the tensors of a call, and its Python values as text."""
    values = kernel.values_of(case)
    names = set(values) & set(kernel.tensors)  # None for these
    declared = tuple(_declare_operand(x, data[n]) for n, x in allocated.items() if n not in names)
    return declared, {name: _write_value(x) for name, x in values.items()}


def _list_expected(
    obs: ObservedCase | None, wrong: Wrong | None
) -> tuple[tuple[Index, float, float], ...]:
    """List the elements that a test compares, if not all of an exact product."""
    if obs is None or not obs.has_result:
        return ()
    exact = exact_values.exact_applies(obs)
    if obs.kernel.spec is None and exact and obs.case.sums_are_exact:
        fits = bool((np.abs(exact_values.exact(obs).astype(np.float64)) <= obs.out.max).all())
        if fits and (wrong is None or wrong.allowed == 0):
            return ()
    if wrong is not None:
        return ((wrong.at, wrong.expected, wrong.allowed),)
    if exact:
        rounded = round_exactly(obs)
        known = np.ones(rounded.shape, bool)
        if obs.kernel.spec is not None:
            known = np.broadcast_to(exact_values.evaluated(obs).exact, rounded.shape)
        indices = np.argwhere(known & np.isfinite(rounded))[:MOST_LISTED]
        return tuple((tuple(map(int, at)), float(rounded[tuple(at)]), 0.0) for at in indices)
    if not exact_values.bound_applies(obs):
        return ()
    bound, expected = exact_values.error_and_bound(obs)[1], exact_values.exact(obs)
    indices = np.argwhere(np.isfinite(bound) & np.isfinite(expected))[:MOST_LISTED]
    return tuple(
        (tuple(map(int, at)), float(expected[tuple(at)]), float(bound[tuple(at)])) for at in indices
    )


def _declare_operand(operand: AllocatedOperand, data: Array) -> StatedOperand:
    skip = 3 - operand.tensor.dim()
    wide = widen(data) if FORMATS[operand.dtype].kind == "float" else data
    unset = operand.use == WRITTEN
    nonzero = ((),) if unset else data.view(f"u{data.itemsize}").nonzero()
    elements = tuple(
        (tuple(map(int, at))[skip:], float(wide[at])) for at in zip(*nonzero, strict=True)
    )
    view = operand.view
    dtype = str(TORCH_DTYPES[operand.dtype])
    offset = view.first - GUARD
    name, shape, strides = operand.role.name, view.shape[skip:], view.strides[skip:]
    return StatedOperand(name, dtype, shape, strides, offset, elements, operand.use)


def count(allocated: Mapping[str, AllocatedOperand], data: Mapping[str, Array]) -> int:
    read = (name for name, operand in allocated.items() if operand.use == READ)
    return sum(int(np.count_nonzero(data[n].view(f"u{data[n].itemsize}"))) for n in read)


def _write_value(value: Any) -> str:
    return str(value) if type(value).__module__ == "torch" else repr(value)


def _find_tuned(kernel: KernelUnderTest, config: int, obs: ObservedCase | None) -> dict[str, int]:
    """Return the wrapper module's tuned kernels by name, with the configuration that ran."""
    from triton.runtime.autotuner import Autotuner

    ran = list(obs.launches) if obs is not None else []
    tuned: dict[str, int] = {}
    for name, tuner in _list_names(kernel.launch):
        if not isinstance(tuner, Autotuner) or len(tuner.configs) < 2:
            continue
        if ran and tuner.base_fn.__name__ not in {launch.kernel for launch in ran}:
            continue
        # a tuner may prune its list, which changes the indices
        sets = [option.kwargs.items() for option in tuner.configs]
        own = [launch for launch in ran if launch.kernel == tuner.base_fn.__name__]
        known = [launch.constexprs.items() for launch in own]
        same = (i for i, x in enumerate(sets) if any(x <= items for items in known))
        tuned[name] = next(same, min(config, len(sets) - 1))
    return tuned


def _list_names(launch: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the modules that hold a wrapper, which may be a partial."""
    holders = (vars(module) for module in list(sys.modules.values()) if module is not None)
    for holder in [x for x in holders if any(value is launch for value in list(x.values()))]:
        yield from list(holder.items())
    while isinstance(launch, functools.partial):
        launch = launch.func
    yield from getattr(launch, "__globals__", {}).items()


# -- wrappers ------------------------------------------------------------------------------------
SECONDS = 20.0  # counted, for the reduction to the fewest elements
MOST_PLACED = 2**24  # elements of an operand's memory
# findings that report nothing but wrong values
OF_VALUES = (exact_values.EXACT, exact_values.BOUND, exact_values.NAME, determinism.SAME)
COMPARED = (determinism.ORDER, determinism.ROWS)
OF_RESULTS = (memory_use.ONCE, memory_use.LANES, memory_use.RACES, determinism.SAME)

Item = tuple[str, Index]


def find_bug(
    kernel: KernelUnderTest,
    finding: Finding,
    target: str | None,
    seconds: float,
    heartbeat: Callable[[], None],
    call: bool = True,
) -> Bug:
    """Return the bug of a finding, reduced. Raises Unreproducible.

    `heartbeat` is called between runs. Without `call`, for a wrapper that ends its process, the
    operands are those of the case.
    """
    case = finding.case
    if finding.property == metamorphic.NAME:
        reason = "which compares calls on other operands, expected one that a call by itself shows"
        raise Unreproducible(f"got a finding of {finding.property}, {reason}")
    allocated = operands(case, kernel, find_unread(kernel, case))
    _require_small(case, allocated)
    data = {name: operand.data for name, operand in allocated.items()}
    initial = count(allocated, data)
    guarded = finding.property in OF_RESULTS or _is_store(finding)
    if not call:
        series = [ALONE, *list_series(kernel, case, allocated)][-1]
        return state(finding, kernel, allocated, data, None, ENDS, initial, guarded, series)
    saved, alone = find_state(kernel.launch), replace(case, calls=1, compare=None)
    nan = Bench(kernel, alone, Simulator(target, seconds=seconds), saved)
    zeros = Bench(kernel, alone, Zeros(target, seconds=seconds), saved)
    reproduction = (
        None if finding.property in COMPARED else _look(nan, zeros, finding, allocated, data)
    )
    reproducer, shown, reproduced = reproduction or _look_at_series(
        nan, zeros, finding, allocated, data, heartbeat
    )
    if reproducer.series.before:
        guarded = guarded and shown == BY_CHANCE
    # an out-of-bounds store of a test may end its process
    guarded = guarded or any(map(_is_store, reproduced.judged.findings))
    until = counted_seconds() + SECONDS

    def shows(tried: Bench, elements: Mapping[str, Array]) -> bool | None:
        heartbeat()
        if counted_seconds() > until:
            return None
        return _is_shown(tried.look(allocated, elements), finding, shown, reproducer)

    reproducer = _reduce_series(reproducer, lambda tried: shows(tried, data))
    items = list(_list_items(kernel, allocated, data))

    def fails(left: Collection[Item]) -> bool | None:
        return shows(reproducer, _keep(allocated, data, items, left))

    left: Sequence[Item] = items
    wrong = reproduced.wrong
    if wrong is not None and kernel.spec is None:  # only a row of a and a column of b contribute
        near = [item for item in items if _meets(item, wrong.at)]
        left = near if fails(near) else items
    left = reduce_items(left, fails)
    data = _keep(allocated, data, items, left)
    reproduced = reproducer.look(allocated, data)
    return state(
        finding, kernel, allocated, data, reproduced, shown, initial, guarded, reproducer.series
    )


def _require_small(case: Case, allocated: Mapping[str, AllocatedOperand]) -> None:
    """Raise Unreproducible if the case is too large for a test."""
    large = [x.role.name for x in allocated.values() if x.view.extent > MOST_PLACED]
    if case.is_sampled or large:
        size = f"{large[0]} of {allocated[large[0]].view.extent} elements" if large else "such a c"
        raise Unreproducible(f"got {size}, expected at most {MOST_PLACED} in a test")


def _look(
    nan: Bench,
    zeros: Bench,
    finding: Finding,
    allocated: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
) -> tuple[Bench, str, ReproducedCall] | None:
    """Return the simulator on which a single call shows a finding, how, and that call.

    None if a single call shows nothing of a finding that takes several. Raises Unreproducible.
    """
    with_zeros, with_nan = zeros.look(allocated, data), nan.look(allocated, data)
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
    allocated: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
    heartbeat: Callable[[], None],
) -> tuple[Bench, str, ReproducedCall]:
    """Reproduce a finding by the first series that shows it. Raises Unreproducible if none does."""
    candidates = list(list_series(nan.kernel, finding.case, allocated))
    for call in (before for series in candidates for before in series.before):
        _require_small(call.case, call.allocated)
    for shown, reproducer in ((ALWAYS, zeros), (BY_CHANCE, nan)):
        for series in candidates:
            heartbeat()
            tried = replace(reproducer, series=series)
            reproduced = tried.look(allocated, data)
            _require_known(reproduced)
            if reproduced.wrong is not None:
                return tried, shown, reproduced
            if reproduced.ends:
                return tried, ENDS, reproduced
            if reproduced.observation.touched:
                return tried, NEVER, reproduced
    reason = (
        "only accesses show it, and neither their order nor undefined lanes are those of a plain"
        " run"
    )
    if any(launch.written > 1 for launch in reproduced.observation.launches):
        reason = "only trial runs of a tuner show it, and a test pins one configuration"
    got = f"got a finding of {finding.property} whose calls in a row give the right values"
    raise Unreproducible(f"{got}: {reason}; expected one that values show")


def _reduce_series(reproducer: Bench, shows: Callable[[Bench], bool | None]) -> Bench:
    """Reduce to the fewest preceding calls, of the fewest nonzero elements."""
    first = reproducer.series.before[: reproducer.series.same]  # to which the others are compared
    others = reproducer.series.before[len(first) :]

    def make(before: Iterable[Before]) -> Bench:
        return replace(reproducer, series=replace(reproducer.series, before=(*first, *before)))

    left = reduce_items(others, lambda kept: shows(make(kept)))
    reproducer = make(left)
    for number, call in enumerate(reproducer.series.before):
        if call.data is not None:
            reproducer = _reduce_elements(reproducer, number, call, shows)
    return reproducer


def _reduce_elements(
    reproducer: Bench, number: int, call: Before, shows: Callable[[Bench], bool | None]
) -> Bench:
    """Reduce one preceding call to the fewest nonzero elements."""
    data = call.data or {}
    items = list(_list_items(reproducer.kernel, call.allocated, data))
    before = reproducer.series.before

    def make(left: Collection[Item]) -> Bench:
        other = replace(call, data=_keep(call.allocated, data, items, left))
        calls = (*before[:number], other, *before[number + 1 :])
        return replace(reproducer, series=replace(reproducer.series, before=calls))

    return make(reduce_items(items, lambda left: shows(make(left))))


def _require_known(reproduced: ReproducedCall) -> None:
    raised = reproduced.observation.raised
    if raised is not None and not reproduced.observation.is_known:
        raise Unreproducible(f"got {raised.text}, expected a case that can be judged")


def _is_shown(reproduced: ReproducedCall, finding: Finding, shown: str, reproducer: Bench) -> bool:
    """Return whether a call shows the same fault, and by values if it did before."""
    if reproducer.series.before and shown in (ENDS, NEVER):
        return reproduced.ends if shown == ENDS else len(reproduced.observation.touched) > 0
    if shown in (ALWAYS, BY_CHANCE) and reproduced.wrong is None:
        return False
    if reproducer.series.before:
        return True
    if finding.property in OF_VALUES:
        return reproduced.wrong is not None or shown == NEVER
    return _is_among(finding, reproduced)


def _is_among(finding: Finding, reproduced: ReproducedCall) -> bool:
    about = (finding.property, finding.fault, finding.operand)
    return any((f.property, f.fault, f.operand) == about for f in reproduced.judged.findings)


def _is_store(finding: Finding) -> bool:
    return finding.message.startswith(("store", "atomic"))


def _list_items(
    kernel: KernelUnderTest, allocated: Mapping[str, AllocatedOperand], data: Mapping[str, Array]
) -> Iterator[Item]:
    """Yield the nonzero elements that may be zeroed: of floats that no function generates."""
    for name, operand in allocated.items():
        declared = kernel.tensors.get(name)
        generated = declared is not None and (declared.values is not None or declared.use != READ)
        usual = name in ROLES or FORMATS[operand.dtype].kind == "float"
        if usual and not generated:
            nonzero = data[name].view(f"u{data[name].itemsize}").nonzero()
            yield from ((name, tuple(map(int, at))) for at in zip(*nonzero, strict=True))


def _keep(
    allocated: Mapping[str, AllocatedOperand],
    data: Mapping[str, Array],
    items: Collection[Item],
    left: Collection[Item],
) -> dict[str, Array]:
    """Return the data with zeros at the items that are not left."""
    kept = {name: array.copy() for name, array in data.items()}
    stays = set(left)
    for name, at in items:
        if (name, at) not in stays:
            kept[name].view(f"u{kept[name].itemsize}")[at] = 0
    return kept


def _meets(item: Item, at: Index) -> bool:
    """Return whether an element of a or b contributes to an element of the product."""
    name, (batch, row, column) = item
    if name not in ROLES:
        return True
    same = row == at[-2] if name == "a" else column == at[-1]
    return same and (len(at) == 2 or batch == at[0])
