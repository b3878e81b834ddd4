"""In a worker: what of a case shows its fault, with the fewest elements that are not zero."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.wrapper_state import keep_state
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import PlacedOperand, find_unread, operands
from gemmproof.properties.contract import ROLES
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import (
    determinism,
    exact_values,
    memory_use,
    metamorphic,
)
from gemmproof.properties.kernel import READ, KernelUnderTest
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.work import counted_seconds
from gemmproof.reproduction.bug import ALWAYS, BY_CHANCE, ENDS, NEVER, Bug, Index
from gemmproof.reproduction.calls import ALONE, Before, list_series
from gemmproof.reproduction.place import Unreproducible
from gemmproof.reproduction.reduce import reduce_items
from gemmproof.reproduction.seen import Bench, SeenCall, Zeros
from gemmproof.reproduction.state import count, state

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


def _require_small(case: Case, placed: Mapping[str, PlacedOperand]) -> None:
    """Raise Unreproducible for what is too large for a test."""
    large = [x.role.name for x in placed.values() if x.view.extent > MOST_PLACED]
    if case.is_sampled or large:
        what = f"{large[0]} of {placed[large[0]].view.extent} elements" if large else "such a c"
        raise Unreproducible(f"got {what}, expected at most {MOST_PLACED} in a test")


def _look(
    nan: Bench,
    zeros: Bench,
    finding: Finding,
    placed: Mapping[str, PlacedOperand],
    data: Mapping[str, Array],
) -> tuple[Bench, str, SeenCall] | None:
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
    placed: Mapping[str, PlacedOperand],
    data: Mapping[str, Array],
    tell: Callable[[], None],
) -> tuple[Bench, str, SeenCall]:
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


def _require_known(seen: SeenCall) -> None:
    raised = seen.observation.raised
    if raised is not None and not seen.observation.is_known:
        raise Unreproducible(f"got {raised.text}, expected a case that can be judged")


def _is_shown(seen: SeenCall, finding: Finding, shown: str, bench: Bench) -> bool:
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


def _is_among(finding: Finding, seen: SeenCall) -> bool:
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
