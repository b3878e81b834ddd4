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
    """What an access goes through: a block at `offsets` of a parent with `shape` and `strides`.

    Each part is an integer for every axis, an array over the programs or 1 long. `checked` are the
    axes along which lanes beyond the shape are left out.
    """

    kind: str
    block: tuple[int, ...]
    offsets: tuple[np.ndarray, ...]
    shape: tuple[np.ndarray, ...]
    strides: tuple[np.ndarray, ...]
    checked: tuple[int, ...]

    def describe(self, row: int, operand: Argument) -> str:
        """How lanes of the program in that row of the group leave the operand."""
        offsets, shape, strides = (
            [int(part[row if len(part) > 1 else 0]) for part in parts]
            for parts in (self.offsets, self.shape, self.strides)
        )
        words = f"{self.kind} of block {list(self.block)} at offsets {offsets}"
        words += f" of shape {shape} with strides {strides}"
        sides = zip(offsets, self.block, shape, strict=True)
        beyond = [d for d, (low, n, side) in enumerate(sides) if low < 0 or low + n > side]
        if missing := [d for d in beyond if d not in self.checked]:
            axes = f"ax{'e' if len(missing) > 1 else 'i'}s {' and '.join(map(str, missing))}"
            return f"{words}; its boundary_check lacks {axes}"
        view = operand.view
        own = f"{list(view.shape)} with strides {list(view.strides)}"
        return f"{words}, where {operand.shown} has {own}"


@contextmanager
def through(box: Box) -> Iterator[None]:
    """The accesses of the running launch go through a box meanwhile."""
    launch = session.current()
    launch.box = box
    try:
        yield
    finally:
        launch.box = None


# -- sightings -----------------------------------------------------------------------------------
@dataclass(slots=True)
class Violation:
    """One thing seen at one access of some programs.

    `low`..`high` are the stray indices along the operand's axis; `between` says that lanes step by
    `low` along an axis of stride `high` instead. `tests` are the axes its mask varies along (None:
    there is no mask, or its axes are unclear), `box` the words for a block pointer or descriptor
    that it goes through. `elements` are byte offsets into `storage` where it
    matters which elements were hit, `bits` the poison stored there.
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
    """Note a sighting of the running launch, on the line that runs where no other is given."""
    where = more.pop("where", session.where())
    session.current().sightings.append(Violation(kind, access, programs, lanes, where, **more))


def note_lanes(kind: str, access: str, marked: np.ndarray, **more: Any) -> None:
    """Note a sighting of the marked lanes (programs or 1, *block)."""
    note(kind, access, programs_of(marked), int((marked != 0).sum()), **more)


def count_programs(sightings: list[Violation]) -> int:
    """How many programs the sightings involve."""
    return len(np.unique(np.concatenate([s.programs for s in sightings])))


def programs_of(marked: np.ndarray) -> np.ndarray:
    """Ids of the running programs that have a marked lane (programs or 1, *block)."""
    programs = session.current().programs
    if len(marked) == 1:
        return programs
    return programs[(marked != 0).reshape(len(marked), -1).any(axis=1)]


# -- messages ------------------------------------------------------------------------------------
def mask_axes(mask: Any) -> tuple[int, ...] | None:
    """The block axes along which a mask has more than one lane; None without a mask."""
    return None if mask is None else tuple(i for i, n in enumerate(mask.data.shape[1:]) if n > 1)


def beyond_view(
    operand: Argument, address: np.ndarray, lanes: np.ndarray, size: int
) -> Iterator[tuple[int, np.ndarray]]:
    """For each axis of the operand, those of `lanes` that lie beyond it and beyond no later one."""
    indices, _ = logical_indices((address - operand.view.start) // size, operand.view)
    if indices is None:
        return
    rest = lanes
    for axis in reversed(range(len(indices))):
        index, n = indices[axis], operand.view.shape[axis]
        found = rest & ((index < 0) | (index >= n))
        if found.any():
            yield axis, found
            rest = rest & ~found


def note_stray_lanes(
    access: str,
    operand: Argument | None,
    address: np.ndarray,
    stray: np.ndarray,
    size: int,
    tests: tuple[int, ...] | None,
) -> None:
    """Note the stray lanes (programs, *block) of one access, one sighting an axis to blame.

    `tests` are the block axes that the access's mask varies along, None if it has no mask.
    """
    hit = programs_of(stray)
    tested: tuple[int, ...] | None = None
    box = session.current().box
    row = int(stray.reshape(len(stray), -1).any(axis=1).argmax())
    through = "" if box is None or operand is None else box.describe(row, operand)

    def note_stray(lanes: int, axis: int | None = None, **more: Any) -> None:
        facts = {"operand": operand, "axis": axis, "masked": tests is not None, "tests": tested}
        more = {**facts, "box": through, **more}
        note("out_of_bounds", access, hit, lanes, **more)

    count = int(stray.sum())
    if operand is None:
        return note_stray(count)
    address = np.broadcast_to(address, stray.shape)
    offset = (address - operand.view.start) // size
    indices, block_axes = logical_indices(offset, operand.view)
    if tests is not None and all(d in block_axes for d in tests):
        tested = tuple(block_axes[d] for d in tests)
    beyond = [
        stray & ((i < 0) | (i >= n))
        for i, n in zip(indices or [], operand.view.shape, strict=False)
    ]
    alone = np.sum(beyond, axis=0) == 1  # lanes beyond one axis only: it is to blame
    blamed = [k for k, lanes in enumerate(beyond) if (lanes & alone).any()]
    blamed = blamed or [k for k, lanes in enumerate(beyond) if lanes.any()][:1]
    if indices is None or not blamed:
        axis, step = _missed_stride(offset, operand.view)
        if axis is not None:
            stride = operand.view.strides[axis]
            return note_stray(count, axis, low=step, high=stride, between=True)
        # a wrapper may pass other views; what the caller gave is what may be touched
        own = (address - _own_view(operand).start) // size
        return note_stray(count, low=int(own[stray].min()), high=int(own[stray].max()))
    for axis in blamed:
        index = indices[axis][beyond[axis]]
        note_stray(index.size, axis, low=int(index.min()), high=int(index.max()))
    return None


def _own_view(operand: Argument) -> StridedView:
    """The view that the caller of the wrapper knows the operand by."""
    views = operand.storage.views
    return operand.view if not views or operand.view in views else views[0]


def logical_indices(
    offset: np.ndarray, view: StridedView
) -> tuple[list[np.ndarray] | None, dict[int, int]]:
    """The index of every lane along every axis of the view, also beyond its shape.

    `offset` (programs, *block) counts elements from the view's first one. A lane's address alone
    cannot tell (row 0, column K) from (row 1, column 0) of a dense view, so the steps along the
    block's axes are matched with the view's strides: a block axis that steps by one stride walks
    along that axis. Returns (None, {}) where the steps match no strides. The second result maps
    block axes to view axes.
    """
    taken = _block_axes(offset, view)
    block = offset.ndim - 1
    corner = offset[(slice(None),) + (slice(0, 1),) * block]
    base = _decode(corner, view)
    if base is None:
        return None, {}
    explained = corner + np.zeros_like(offset)
    indices = [b + np.zeros_like(offset) for b in base]
    for d, axis in taken.items():
        line = offset - np.take(offset, [0], axis=d + 1)
        explained = explained + line
        if view.strides[axis]:
            indices[axis] = indices[axis] + line // view.strides[axis]
    if not np.array_equal(explained, offset):
        return _decode(offset, view), {}
    return indices, taken


def _block_axes(offset: np.ndarray, view: StridedView) -> dict[int, int]:
    """Block axis to view axis, by the step that most neighbouring lanes are apart."""
    taken: dict[int, int] = {}
    block, rank = offset.ndim - 1, len(view.shape)
    for d in range(block):
        if offset.shape[d + 1] < 2:
            continue
        common = _common_step(offset, d)
        free = [k for k in range(rank) if k not in taken.values() and view.strides[k] == common]
        if free:  # equal strides (a side of length 1): prefer the axis in the block's own order
            taken[d] = min(free, key=lambda k: abs(k - (d + rank - block)))
    return taken


def _common_step(offset: np.ndarray, d: int) -> int:
    values, counts = np.unique(np.diff(offset, axis=d + 1), return_counts=True)
    return int(values[np.argmax(counts)])


def _missed_stride(offset: np.ndarray, view: StridedView) -> tuple[int | None, int]:
    """The one axis whose stride no block axis keeps, and the step taken in its place."""
    taken = _block_axes(offset, view)
    free = [d for d in range(offset.ndim - 1) if offset.shape[d + 1] > 1 and d not in taken]
    steps = [_common_step(offset, d) for d in free]
    left = [k for k, n in enumerate(view.shape) if n > 1 and k not in taken.values()]
    return (left[0], steps[0]) if len(left) == 1 == len(steps) else (None, 0)


def _decode(offset: np.ndarray, view: StridedView) -> list[np.ndarray] | None:
    """Indices by dividing the strides out, largest first; the largest axis takes the excess."""
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


def gather(kernel: str, sightings: list[Violation]) -> list[Fault]:
    """Join the sightings of one call that say the same of the same line, operand and axis."""
    groups: dict[Any, list[Violation]] = {}
    for s in sightings:
        groups.setdefault((s.kind, s.where, id(s.operand), s.access, s.axis), []).append(s)
    return [_fault(kernel, group) for group in groups.values()]


def _fault(kernel: str, group: list[Violation]) -> Fault:
    s = group[0]
    programs = count_programs(group)
    got, expected = s.got, s.expected
    if s.kind == "out_of_bounds":
        got, expected = _bounds_words(group, programs)
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


def _bounds_words(group: list[Violation], programs: int) -> tuple[str, str]:
    """Both halves of a message on lanes out of bounds, all of one operand and axis."""
    s = group[0]
    by = f"{_VERB[s.access]} by {format_count(programs, 'program')}"
    if s.operand is None:
        return f"an address outside every tensor is {by}", "an address of an operand"
    low, high = min(g.low for g in group), max(g.high for g in group)
    name, view = s.operand.shown, s.operand.view
    if s.axis is None:
        place = f"offset {low}" if low == high else f"offsets {low}..{high}"
        view = _own_view(s.operand)
        what = f"{list(view.shape)} with strides {list(view.strides)}"
        outside = f"lanes at {place} from the first element of {name}, outside its view of {what}"
        return f"{outside}, are {by}{_box_words(s)}", f"elements of its view {what}"
    one, many = _axis_words(s.axis, len(view.shape))
    if s.between:
        return (
            f"memory between the {many} of {name}, in steps of {s.low}, is {by}{_box_words(s)}",
            f"steps of {s.high}, the stride of its {many}",
        )
    n = view.shape[s.axis]
    label = s.operand.axes[s.axis]
    size = f"{n} {one if n == 1 else many}" if label.isdigit() else f"{_equals(label)}{n}"
    what = label_range(s.axis, len(view.shape), low, high)
    tests = {(g.masked, g.tests) for g in group}
    tail = _mask_words(s, *tests.pop()) if len(tests) == 1 else ""
    tail = _box_words(s) or tail
    allowed = f"{many} 0..{n - 1}" if n > 1 else (f"{one} 0" if n else f"no {one}")
    return f"{what} of {name} ({size}) {'is' if low == high else 'are'} {by}{tail}", allowed


def _equals(label: str) -> str:
    return f"{label}=" if label.isalpha() else f"{label} = "


def _axis_words(axis: int, rank: int) -> tuple[str, str]:
    """What an index along an axis is called: one of them, several of them."""
    if rank == 1:
        return "element", "elements"
    from_end = rank - 1 - axis
    return {0: ("column", "columns"), 1: ("row", "rows")}.get(from_end, ("batch", "batches"))


def label_range(axis: int, rank: int, low: int, high: int) -> str:
    """Indices along an axis in words: "row 3", "columns 16..31"."""
    one, many = _axis_words(axis, rank)
    return f"{one} {low}" if low == high else f"{many} {low}..{high}"


def _box_words(s: Violation) -> str:
    return f" through a {s.box}" if s.box else ""


def _mask_words(s: Violation, masked: bool, tests: tuple[int, ...] | None) -> str:
    if not masked:
        return "; there is no mask"
    if tests is None or s.operand is None:
        return ""
    if len(s.operand.axes) == 1:  # whose mask can test one axis alone, though by another's bound
        return "; the mask admits that"
    names = [s.operand.axes[k] for k in tests]
    words = [n.lower() if n.isalpha() else f"axis {n}" if n.isdigit() else n for n in names]
    if not words:
        return "; the mask tests neither axis"
    return f"; the mask tests {' and '.join(words)}{' only' if len(words) == 1 else ''}"
