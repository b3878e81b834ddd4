"""From stray lanes to words: which rows or columns of which operand, and what the mask tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.memory import Operand, Storage, View
from gemmproof.reference.machine.observation import Fault, Where


@dataclass(slots=True)
class Event:
    """One thing seen at one access of a part; faults.py gathers them.

    `low`..`high` are the stray indices along the operand's axis; `elements` are byte offsets into
    `storage` where it matters which elements were met.
    """

    kind: str
    where: Where | None
    operand: Operand | None
    access: str
    axis: int | None
    programs: np.ndarray
    lanes: int
    got: str = ""
    expected: str = ""
    low: int = 0
    high: int = 0
    tests: str = ""
    storage: Storage | None = None
    elements: np.ndarray | None = None


def mask_axes(mask: Any, operand: Operand) -> str:
    """Which block axes a mask varies along, as far as its own shape tells: "0", "1", "01", "-".

    "-" stands for an access without a mask. An axis of length 1 is not tested by the mask.
    """
    if mask is None:
        return "-"
    return "".join(str(i) for i, n in enumerate(mask.shape) if n > 1)


def stray_events(
    access: str,
    operand: Operand | None,
    address: np.ndarray,
    stray: np.ndarray,
    size: int,
    tests: str,
    programs: np.ndarray,
) -> list[Event]:
    """Events for the stray lanes (programs, *block) of one access, one event an axis to blame."""
    where = execution.where()
    rows = stray.reshape(len(stray), -1)
    hit = programs if len(rows) == 1 else programs[rows.any(axis=1)]

    def event(axis: int | None, low: int, high: int, words: str, lanes: int) -> Event:
        return Event(
            kind="out_of_bounds",
            where=where,
            operand=operand,
            access=access,
            axis=axis,
            programs=hit,
            lanes=lanes,
            low=low,
            high=high,
            tests=words,
        )

    if operand is None:
        return [event(None, 0, 0, "", int(stray.sum()))]
    offset = (address - operand.view.start) // size
    indices, block_axes = logical_indices(offset, operand.view)
    if indices is None:
        low, high = int(offset[stray].min()), int(offset[stray].max())
        return [event(None, low, high, "", int(stray.sum()))]
    words = _tested(tests, block_axes, operand)
    beyond = [
        stray & ((i < 0) | (i >= n)) for i, n in zip(indices, operand.view.shape, strict=True)
    ]
    events = []
    for axis, lanes in enumerate(beyond):
        others = [b for k, b in enumerate(beyond) if k != axis]
        alone = lanes & ~np.logical_or.reduce(others) if others else lanes
        if alone.any():
            i = indices[axis][lanes]
            events.append(event(axis, int(i.min()), int(i.max()), words, int(lanes.sum())))
    if not events:
        axis = next((k for k, b in enumerate(beyond) if b.any()), None)
        if axis is None:
            low, high = int(offset[stray].min()), int(offset[stray].max())
            return [event(None, low, high, words, int(stray.sum()))]
        i = indices[axis][beyond[axis]]
        events.append(event(axis, int(i.min()), int(i.max()), words, int(stray.sum())))
    return events


def logical_indices(
    offset: np.ndarray, view: View
) -> tuple[list[np.ndarray] | None, dict[int, int]]:
    """The index of every lane along every axis of the view, also beyond its shape.

    `offset` (programs, *block) counts elements from the view's first one. A lane's address alone
    cannot tell (row 0, column K) from (row 1, column 0) of a dense view, so the steps along the
    block's axes are matched with the view's strides: a block axis that steps by one stride walks
    along that axis. Returns (None, {}) where the steps match no strides. The second result maps
    block axes to view axes.
    """
    axes = [k for k, n in enumerate(view.shape)]
    strides = view.strides
    taken: dict[int, int] = {}
    block = offset.ndim - 1
    for d in range(block):
        if offset.shape[d + 1] < 2:
            continue
        step = np.diff(offset, axis=d + 1)
        values, counts = np.unique(step, return_counts=True)
        common = int(values[np.argmax(counts)])
        free = [k for k in axes if k not in taken.values() and strides[k] == common]
        if free:
            # equal strides (a side of length 1): prefer the axis in the block's own order
            taken[d] = min(free, key=lambda k: abs(k - (d + len(axes) - block)))
    corner = offset[(slice(None),) + (slice(0, 1),) * block]
    base = _decode(corner, view)
    if base is None:
        return None, {}
    indices = []
    explained = corner + np.zeros_like(offset)
    for k in axes:
        index = base[k] + np.zeros_like(offset)
        for d, axis in taken.items():
            if axis == k:
                first = np.take(offset, [0], axis=d + 1)
                line = offset - first
                index = index + (line // strides[k] if strides[k] else 0)
                explained = explained + line
        indices.append(index)
    if not np.array_equal(explained, offset):
        plain = _decode(offset, view)
        return plain, {}
    return indices, taken


def _decode(offset: np.ndarray, view: View) -> list[np.ndarray] | None:
    """Indices by dividing the strides out, largest first; the largest axis takes the excess."""
    order = sorted(
        (k for k in range(len(view.shape)) if view.strides[k] > 0 and view.shape[k] > 0),
        key=lambda k: (view.strides[k], view.shape[k] > 1),
        reverse=True,
    )
    indices = [np.zeros_like(offset) for _ in view.shape]
    rest = offset
    for k in order:
        if view.shape[k] == 1 and k is not order[0]:
            continue
        indices[k], rest = np.divmod(rest, view.strides[k])
    return indices if order else None


def _tested(tests: str, block_axes: dict[int, int], operand: Operand) -> str:
    if tests == "-":
        return "there is no mask"
    names = [
        operand.axes[block_axes[int(d)]].lower() for d in tests if int(d) in block_axes
    ]
    if len(names) != len(tests):
        return ""
    if not names:
        return "the mask tests neither axis"
    return f"the mask tests {names[0]} only" if len(names) == 1 else (
        f"the mask tests {' and '.join(names)}"
    )


# -- gathering -----------------------------------------------------------------------------------
_VERB = {"load": "read", "store": "written", "atomic": "updated"}


def gather(kernel: str, events: list[Event]) -> list[Fault]:
    """Join the events of one call that say the same of the same line, operand and axis."""
    groups: dict[Any, list[Event]] = {}
    for e in events:
        key = (e.kind, e.where, id(e.operand), e.access, e.axis)
        groups.setdefault(key, []).append(e)
    return [_fault(kernel, group) for group in groups.values()]


def _fault(kernel: str, group: list[Event]) -> Fault:
    e = group[0]
    programs = len(np.unique(np.concatenate([g.programs for g in group])))
    lanes = sum(g.lanes for g in group)
    operand = e.operand
    axis = operand.axes[e.axis] if operand is not None and e.axis is not None else None
    got, expected = e.got, e.expected
    if e.kind == "out_of_bounds":
        got, expected = _bounds_words(group, programs)
    elif e.kind == "undefined_used":
        got, expected = f"{e.access} decided by a lane that nothing defined", "a defined lane"
    return Fault(
        kind=e.kind,
        kernel=kernel,
        access=e.access,
        operand=operand.name if operand is not None else "",
        axis=axis,
        where=e.where or Where("", 0, ""),
        got=got,
        expected=expected,
        programs=programs,
        lanes=lanes,
    )


def _bounds_words(group: list[Event], programs: int) -> tuple[str, str]:
    e = group[0]
    by = f"{_VERB[e.access]} by {programs} program{'s' if programs != 1 else ''}"
    low, high = min(g.low for g in group), max(g.high for g in group)
    if e.operand is None:
        return f"an address outside every tensor is {by}", "an address of an operand"
    name, view = e.operand.name, e.operand.view
    if e.axis is None:
        return (
            f"elements {low}..{high} from the start of {name} are {by}",
            f"elements of its view {list(view.shape)} with strides {list(view.strides)}",
        )
    words = {0: "rows", 1: "columns"} if len(view.shape) == 2 else {}
    what = words.get(e.axis, f"indices along axis {e.axis}")
    n = view.shape[e.axis]
    label = e.operand.axes[e.axis]
    label = label if label.isalpha() else f"size {label}"
    span = f"{what[:-1] if words and low == high else what} {low}" + (
        f"..{high}" if high != low else ""
    )
    verb = "is" if low == high and words else "are"
    tests = {g.tests for g in group}
    tail = f"; {tests.pop()}" if len(tests) == 1 and e.tests else ""
    return f"{span} of {name} ({label}={n}) {verb} {by}{tail}", f"{what} 0..{n - 1}"
