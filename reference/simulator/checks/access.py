"""The lanes of an access that may be performed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.simulation import Where
from gemmproof.reference.simulator import session as context
from gemmproof.reference.simulator.checks.messages import mask_axes, note_lanes, note_stray_lanes
from gemmproof.reference.simulator.memory import Argument, Region, Storage, StridedView
from gemmproof.reference.simulator.session import Enough
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir import I8, Dtype

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
    if value.poison is not None and (value.poison & ~context.hint_bits()).any():
        if context.current().session.sampled:
            raise Enough
        note_lanes("undefined_used", what, value.poison)


def element_of(ptr: Value) -> Dtype:
    """Return the type that a pointer points to."""
    assert ptr.dtype.pointee is not None
    return ptr.dtype.pointee


def _note_progress(kind: str, ptr: Value, mask: Value | None, full: tuple[int, ...]) -> None:
    session = context.current().session
    address = np.broadcast_to(ptr.data, full)
    if mask is not None:
        address = address[np.broadcast_to(mask.data, full)]
    for storage, here in session.memory.split(address):
        if storage is not None:
            session.progress.touch(kind, storage, address[here] - storage.start)


# -- checks --------------------------------------------------------------------------------------
def judge(kind: str, ptr: Value, mask: Value | None, full: tuple[int, ...]) -> list[Lanes]:
    """Check every lane of an access; return the lanes to perform, by storage.

    Records out-of-bounds lanes, wrapped offsets and undefined addresses or masks as violations.
    """
    good = None
    if mask is not None:
        good = np.broadcast_to(mask.data, full)
        if context.current().session.sampled and mask.poison is not None:
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
            _note_hint(kind, ptr, np.where(live, bits & context.hint_bits(), np.uint8(0)))
        hidden = (bits & ~context.hint_bits() != 0) & live
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
        origin = context.origins_by_bit(context.current().session)[
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
    launch = context.current()
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
    session = context.current().session
    for operand in session.operands:
        if operand.storage is storage:
            return operand
    n = storage.data.size // size
    name = session.storage_name(storage) or "memory"
    operand = Argument(name, I8, StridedView(storage.start, size, (n,), (1,)), storage, ("0",))
    session.operands.append(operand)
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
    launch = context.current()
    if launch.session.progress.notes:
        _note_progress(kind, ptr, mask, full)
    if launch.session.trace is None or ptr.base is None:
        return
    size = element_of(ptr).itemsize
    offsets = (np.broadcast_to(ptr.data, full) - ptr.base.view.start) // size
    lanes = None if mask is None else np.broadcast_to(mask.data, full)
    other = None if fill is None or fill.data.size != 1 else float(fill.data.item())
    touch = RawTouch(kind, ptr.base, offsets, lanes, other, launch.programs, context.where())
    launch.touches.append(touch)
