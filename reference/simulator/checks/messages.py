"""Violations of a launch, and their messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.provenance import format_count
from gemmproof.reference.simulation import NOWHERE, Fault, Where
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.memory import Argument, Storage, StridedView

# -- boxes of elements ---------------------------------------------------------------------------
BLOCK_POINTER, DESCRIPTOR = "block pointer", "tensor descriptor"


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A block that an access goes through, at `offsets` of a parent with `shape` and `strides`.

    Each part has an integer for every axis, an array over the programs or 1 long. `checked` are the
    axes along which lanes beyond the shape are masked off.
    """

    kind: str
    block: tuple[int, ...]
    offsets: tuple[np.ndarray, ...]
    shape: tuple[np.ndarray, ...]
    strides: tuple[np.ndarray, ...]
    checked: tuple[int, ...]

    def describe(self, row: int, operand: Argument) -> str:
        """Describe how lanes of the program in that row of the group leave the operand."""
        offsets, shape, strides = (
            [int(part[row if len(part) > 1 else 0]) for part in parts]
            for parts in (self.offsets, self.shape, self.strides)
        )
        text = f"{self.kind} of block {list(self.block)} at offsets {offsets}"
        text += f" of shape {shape} with strides {strides}"
        sides = zip(offsets, self.block, shape, strict=True)
        beyond = [d for d, (low, n, side) in enumerate(sides) if low < 0 or low + n > side]
        if missing := [d for d in beyond if d not in self.checked]:
            axes = f"ax{'e' if len(missing) > 1 else 'i'}s {' and '.join(map(str, missing))}"
            return f"{text}; its boundary_check lacks {axes}"
        view = operand.view
        own = f"{list(view.shape)} with strides {list(view.strides)}"
        return f"{text}, where {operand.shown} has {own}"


@contextmanager
def through(box: Box) -> Iterator[None]:
    """Send the accesses of the running launch through a box within the context."""
    launch = session.current()
    launch.box = box
    try:
        yield
    finally:
        launch.box = None


# -- violations ----------------------------------------------------------------------------------
@dataclass(slots=True)
class Violation:
    """A violation at one access of some programs.

    `low`..`high` are the out-of-bounds indices along the operand's axis; with `between`, lanes step
    by `low` along an axis of stride `high` instead. `tests` are the axes its mask varies along
    (None: there is no mask, or its axes are unclear), `box` the description of a block pointer or
    descriptor that it goes through. `elements` are byte offsets into `storage` if it matters which
    elements were hit, `bits` the poison stored there.
    """

    kind: str
    access: str
    programs: np.ndarray
    lanes: int
    where: Where | None
    operand: Argument | None = None
    axis: int | None = None
    got: str = ""
    expected: str = ""
    low: int = 0
    high: int = 0
    masked: bool = True
    tests: tuple[int, ...] | None = None
    between: bool = False
    box: str = ""
    storage: Storage | None = None
    elements: np.ndarray | None = None
    bits: np.ndarray | None = None


def note(kind: str, access: str, programs: np.ndarray, lanes: int, **more: Any) -> None:
    """Record a violation of the running launch, on the current line unless `where` is given."""
    where = more.pop("where", session.where())
    session.current().violations.append(Violation(kind, access, programs, lanes, where, **more))


def note_lanes(kind: str, access: str, marked: np.ndarray, **more: Any) -> None:
    """Record a violation of the marked lanes (programs or 1, *block)."""
    note(kind, access, programs_of(marked), int((marked != 0).sum()), **more)


def count_programs(violations: list[Violation]) -> int:
    """Return the number of programs that the violations involve."""
    return len(np.unique(np.concatenate([s.programs for s in violations])))


def programs_of(marked: np.ndarray) -> np.ndarray:
    """Return the running programs that have a marked lane (programs or 1, *block)."""
    programs = session.current().programs
    if len(marked) == 1:
        return programs
    return programs[(marked != 0).reshape(len(marked), -1).any(axis=1)]


# -- messages ------------------------------------------------------------------------------------
def mask_axes(mask: Any) -> tuple[int, ...] | None:
    """Return the block axes along which a mask has more than one lane; None without a mask."""
    return None if mask is None else tuple(i for i, n in enumerate(mask.data.shape[1:]) if n > 1)


def beyond_view(
    operand: Argument, address: np.ndarray, lanes: np.ndarray, size: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each axis with those of `lanes` that lie beyond it and beyond no later axis."""
    indices, _ = logical_indices((address - operand.view.start) // size, operand.view)
    if indices is None:
        return
    rest = lanes
    for axis in reversed(range(len(indices))):
        index, n = indices[axis], operand.view.shape[axis]
        outside = rest & ((index < 0) | (index >= n))
        if outside.any():
            yield axis, outside
            rest = rest & ~outside


def note_stray_lanes(
    access: str,
    operand: Argument | None,
    address: np.ndarray,
    outside: np.ndarray,
    size: int,
    tests: tuple[int, ...] | None,
) -> None:
    """Record the out-of-bounds lanes (programs, *block) of one access, one violation per axis.

    `tests` are the block axes that the access's mask varies along, None if it has no mask.
    """
    hit = programs_of(outside)
    tested: tuple[int, ...] | None = None
    box = session.current().box
    row = int(outside.reshape(len(outside), -1).any(axis=1).argmax())
    through = "" if box is None or operand is None else box.describe(row, operand)

    def report(lanes: int, axis: int | None = None, **more: Any) -> None:
        facts = {"operand": operand, "axis": axis, "masked": tests is not None, "tests": tested}
        more = {**facts, "box": through, **more}
        note("out_of_bounds", access, hit, lanes, **more)

    count = int(outside.sum())
    if operand is None:
        return report(count)
    address = np.broadcast_to(address, outside.shape)
    offset = (address - operand.view.start) // size
    indices, block_axes = logical_indices(offset, operand.view)
    if tests is not None and all(d in block_axes for d in tests):
        tested = tuple(block_axes[d] for d in tests)
    beyond = [
        outside & ((i < 0) | (i >= n))
        for i, n in zip(indices or [], operand.view.shape, strict=False)
    ]
    alone = np.sum(beyond, axis=0) == 1  # lanes beyond one axis only: it is reported
    axes = [k for k, lanes in enumerate(beyond) if (lanes & alone).any()]
    axes = axes or [k for k, lanes in enumerate(beyond) if lanes.any()][:1]
    if indices is None or not axes:
        axis, step = _missed_stride(offset, operand.view)
        if axis is not None:
            stride = operand.view.strides[axis]
            return report(count, axis, low=step, high=stride, between=True)
        # a wrapper may pass other views; only the caller's view may be accessed
        own = (address - _own_view(operand).start) // size
        return report(count, low=int(own[outside].min()), high=int(own[outside].max()))
    for axis in axes:
        index = indices[axis][beyond[axis]]
        report(index.size, axis, low=int(index.min()), high=int(index.max()))
    return None


def _own_view(operand: Argument) -> StridedView:
    """Return the view of the operand that the caller of the wrapper passed."""
    views = operand.storage.views
    return operand.view if not views or operand.view in views else views[0]


def logical_indices(
    offset: np.ndarray, view: StridedView
) -> tuple[list[np.ndarray] | None, dict[int, int]]:
    """Return the index of every lane along every axis of the view, also beyond its shape.

    `offset` (programs, *block) counts elements from the view's first one. A lane's address alone
    cannot distinguish (row 0, column K) from (row 1, column 0) of a dense view, so the steps along
    the block's axes are matched with the view's strides: a block axis that steps by one stride
    walks along that axis. Returns (None, {}) if the steps match no strides. The second result maps
    block axes to view axes.
    """
    axes = _block_axes(offset, view)
    block = offset.ndim - 1
    corner = offset[(slice(None),) + (slice(0, 1),) * block]
    base = _decode(corner, view)
    if base is None:
        return None, {}
    explained = corner + np.zeros_like(offset)
    indices = [b + np.zeros_like(offset) for b in base]
    for d, axis in axes.items():
        line = offset - np.take(offset, [0], axis=d + 1)
        explained = explained + line
        if view.strides[axis]:
            indices[axis] = indices[axis] + line // view.strides[axis]
    if not np.array_equal(explained, offset):
        return _decode(offset, view), {}
    return indices, axes


def _block_axes(offset: np.ndarray, view: StridedView) -> dict[int, int]:
    """Map block axes to view axes, by the most common step between neighbouring lanes."""
    axes: dict[int, int] = {}
    block, rank = offset.ndim - 1, len(view.shape)
    for d in range(block):
        if offset.shape[d + 1] < 2:
            continue
        common = _common_step(offset, d)
        free = [k for k in range(rank) if k not in axes.values() and view.strides[k] == common]
        if free:  # equal strides (a side of length 1): prefer the axis in the block's own order
            axes[d] = min(free, key=lambda k: abs(k - (d + rank - block)))
    return axes


def _common_step(offset: np.ndarray, d: int) -> int:
    values, counts = np.unique(np.diff(offset, axis=d + 1), return_counts=True)
    return int(values[np.argmax(counts)])


def _missed_stride(offset: np.ndarray, view: StridedView) -> tuple[int | None, int]:
    """Return the one axis whose stride no block axis follows, and the step in its place."""
    axes = _block_axes(offset, view)
    free = [d for d in range(offset.ndim - 1) if offset.shape[d + 1] > 1 and d not in axes]
    steps = [_common_step(offset, d) for d in free]
    left = [k for k, n in enumerate(view.shape) if n > 1 and k not in axes.values()]
    return (left[0], steps[0]) if len(left) == 1 == len(steps) else (None, 0)


def _decode(offset: np.ndarray, view: StridedView) -> list[np.ndarray] | None:
    """Divide the strides out, largest first; the axis of the largest takes the excess."""
    order = sorted(
        (k for k in range(len(view.shape)) if view.strides[k] > 0 and view.shape[k] > 0),
        key=lambda k: (view.strides[k], view.shape[k] > 1),
        reverse=True,
    )
    indices = [np.zeros_like(offset) for _ in view.shape]
    rest = offset
    for k in order:
        if view.shape[k] > 1 or k == order[0]:
            indices[k], rest = np.divmod(rest, view.strides[k])
    return indices if order else None


# -- gathering -----------------------------------------------------------------------------------
_VERB = {"load": "read", "store": "written", "atomic": "updated"}


def gather(kernel: str, violations: list[Violation]) -> list[Fault]:
    """Merge the violations of one call that agree in kind, line, operand, access and axis."""
    groups: dict[Any, list[Violation]] = {}
    for s in violations:
        groups.setdefault((s.kind, s.where, id(s.operand), s.access, s.axis), []).append(s)
    return [_fault(kernel, group) for group in groups.values()]


def _fault(kernel: str, group: list[Violation]) -> Fault:
    s = group[0]
    programs = count_programs(group)
    got, expected = s.got, s.expected
    if s.kind == "out_of_bounds":
        got, expected = _format_bounds(group, programs)
    elif s.kind == "undefined_used":
        got, expected = f"{s.access} that depends on an undefined lane", "defined lanes only"
    return Fault(
        kind=s.kind,
        kernel=kernel,
        access=s.access,
        operand=s.operand.name if s.operand is not None else "",
        axis=s.operand.axes[s.axis] if s.operand is not None and s.axis is not None else None,
        where=s.where or NOWHERE,
        got=got,
        expected=expected,
        programs=programs,
        lanes=sum(g.lanes for g in group),
    )


def _format_bounds(group: list[Violation], programs: int) -> tuple[str, str]:
    """Return both halves of a message on lanes out of bounds, all of one operand and axis."""
    s = group[0]
    by = f"{_VERB[s.access]} by {format_count(programs, 'program')}"
    if s.operand is None:
        return f"an address outside every tensor is {by}", "an address of an operand"
    low, high = min(g.low for g in group), max(g.high for g in group)
    name, view = s.operand.shown, s.operand.view
    if s.axis is None:
        offsets = f"offset {low}" if low == high else f"offsets {low}..{high}"
        view = _own_view(s.operand)
        what = f"{list(view.shape)} with strides {list(view.strides)}"
        outside = f"lanes at {offsets} from the first element of {name}, outside its view of {what}"
        return f"{outside}, are {by}{_format_box(s)}", f"elements of its view {what}"
    singular, plural = _axis_nouns(s.axis, len(view.shape))
    if s.between:
        return (
            f"memory between the {plural} of {name}, in steps of {s.low}, is {by}{_format_box(s)}",
            f"steps of {s.high}, the stride of its {plural}",
        )
    n = view.shape[s.axis]
    label = s.operand.axes[s.axis]
    size = f"{n} {singular if n == 1 else plural}" if label.isdigit() else f"{_equals(label)}{n}"
    what = label_range(s.axis, len(view.shape), low, high)
    tests = {(g.masked, g.tests) for g in group}
    tail = _format_mask(s, *tests.pop()) if len(tests) == 1 else ""
    tail = _format_box(s) or tail
    allowed = f"{plural} 0..{n - 1}" if n > 1 else (f"{singular} 0" if n else f"no {singular}")
    return f"{what} of {name} ({size}) {'is' if low == high else 'are'} {by}{tail}", allowed


def _equals(label: str) -> str:
    return f"{label}=" if label.isalpha() else f"{label} = "


def _axis_nouns(axis: int, rank: int) -> tuple[str, str]:
    """Return the noun for an index along an axis, singular and plural."""
    if rank == 1:
        return "element", "elements"
    from_end = rank - 1 - axis
    return {0: ("column", "columns"), 1: ("row", "rows")}.get(from_end, ("batch", "batches"))


def label_range(axis: int, rank: int, low: int, high: int) -> str:
    """Format indices along an axis: "row 3", "columns 16..31"."""
    singular, plural = _axis_nouns(axis, rank)
    return f"{singular} {low}" if low == high else f"{plural} {low}..{high}"


def _format_box(s: Violation) -> str:
    return f" through a {s.box}" if s.box else ""


def _format_mask(s: Violation, masked: bool, tests: tuple[int, ...] | None) -> str:
    if not masked:
        return "; there is no mask"
    if tests is None or s.operand is None:
        return ""
    if len(s.operand.axes) == 1:  # the mask can test this axis only, if by another's bound
        return "; the mask admits that"
    names = [s.operand.axes[k] for k in tests]
    labels = [n.lower() if n.isalpha() else f"axis {n}" if n.isdigit() else n for n in names]
    if not labels:
        return "; the mask tests neither axis"
    return f"; the mask tests {' and '.join(labels)}{' only' if len(labels) == 1 else ''}"
