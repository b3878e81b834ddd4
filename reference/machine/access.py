"""Loads and stores: every lane is judged, then done where it may be.

A lane that may not be touched never reaches real memory: a stray load gives an undefined value, a
stray store is dropped. What was wrong is noted as an event of the running part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.diagnose import Event, beyond_view, mask_axes, stray_events
from gemmproof.reference.machine.memory import Operand, Region, Storage, View, dirt
from gemmproof.reference.machine.types import is_pointer, itemsize, numpy_of
from gemmproof.reference.machine.value import Value, lift, pad_rank

STRAY = "lie outside its view"
MASKED = "the load's mask switches off, with no `other`"
UNWRITTEN = "nothing has stored"


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
    """One access of all programs of a part, as the trace keeps it until the launch is over."""

    kind: str
    operand: Operand
    offsets: np.ndarray
    mask: np.ndarray | None
    other: float | None
    programs: np.ndarray


def note_undefined(value: Value, what: str) -> None:
    """Note that a lane nothing defined decides `what` (an address, a mask, a branch)."""
    part = execution.current()
    assert value.poison is not None
    rows = np.broadcast_to(value.poison, value.data.shape).reshape(value.data.shape[0], -1)
    part.events.append(
        Event(
            kind="undefined_used",
            where=execution.where(),
            operand=None,
            access=what,
            axis=None,
            programs=_programs(rows),
            lanes=int((rows != 0).sum()),
        )
    )


def _programs(rows: np.ndarray) -> np.ndarray:
    """Ids of the programs whose row (programs or 1, lanes) has a marked lane."""
    programs = execution.current().programs
    return programs if len(rows) == 1 else programs[(rows != 0).any(axis=1)]


def element_type(ptr: Value) -> tl.dtype:
    """What a pointer points to. Raises KernelError for a value that is no pointer."""
    if not is_pointer(ptr.dtype):
        raise execution.kernel_error(f"a pointer is needed here, got {ptr!r}")
    return ptr.dtype.element_ty


def as_mask(mask: Any) -> Value | None:
    """A mask as an int1 value, None where it is absent. Raises KernelError for another type."""
    if mask is None:
        return None
    value = lift(mask)
    if value.dtype != tl.int1:
        raise execution.kernel_error(f"mask: got {value!r}, expected int1")
    return value


def lanes_shape(ptr: Value, *parts: Value | None) -> tuple[int, ...]:
    """The shape (programs or 1, *block) of an access. Raises KernelError for what cannot meet."""
    shapes = [p.data.shape for p in (ptr, *parts) if p is not None]
    rank = max(map(len, shapes))
    if rank > 1 and not ptr.shape:
        raise execution.kernel_error("a block (mask or value) needs a block of pointers")
    try:
        return np.broadcast_shapes(*((s[0], *(1,) * (rank - len(s)), *s[1:]) for s in shapes))
    except ValueError:
        words = " and ".join(str(list(s[1:])) for s in shapes)
        raise execution.kernel_error(f"shapes {words} do not broadcast") from None


def spread(part: np.ndarray, full: tuple[int, ...]) -> np.ndarray:
    """`part` (programs or 1, *block) as a view of the access's full shape."""
    return np.broadcast_to(pad_rank(part, len(full)), full)


# -- judging -----------------------------------------------------------------------------------
def judge(kind: str, ptr: Value, mask: Value | None, full: tuple[int, ...]) -> list[Lanes]:
    """Judge every lane of an access; returns the lanes to perform, by storage.

    Notes out-of-bounds lanes, wrapped offsets and undefined addresses or masks as events.
    """
    good = None
    if mask is not None:
        good = spread(mask.data, full)
        execution.used_undefined(mask, "a mask")
    if ptr.poison is not None or ptr.exact is not None:
        good = _without_doubtful(kind, ptr, good, full)
    size = itemsize(element_type(ptr))
    if ptr.base is not None:
        address = ptr.data if good is None else spread(ptr.data, full)
        return [_judge_in(kind, ptr.base, address, good, size, mask)]
    return _judge_unknown(kind, spread(ptr.data, full), good, size, mask)


def _without_doubtful(
    kind: str, ptr: Value, good: np.ndarray | None, full: tuple[int, ...]
) -> np.ndarray:
    """The lanes whose address is defined and did not wrap; the others are noted."""
    live = np.ones(full, np.bool_) if good is None else good
    if ptr.poison is not None:
        hidden = (spread(ptr.poison, full) != 0) & live
        if hidden.any():
            note_undefined(Value(spread(ptr.data, full), ptr.dtype, hidden), "an address")
            live = live & ~hidden
    if ptr.exact is not None:
        wrapped = (spread(ptr.exact, full) != spread(ptr.data, full)) & live
        if wrapped.any():
            execution.current().events.append(_wrapped_event(kind, ptr, wrapped))
            live = live & ~wrapped
    return live


def _judge_unknown(
    kind: str, address: np.ndarray, good: np.ndarray | None, size: int, mask: Value | None
) -> list[Lanes]:
    """Lanes of a pointer that was not derived from an argument: each finds its storage itself."""
    part = execution.current()
    live = np.ones(address.shape, np.bool_) if good is None else good
    found = []
    for storage, here in part.session.memory.split(np.where(live, address, -1)):
        here = here & live
        if storage is not None:
            operand = _any_operand(storage, size)
            found.append(_judge_in(kind, operand, address, here, size, mask))
        elif here.any():
            part.events += stray_events(kind, None, address, here, size, None, part.programs)
    return found


def _judge_in(
    kind: str,
    operand: Operand,
    address: np.ndarray,
    good: np.ndarray | None,
    size: int,
    mask: Value | None,
) -> Lanes:
    storage = operand.storage
    region = operand.region(size)
    index = address - storage.start
    uneven = None
    if operand.view.itemsize != size or (operand.view.start - storage.start) % size:
        uneven = (index & (size - 1)) != 0  # an address between two elements
    if size > 1:
        index >>= size.bit_length() - 1
    if good is not None:
        index = np.where(good, index, region.low)
    stray = None
    if not _all_inside(region, index):
        stray = ~region.contains(index)
        stray = stray if good is None else stray & good
    if uneven is not None:
        uneven = uneven if good is None else uneven & good
        stray = uneven if stray is None else stray | uneven
    if stray is not None and stray.any():
        part = execution.current()
        part.events += stray_events(
            kind, operand, address, stray, size, mask_axes(mask), part.programs
        )
        good = ~stray if good is None else good & ~stray
    if stray is not None:
        index = np.where(good, index, 0) if good is not None else index
    return Lanes(storage, index, good)


def _all_inside(region: Region, index: np.ndarray) -> bool:
    """The cheap test that settles most accesses: a dense region and the extreme indices."""
    if not index.size:
        return True
    return region.dense and region.low <= int(index.min()) and int(index.max()) < region.high


def _any_operand(storage: Storage, size: int) -> Operand:
    """An operand for an address whose pointer was not derived from an argument."""
    session = execution.current().session
    for operand in session.operands:
        if operand.storage is storage:
            return operand
    n = storage.data.size // size
    name = session.storage_name(storage) or "memory"
    operand = Operand(name, tl.uint8, View(storage.start, size, (n,), (1,)), storage, ("0",))
    session.operands.append(operand)
    return operand


def _wrapped_event(kind: str, ptr: Value, wrapped: np.ndarray) -> Event:
    assert ptr.exact is not None
    address, exact = spread(ptr.data, wrapped.shape), spread(ptr.exact, wrapped.shape)
    start = ptr.base.view.start if ptr.base is not None else 0
    size = itemsize(element_type(ptr))
    lane = np.unravel_index(int(np.argmax(wrapped)), wrapped.shape)
    return Event(
        kind="wrapped_offset",
        where=execution.where(),
        operand=ptr.base,
        access=kind,
        axis=None,
        programs=_programs(wrapped.reshape(len(wrapped), -1)),
        lanes=int(wrapped.sum()),
        got=f"element offset {(int(address[lane]) - start) // size}",
        expected=f"{(int(exact[lane]) - start) // size}, beyond the offset's integer type",
    )


def trace(kind: str, ptr: Value, mask: Value | None, other: Any, full: tuple[int, ...]) -> None:
    """Keep an access for the trace, if one is wanted."""
    part = execution.current()
    if part.session.trace is None or ptr.base is None:
        return
    size = itemsize(element_type(ptr))
    offsets = (spread(ptr.data, full) - ptr.base.view.start) // size
    lanes = None if mask is None else spread(mask.data, full)
    part.touches.append(RawTouch(kind, ptr.base, offsets, lanes, other, part.programs))


# -- load --------------------------------------------------------------------------------------
def load(ptr: Value, mask: Any = None, other: Any = None) -> Value:
    """Load through a block of pointers; masked-off lanes hold `other`, or nothing defined."""
    part = execution.current()
    dtype = element_type(ptr)
    if other is not None and mask is None:
        raise execution.kernel_error("tl.load: `other` without a mask")
    mask = as_mask(mask)
    fill = None if other is None else execution.vocabulary().convert(lift(other), dtype)
    full = lanes_shape(ptr, mask, fill if mask is not None else None)
    if part.session.trace is not None:
        one = None if fill is None or fill.data.size != 1 else float(fill.data.reshape(-1)[0])
        trace("load", ptr, mask, one, full)
    np_type = numpy_of(dtype)
    dirty = dirt(dtype, part.session.dirt)
    found = judge("load", ptr, mask, full)
    data: np.ndarray = np.broadcast_to(dirty, full)
    done = np.zeros(full, np.bool_) if len(found) != 1 or found[0].good is not None else None
    poison = None
    for lanes in found:
        flat = lanes.storage.typed(np_type)
        if not flat.size:
            continue
        values = flat[lanes.index]
        data = values if lanes.good is None else np.where(lanes.good, values, data)
        if done is not None:
            done = done | (True if lanes.good is None else lanes.good)
        poison = _unwritten(lanes, np_type.itemsize, ptr.base, poison)
        _remember_readers(lanes, np_type.itemsize, full, ptr.base)
    if done is not None and not done.all():
        off = None if mask is None else ~spread(mask.data, full)
        if off is not None and fill is not None:
            data = np.where(off, pad_rank(fill.data, len(full)), data)
            if fill.poison is not None:
                mixed = np.where(off, pad_rank(fill.poison, len(full)), np.uint8(0))
                poison = mixed if poison is None else poison | mixed
        elif off is not None and off.any():
            bits = _masked_bits(ptr, off, itemsize(dtype))
            poison = bits if poison is None else poison | bits
        stray = ~done if off is None else ~done & ~off
        if stray.any():
            bits = stray * execution.source(STRAY, ptr.base)
            poison = bits if poison is None else poison | bits
    if data.shape != full:
        data = np.broadcast_to(data, full)
    return Value(data, dtype, poison, loaded=8 * np_type.itemsize)


def _unwritten(
    lanes: Lanes, size: int, operand: Operand | None, poison: np.ndarray | None
) -> np.ndarray | None:
    """Poison for lanes that read memory nothing has stored to."""
    undefined = lanes.storage.undefined_elements(size)
    if undefined is None:
        return poison
    unknown = undefined[lanes.index].any(axis=-1)
    if lanes.good is not None:
        unknown &= lanes.good
    if not unknown.any():
        return poison
    bits = unknown * execution.source(UNWRITTEN, operand)
    return bits if poison is None else poison | bits


def _masked_bits(ptr: Value, off: np.ndarray, size: int) -> np.ndarray:
    """Poison bits of masked-off lanes: by the axis along which they lie beyond the operand."""
    bits = np.zeros(off.shape, np.uint8)
    rest = off
    if ptr.base is not None:
        address = spread(ptr.data, off.shape)
        for axis, lanes in beyond_view(ptr.base, address, off, size):
            bits |= lanes * execution.source(MASKED, ptr.base, axis)
            rest = rest & ~lanes
    if rest.any():
        bits |= rest * execution.source(MASKED, ptr.base)
    return bits


def _remember_readers(
    lanes: Lanes, size: int, full: tuple[int, ...], operand: Operand | None
) -> None:
    """Which program last read each element of memory that the wrapper made: it may add to it.

    Notes elements that another program stored in this launch: nothing orders the two, unless the
    launch uses atomics (grid.py drops the event then).
    """
    storage = lanes.storage
    if not storage.private:
        return
    readers = storage.ledger("readers", size)
    index, programs = np.broadcast_arrays(lanes.index, column(len(full)))
    good = slice(None) if lanes.good is None else np.broadcast_to(lanes.good, index.shape)
    index, programs = index[good], programs[good]
    if size in storage.owners:
        owner = storage.owners[size][index]
        foreign = (owner >= 0) & (owner != programs)
        _race(operand, "load", programs[foreign], "reads what another program stores")
    readers[index] = programs


def _race(operand: Operand | None, access: str, programs: np.ndarray, words: str) -> None:
    """Note that programs meet on elements with nothing to order them."""
    if programs.size:
        execution.current().events.append(
            Event(
                kind="race",
                where=execution.where(),
                operand=operand,
                access=access,
                axis=None,
                programs=np.unique(programs),
                lanes=int(programs.size),
                got=f"a program {words} in the same launch",
                expected="an order between the two",
            )
        )


# -- store -------------------------------------------------------------------------------------
def column(ndim: int) -> np.ndarray:
    """The part's program ids along the first of `ndim` axes."""
    return execution.current().programs.reshape((-1,) + (1,) * (ndim - 1))


def rows(full: tuple[int, ...]) -> tuple[int, ...]:
    """A store is done by each program: its lanes always have one row a program."""
    return (len(execution.current().programs), *full[1:])


def store(ptr: Value, value: Any, mask: Any = None) -> None:
    """Store a block. Notes elements stored by two programs or lanes, and undefined lanes."""
    part = execution.current()
    dtype = element_type(ptr)
    mask = as_mask(mask)
    value = execution.vocabulary().convert(lift(value), dtype)
    full = rows(lanes_shape(ptr, value, mask))
    trace("store", ptr, mask, None, full)
    data = spread(value.data, full)
    poison = None if value.poison is None else spread(value.poison, full)
    part.spins = 0
    for lanes in judge("store", ptr, mask, full):
        good = np.ones(full, np.bool_) if lanes.good is None else lanes.good
        index = np.broadcast_to(lanes.index, full)[good]
        if not index.size:
            continue
        put(lanes.storage, index, data[good])
        bits = None if poison is None else poison[good]
        mark(lanes.storage, index, data.dtype.itemsize, bits, "store", ptr.base)
        programs = np.broadcast_to(column(len(full)), full)[good]
        _own(lanes.storage, index, data.dtype.itemsize, programs, ptr.base)


def put(storage: Storage, index: np.ndarray, data: np.ndarray) -> None:
    """Write elements, leaving a way back."""
    flat = storage.typed(data.dtype)
    before = flat[index]
    flat[index] = data

    def undo() -> None:
        flat[index] = before

    execution.current().undo.append(undo)


def mark(
    storage: Storage,
    index: np.ndarray,
    size: int,
    bits: np.ndarray | None,
    access: str,
    operand: Operand | None,
) -> None:
    """Keep account of which elements are defined after a store; `bits` are the poison stored."""
    part = execution.current()
    if bits is not None and bits.any():
        if storage.undefined is None:
            storage.undefined = np.zeros(storage.data.size, np.bool_)
        bad = bits != 0
        part.events.append(
            Event(
                kind="undefined_stored",
                where=execution.where(),
                operand=operand,
                access=access,
                axis=None,
                programs=part.programs,
                lanes=int(bad.sum()),
                storage=storage,
                elements=index[bad] * size,
                bits=bits[bad],
            )
        )
    undefined = storage.undefined_elements(size)
    if undefined is None:
        return
    before = undefined[index]
    undefined[index] = False if bits is None else (bits != 0)[:, None]

    def undo() -> None:
        undefined[index] = before

    part.undo.append(undo)


def _own(
    storage: Storage, index: np.ndarray, size: int, programs: np.ndarray, operand: Operand | None
) -> None:
    """Find elements stored twice: by two lanes of this store, or by two programs of the launch.

    A program that has read the element since adds to what the other stored; that is accumulation.
    """
    part = execution.current()
    owner = storage.ledger("owners", size)
    lanes = np.arange(len(index))
    before = owner[index]
    owner[index] = lanes  # the last lane of each element stays
    twice = owner[index] != lanes
    owner[index] = programs

    def undo() -> None:
        owner[index] = before

    part.undo.append(undo)
    other = (before >= 0) & (before != programs)
    if size in storage.readers:
        reader = storage.readers[size][index]
        foreign = (reader >= 0) & (reader != programs)
        _race(operand, "store", programs[foreign], "stores what another program reads")
        other &= reader != programs
    twice |= other
    if twice.any():
        part.events.append(
            Event(
                kind="stored_twice",
                where=execution.where(),
                operand=operand,
                access="store",
                axis=None,
                programs=np.unique(programs[twice]),
                lanes=int(twice.sum()),
                storage=storage,
                elements=index[twice] * size,
            )
        )
