"""In a worker: what of a case shows its fault, with the fewest elements that are not zero."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.wrapper_state import keep_state
from gemmproof.properties import determinism, memory, metamorphic, special, values
from gemmproof.properties.cases.layouts import GUARD
from gemmproof.properties.cases.operands import PlacedOperand, operands
from gemmproof.properties.cases.tensors import TORCH_DTYPES
from gemmproof.properties.cases.unread import find_unread
from gemmproof.properties.contract import ROLES
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import Observation
from gemmproof.properties.operand import READ, WRITTEN
from gemmproof.reference.arithmetic.conversions import Array, widen
from gemmproof.reference.formats import FORMATS
from gemmproof.reproduction.bug import ALWAYS, BY_CHANCE, ENDS, NEVER, Bug, Index, StatedOperand
from gemmproof.reproduction.place import Unreproducible
from gemmproof.reproduction.reduce import reduce_items
from gemmproof.reproduction.seen import Bench, SeenCall, Wrong, Zeros, round_exactly

SECONDS = 20.0  # for the search of the fewest elements
MOST_LISTED = 64  # elements of a result that a test lists
MOST_PLACED = 2**24  # elements of an operand's memory
# findings that say nothing but that values are wrong
OF_VALUES = (values.EXACT, values.BOUND, special.NAME, determinism.SAME)
COMPARED = (metamorphic.NAME, determinism.ORDER, determinism.ROWS)
OF_RESULTS = (memory.ONCE, memory.LANES, memory.RACES, determinism.SAME)

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
    if finding.property in COMPARED:
        words = "which compares several calls, expected one that a single call shows"
        raise Unreproducible(f"got a finding of {finding.property}, {words}")
    placed = operands(case, kernel, find_unread(kernel, case))
    large = [x.role.name for x in placed.values() if x.view.extent > MOST_PLACED]
    if case.is_sampled or large:
        what = f"{large[0]} of {placed[large[0]].view.extent} elements" if large else "such a c"
        raise Unreproducible(f"got {what}, expected at most {MOST_PLACED} in a test")
    data = {name: operand.data for name, operand in placed.items()}
    given = _count(placed, data)
    room = finding.property in OF_RESULTS or _is_store(finding)
    if not call:
        return _state(finding, kernel, placed, data, None, ENDS, given, room)
    state = keep_state(kernel.launch)
    nan = Bench(kernel, case, Simulator(target, seconds=seconds), state)
    zeros = Bench(kernel, case, Zeros(target, seconds=seconds), state)
    bench, shown, seen = _look(nan, zeros, finding, placed, data)
    # a stray store of a test may end its process
    room = room or any(map(_is_store, seen.judged.findings))
    until = time.monotonic() + SECONDS
    items = list(_list_items(kernel, placed, data))

    def fails(left: Sequence[Item]) -> bool | None:
        tell()
        if time.monotonic() > until:
            return None
        tried = bench.look(placed, _keep(placed, data, items, left))
        return _is_shown(tried, finding, shown)

    left: Sequence[Item] = items
    wrong = seen.wrong
    if wrong is not None and kernel.spec is None:  # only a row of a and a column of b meet there
        near = [item for item in items if _meets(item, wrong.at)]
        left = near if fails(near) else items
    left = reduce_items(left, fails)
    data = _keep(placed, data, items, left)
    return _state(finding, kernel, placed, data, bench.look(placed, data), shown, given, room)


def _look(
    nan: Bench,
    zeros: Bench,
    finding: Finding,
    placed: Mapping[str, PlacedOperand],
    data: Mapping[str, Array],
) -> tuple[Bench, str, SeenCall]:
    """Whether values show it, on which simulator, and what that saw. Raises Unreproducible."""
    with_zeros, with_nan = zeros.look(placed, data), nan.look(placed, data)
    for seen in (with_zeros, with_nan):
        raised = seen.observation.raised
        if raised is not None and not seen.observation.is_known:
            raise Unreproducible(f"got {raised.text}, expected a case that can be judged")
    if with_zeros.wrong is not None:
        return zeros, ALWAYS, with_zeros
    if with_nan.wrong is not None:
        return nan, BY_CHANCE, with_nan
    if finding.case.calls > 1:
        words = f"which takes {finding.case.calls} calls, expected one that a single call shows"
        raise Unreproducible(f"got a finding of {finding.property}, {words}")
    raised = with_nan.observation.raised
    if not with_nan.judged.findings:
        raise Unreproducible(
            "got a case that holds when it is called once, expected one that fails"
        )
    return nan, NEVER if raised is None else ENDS, with_nan


def _is_shown(seen: SeenCall, finding: Finding, shown: str) -> bool:
    """Whether what was seen is the same fault, shown by values where it was."""
    if shown in (ALWAYS, BY_CHANCE) and seen.wrong is None:
        return False
    if finding.property in OF_VALUES:
        return seen.wrong is not None or shown == NEVER
    about = (finding.property, finding.fault, finding.operand)
    return any((f.property, f.fault, f.operand) == about for f in seen.judged.findings)


def _is_store(finding: Finding) -> bool:
    return finding.message.startswith(("store", "atomic"))


def _list_items(
    kernel: KernelUnderTest, placed: Mapping[str, PlacedOperand], data: Mapping[str, Array]
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
    placed: Mapping[str, PlacedOperand],
    data: Mapping[str, Array],
    items: Sequence[Item],
    left: Sequence[Item],
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


def _state(
    finding: Finding,
    kernel: KernelUnderTest,
    placed: Mapping[str, PlacedOperand],
    data: Mapping[str, Array],
    seen: SeenCall | None,
    shown: str,
    given: int,
    room: bool,
) -> Bug:
    wrong = None if seen is None else seen.wrong
    one = None if seen is None else seen.observation
    if one is not None:
        one = one.split()[wrong.part if wrong else 0]
    names = set(kernel.values_of(finding.case)) & set(kernel.tensors)  # None for these
    chosen = {n: _write_value(x) for n, x in kernel.values_of(finding.case).items()}
    return Bug(
        finding=finding,
        operands=tuple(_place(x, data[n]) for n, x in placed.items() if n not in names),
        values=chosen,
        at=wrong.at if wrong else None,
        got=wrong.got if wrong else None,
        wanted=_list_wanted(one, wrong),
        result=wrong.part if wrong else 0,
        results=len(one.calls[0].results) if one is not None and one.calls else 1,
        written=kernel.written,
        shown=shown,
        exact=kernel.spec is None and finding.case.sums_are_exact,
        kept=_count(placed, data),
        given=given,
        tuned=_find_tuned(kernel, finding.case.config, one),
        room=room,
    )


def _list_wanted(
    one: Observation | None, wrong: Wrong | None
) -> tuple[tuple[Index, float, float], ...]:
    """What a test compares where it is not all of an exact product."""
    if one is None or not one.has_result:
        return ()
    exact = values.exact_applies(one)
    if one.kernel.spec is None and exact and one.case.sums_are_exact:
        fits = bool((np.abs(values.exact(one).astype(np.float64)) <= one.out.max).all())
        if fits and (wrong is None or wrong.allowed == 0):
            return ()
    if wrong is not None:
        return ((wrong.at, wrong.expected, wrong.allowed),)
    if exact:
        rounded = round_exactly(one)
        known = np.ones(rounded.shape, bool)
        if one.kernel.spec is not None:
            known = np.broadcast_to(values.evaluated(one).exact, rounded.shape)
        places = np.argwhere(known & np.isfinite(rounded))[:MOST_LISTED]
        return tuple((tuple(map(int, at)), float(rounded[tuple(at)]), 0.0) for at in places)
    if not values.bound_applies(one):
        return ()
    bound, want = values.error_and_bound(one)[1], values.exact(one)
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


def _count(placed: Mapping[str, PlacedOperand], data: Mapping[str, Array]) -> int:
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
