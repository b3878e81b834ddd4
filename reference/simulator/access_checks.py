"""The lanes that may access memory, the violations of others, and their messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import triton

from gemmproof.reference.provenance import format_count
from gemmproof.reference.simulation import NOWHERE, Fault, Where
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.axis_analysis import Vectors
from gemmproof.reference.simulator.memory import Argument, Region, Storage, StridedView
from gemmproof.reference.simulator.session import Enough
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir import I8, Dtype

_TRITON = str(Path(triton.__file__).parent)

# Descriptions of undefined lanes.
STRAY = "out-of-bounds lanes of {}"
MASKED = "lanes of {} that the load's mask disables, with no `other`"
UNPADDED = "lanes of {} that boundary_check leaves out, with no `padding_option`"
UNWRITTEN = "uninitialised elements of {}"
UNKNOWN = "elements of {} that programs which do not run may store"


@dataclass(slots=True)
class Lanes:
    """The lanes of one access that fall into one storage.

    `index` (programs or 1, *block) counts elements of the storage and is safe to use everywhere;
    `good` are the lanes to perform, None for all of them.
    """

    storage: Storage
    index: np.ndarray
    good: np.ndarray | None


@dataclass(frozen=True, slots=True)
class RawTouch:
    """One access of all programs of a group, as the trace records it, and its line."""

    kind: str
    operand: Argument
    offsets: np.ndarray
    mask: np.ndarray | None
    other: float | None
    programs: np.ndarray
    where: Where | None


def check_defined(value: Value, what: str) -> None:
    """Record an undefined lane that decides `what`. Raises Enough in a sampled call."""
    if value.poison is not None and (value.poison & ~session.hint_bits()).any():
        if session.current().session.sampled:
            raise Enough
        note_lanes("undefined_used", what, value.poison)


def check_counter(dtype: Dtype, unsigned: bool, first: Value, step: Value, turns: Value) -> None:
    """Record programs whose loop counter wraps before it passes the end of the range.

    The counter is compared with the end after the last step, too; a wrapped one is below the end,
    and the loop goes on. Only the turns before that are run.
    """
    # float64 is exact up to 2**53, and the limits of 64 bits are far from a counter that fits
    after = first.data.astype(np.float64) + turns.data.astype(np.float64) * step.data
    limit = 2.0 ** (dtype.bits if unsigned else dtype.bits - 1)
    wrapped = (turns.data > 0) & (after >= limit)
    if wrapped.any():
        number, count = (
            int(np.broadcast_to(x, wrapped.shape)[wrapped][0]) for x in (after, turns.data)
        )
        note_lanes(
            "wrapped_offset", "loop counter", wrapped,
            got=f"a counter of {number - 2**dtype.bits} after {count} steps, and the loop goes on",
            expected=f"{number}, beyond {dtype.name}",
        )  # fmt: skip


def element_of(ptr: Value) -> Dtype:
    """Return the type that a pointer points to."""
    assert ptr.dtype.pointee is not None
    return ptr.dtype.pointee


def _note_progress(kind: str, ptr: Value, mask: Value | None, full: tuple[int, ...]) -> None:
    state = session.current().session
    address = np.broadcast_to(ptr.data, full)
    if mask is not None:
        address = address[np.broadcast_to(mask.data, full)]
    for storage, here in state.memory.split(address):
        if storage is not None:
            state.progress.touch(kind, storage, address[here] - storage.start)


# -- checks --------------------------------------------------------------------------------------
def judge(kind: str, ptr: Value, mask: Value | None, full: tuple[int, ...]) -> list[Lanes]:
    """Check every lane of an access; return the lanes to perform, by storage.

    Records out-of-bounds lanes, wrapped offsets and undefined addresses or masks as violations.
    """
    good = None
    if mask is not None:
        good = np.broadcast_to(mask.data, full)
        if session.current().session.sampled and mask.poison is not None:
            good = good & (np.broadcast_to(mask.poison, full) == 0)
        else:
            check_defined(mask, "a mask")
    if ptr.poison is not None or ptr.exact is not None:
        good = _without_doubtful(kind, ptr, good, full)
    size = element_of(ptr).itemsize
    if ptr.base is not None:
        address = ptr.data if good is None else np.broadcast_to(ptr.data, full)
        return [_judge_in(kind, ptr.base, address, good, size, mask)]
    return _judge_unknown(kind, np.broadcast_to(ptr.data, full), good, size, mask)


def _without_doubtful(
    kind: str, ptr: Value, good: np.ndarray | None, full: tuple[int, ...]
) -> np.ndarray:
    """Return the lanes whose address is defined and did not wrap; record the others."""
    live = np.ones(full, np.bool_) if good is None else good
    if ptr.poison is not None:
        bits = np.broadcast_to(ptr.poison, full)
        if kind != "load":
            _note_hint(kind, ptr, np.where(live, bits & session.hint_bits(), np.uint8(0)))
        hidden = (bits & ~session.hint_bits() != 0) & live
        if hidden.any():
            note_lanes("undefined_used", "an address", hidden)
            live = live & ~hidden
    if ptr.exact is not None:
        wrapped = (np.broadcast_to(ptr.exact, full) != np.broadcast_to(ptr.data, full)) & live
        if wrapped.any():
            _note_wrapped(kind, ptr, wrapped)
            live = live & ~wrapped
    return live


def _note_hint(kind: str, ptr: Value, bits: np.ndarray) -> None:
    """Record lanes that are stored to an address which a hint misdescribes."""
    lanes = bits != 0
    if lanes.any():
        lowest = int(bits[lanes].min())
        origin = session.origins_by_bit(session.current().session)[
            (lowest & -lowest).bit_length() - 1
        ]
        note_lanes(
            "false_hint",
            kind,
            lanes,
            where=origin.where,
            operand=ptr.base,
            got=f"{origin.what} in the address of {'an' if kind[0] == 'a' else 'a'} {kind}",
            expected="a hint that holds",
        )


def _judge_unknown(
    kind: str, address: np.ndarray, good: np.ndarray | None, size: int, mask: Value | None
) -> list[Lanes]:
    """Check lanes of a pointer that was not derived from an argument, each by its address."""
    launch = session.current()
    live = np.ones(address.shape, np.bool_) if good is None else good
    accesses = []
    for storage, here in launch.session.memory.split(np.where(live, address, -1)):
        here = here & live
        if storage is not None:
            operand = _any_operand(storage, size)
            accesses.append(_judge_in(kind, operand, address, here, size, mask))
        elif here.any():
            note_stray_lanes(kind, None, address, here, size, None)
    return accesses


def _judge_in(
    kind: str,
    operand: Argument,
    address: np.ndarray,
    good: np.ndarray | None,
    size: int,
    mask: Value | None,
) -> Lanes:
    storage = operand.storage
    region = operand.region(size)
    index = address - storage.start
    invalid = None
    if operand.view.itemsize != size or (operand.view.start - storage.start) % size:
        invalid = (index & (size - 1)) != 0  # an address between two elements
    if size > 1:
        index >>= size.bit_length() - 1
    if good is not None:
        index = np.where(good, index, region.low)
    if not all_inside(region, index):
        outside = ~region.contains(index)
        invalid = outside if invalid is None else invalid | outside
    if invalid is not None:
        invalid = invalid if good is None else invalid & good
        if invalid.any():
            note_stray_lanes(kind, operand, address, invalid, size, mask_axes(mask))
            good = ~invalid if good is None else good & ~invalid
        if good is not None:
            index = np.where(good, index, 0)
    return Lanes(storage, index, good)


def all_inside(region: Region, index: np.ndarray) -> bool:
    """Return whether a dense region has the extreme indices: a cheap test for most accesses."""
    if not index.size:
        return True
    return region.dense and region.low <= int(index.min()) and int(index.max()) < region.high


def _any_operand(storage: Storage, size: int) -> Argument:
    """Return an operand for an address whose pointer was not derived from an argument."""
    state = session.current().session
    for operand in state.operands:
        if operand.storage is storage:
            return operand
    n = storage.data.size // size
    name = state.storage_name(storage) or "memory"
    operand = Argument(name, I8, StridedView(storage.start, size, (n,), (1,)), storage, ("0",))
    state.operands.append(operand)
    return operand


def _note_wrapped(kind: str, ptr: Value, wrapped: np.ndarray) -> None:
    """Record lanes whose address differs from that of unbounded arithmetic."""
    assert ptr.exact is not None
    address, exact = (np.broadcast_to(x, wrapped.shape) for x in (ptr.data, ptr.exact))
    # without a known operand, only the distance from the exact address can be reported
    start = ptr.base.view.start if ptr.base is not None else int(exact.flat[0])
    size = element_of(ptr).itemsize
    lane = np.unravel_index(int(np.argmax(wrapped)), wrapped.shape)
    note_lanes(
        "wrapped_offset",
        kind,
        wrapped,
        operand=ptr.base,
        got=f"element offset {(int(address[lane]) - start) // size}",
        expected=f"{(int(exact[lane]) - start) // size}, beyond the offset's integer type",
    )


def trace(
    kind: str, ptr: Value, mask: Value | None, fill: Value | None, full: tuple[int, ...]
) -> None:
    """Record an access in the trace, if there is one, and the progress of a call that runs long."""
    launch = session.current()
    if launch.session.progress.notes:
        _note_progress(kind, ptr, mask, full)
    if launch.session.trace is None:
        return
    size = element_of(ptr).itemsize
    address = np.broadcast_to(ptr.data, full)
    lanes = None if mask is None else np.broadcast_to(mask.data, full)
    other = None if fill is None or fill.data.size != 1 else float(fill.data.item())
    for operand, own in _split_by_operand(ptr.base, address, lanes, size):
        offsets = (address - operand.view.start) // size
        touch = RawTouch(kind, operand, offsets, own, other, launch.programs, session.where())
        launch.touches.append(touch)


def _split_by_operand(
    base: Argument | None, address: np.ndarray, lanes: np.ndarray | None, size: int
) -> Iterator[tuple[Argument, np.ndarray | None]]:
    """Yield the operand of an access with its lanes, each one for a pointer of unknown origin.

    Lanes of such a pointer that address no memory belong to none.
    """
    if base is not None:
        yield base, lanes
        return
    live = np.ones(address.shape, np.bool_) if lanes is None else lanes
    for storage, here in session.current().session.memory.split(np.where(live, address, -1)):
        if storage is not None:
            yield _any_operand(storage, size), here & live


# -- vectors -------------------------------------------------------------------------------------
def check_vectors(
    kind: str, vectors: Vectors, ptr: Value, mask: Value | None, full: tuple[int, ...]
) -> np.ndarray | None:
    """Check the vectors in which an access is issued because of hints.

    A vector is issued if its first lane is unmasked. It begins at a multiple of its size, else the
    GPU aborts the launch. Its lanes are at consecutive addresses and under one mask, else it stores
    or loads others: poison of those that a load gets wrong is returned, which matters if they reach
    a store.

    Where only a mask keeps Triton from a wider vector, which would begin elsewhere than at a
    multiple of its size, the hint is false of lanes that the mask disables. That is a violation,
    too, although the compiled code is right: the guarantee would be the compiler's, not the
    kernel's, and without the hint the code is the same.
    """
    axis = vectors.axis + 1
    size = element_of(ptr).itemsize
    address = np.broadcast_to(ptr.data, full)
    on = np.ones(full, np.bool_) if mask is None else np.broadcast_to(mask.data, full)
    known = np.ones(full, np.bool_)
    for value in (ptr, mask):
        if value is not None and value.poison is not None:
            known = known & (np.broadcast_to(value.poison, full) & ~session.hint_bits() == 0)

    def begin_wrong(width: int, live: np.ndarray) -> bool:
        first = (slice(None),) * axis + (slice(None, None, width),)
        wrong = live[first] & known[first] & (address[first] % (size * width) != 0)
        if not wrong.any():
            return False
        lanes = np.zeros(full, np.bool_)
        lanes[first] = wrong
        note_vectors(kind, vectors, width, ptr, lanes, "begins")
        return True

    if begin_wrong(vectors.width, on) or begin_wrong(vectors.unmasked, np.ones_like(on)):
        return None
    if vectors.width == 1:
        return None
    address, on, known = (_group(part, axis, vectors.width) for part in (address, on, known))
    shifted = address != address[..., :1] + size * np.arange(vectors.width)
    wrong = (on[..., :1] & on & shifted) | (on != on[..., :1])
    wrong &= known.all(axis=-1, keepdims=True)
    if not wrong.any():
        return None
    lanes = _ungroup(wrong, axis, full)
    if kind == "store":
        note_vectors(kind, vectors, vectors.width, ptr, lanes, "has a lane")
        return None
    what = f"a false hint: {_format_hints(vectors)} of addresses that are not consecutive"
    origin = session.Origin(what, _find_hint(vectors), ptr.base, None, "false_hint")
    return lanes * session.origin_bit(origin)


def _group(part: np.ndarray, axis: int, width: int) -> np.ndarray:
    """Return lanes with those of one vector on the last axis."""
    moved = np.moveaxis(part, axis, -1)
    return moved.reshape(*moved.shape[:-1], moved.shape[-1] // width, width)


def _ungroup(part: np.ndarray, axis: int, full: tuple[int, ...]) -> np.ndarray:
    """Return lanes in their order in the block."""
    whole = part.reshape(*part.shape[:-2], part.shape[-2] * part.shape[-1])
    return np.broadcast_to(np.moveaxis(whole, -1, axis), full)


def note_vectors(
    kind: str, vectors: Vectors, width: int, ptr: Value, lanes: np.ndarray, verb: str
) -> None:
    """Record lanes of an access that do not have the addresses that hints claim."""
    size, line = element_of(ptr).itemsize, session.where()
    address = int(np.broadcast_to(ptr.data, lanes.shape)[lanes][0])
    at = f"address {address}"
    if ptr.base is not None:
        view = ptr.base.view
        at = f"byte {address - view.start} of {ptr.base.shown}"
        indices, _ = logical_indices(np.array([(address - view.start) // size]), view)
        if indices and len(indices) > 1:
            where = ", ".join(str(int(index[0])) for index in indices)
            at = f"element ({where}) of {ptr.base.shown}"
    wrong = (
        f"not a multiple of {size * width} bytes" if verb == "begins" else "not behind the first"
    )
    text = f"a false hint: {_format_hints(vectors)} let the {kind}"
    text += f" on line {line.line}" if line is not None and line.line else ""
    text += f" take vectors of {width} elements; one {verb} at {at}, {wrong}"
    if width > vectors.width:
        text += f" (harmless only because the mask makes Triton {kind} {vectors.width} at a time)"
    note_lanes(
        "false_hint", kind, lanes,
        where=_find_hint(vectors), operand=ptr.base,
        got=text, expected="a hint that holds",
    )  # fmt: skip


def _format_hints(vectors: Vectors) -> str:
    return " and ".join(dict.fromkeys(hint.text for hint in vectors.hints))


def _find_hint(vectors: Vectors) -> Where | None:
    """Return the line of the first hint; in Triton's own library, the running operation's."""
    loc = next((hint.loc for hint in vectors.hints if hint.loc is not None), None)
    if loc is None or loc.file.startswith(_TRITON):
        return session.where()
    return Where(loc.file, loc.line, session.current().kernel)


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
    """Send the accesses of the running launch through a box within the session."""
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
