"""What was seen of a case as a bug that a test states."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.cases.layouts import GUARD
from gemmproof.properties.cases.operands import PlacedOperand
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values
from gemmproof.properties.kernel import READ, WRITTEN, KernelUnderTest
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic import Array, widen
from gemmproof.reference.formats import FORMATS
from gemmproof.reproduction.bug import Bug, Index, StatedCall, StatedOperand
from gemmproof.reproduction.calls import Before, Series
from gemmproof.reproduction.seen import SeenCall, Wrong, round_exactly

MOST_LISTED = 64  # elements of a result that a test lists


def state(
    finding: Finding,
    kernel: KernelUnderTest,
    placed: Mapping[str, PlacedOperand],
    data: Mapping[str, Array],
    seen: SeenCall | None,
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
    placed: Mapping[str, PlacedOperand],
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


def _place(operand: PlacedOperand, data: Array) -> StatedOperand:
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


def count(placed: Mapping[str, PlacedOperand], data: Mapping[str, Array]) -> int:
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
