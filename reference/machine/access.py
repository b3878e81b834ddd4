"""Loads, stores and atomics: every lane is judged, then done where it may be.

A lane that may not be touched never reaches real memory: a stray load gives an undefined value, a
stray store is dropped. What was wrong is noted as an event of the running part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.diagnose import Event, mask_axes, stray_events
from gemmproof.reference.machine.memory import Operand, Region, Storage, View, dirt
from gemmproof.reference.machine.types import is_pointer, itemsize, numpy_of
from gemmproof.reference.machine.value import Value, lift, pad_rank, union


@dataclass(slots=True)
class Lanes:
    """The lanes of one access that fall into one storage.

    `index` counts elements of the storage; `good` are the lanes to perform, broadcast to index's
    shape (programs, *block); `program` is the program row of every lane.
    """

    storage: Storage
    index: np.ndarray
    good: np.ndarray


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
    programs = part.programs if len(rows) == 1 else part.programs[rows.any(axis=1)]
    part.events.append(
        Event(
            kind="undefined_used",
            where=execution.where(),
            operand=None,
            access=what,
            axis=None,
            programs=programs,
            lanes=int(rows.sum()),
        )
    )


def _element(ptr: Value) -> tl.dtype:
    if not is_pointer(ptr.dtype):
        raise execution.kernel_error(f"a pointer is needed here, got {ptr!r}")
    return ptr.dtype.element_ty


def _as_mask(mask: Any) -> Value | None:
    if mask is None or mask is True:
        return None
    value = lift(mask)
    if value.dtype != tl.int1:
        raise execution.kernel_error(f"mask: got {value!r}, expected int1")
    return value


def _broadcast(parts: list[np.ndarray]) -> list[np.ndarray]:
    ndim = max(p.ndim for p in parts)
    try:
        return list(np.broadcast_arrays(*(pad_rank(p, ndim) for p in parts)))
    except ValueError:
        shapes = " and ".join(str(list(p.shape[1:])) for p in parts)
        raise execution.kernel_error(f"shapes {shapes} do not broadcast") from None


def _judge(kind: str, ptr: Value, mask: Value | None, full: tuple[int, ...]) -> list[Lanes]:
    """Judge every lane of an access; returns the lanes to perform, by storage.

    `full` is the lanes' shape (programs, *block). Notes out-of-bounds lanes, wrapped offsets and
    undefined addresses or masks as events.
    """
    part = execution.current()
    address = np.broadcast_to(pad_rank(ptr.data, len(full)), full)
    active = None
    if mask is not None:
        active = np.broadcast_to(pad_rank(mask.data, len(full)), full)
        execution.used_undefined(mask, "a mask")
    good = np.ones(full, np.bool_) if active is None else active.copy()
    if ptr.poison is not None:
        hidden = np.broadcast_to(pad_rank(ptr.poison, len(full)), full) & good
        if hidden.any():
            note_undefined(Value(address, ptr.dtype, hidden), "an address")
            good &= ~hidden
    if ptr.exact is not None:
        wrapped = (np.broadcast_to(pad_rank(ptr.exact, len(full)), full) != address) & good
        if wrapped.any():
            part.events.append(_wrapped_event(kind, ptr, address, wrapped))
            good &= ~wrapped
    size = itemsize(_element(ptr))
    if ptr.base is not None:
        return [_judge_in(kind, ptr.base, address, good, size, mask)]
    found = []
    lanes = np.where(good, address, -1)
    for storage, here in part.session.memory.split(lanes):
        here = here & good
        if storage is None:
            if here.any():
                part.events.extend(stray_events(kind, None, lanes, here, size, "", part.programs))
            continue
        operand = _any_operand(storage, size)
        found.append(_judge_in(kind, operand, address, here, size, mask))
    return found


def _judge_in(
    kind: str,
    operand: Operand,
    address: np.ndarray,
    good: np.ndarray,
    size: int,
    mask: Value | None,
) -> Lanes:
    part = execution.current()
    storage = operand.storage
    region = operand.region(size)
    offset = address - storage.start
    index = offset if size == 1 else offset >> (size.bit_length() - 1)
    rest = (operand.view.start - storage.start) % size
    if operand.view.itemsize != size or rest:
        stray = ((offset & (size - 1)) != 0) & good  # an address between two elements
    else:
        stray = np.zeros((), np.bool_)
    if not _all_inside(region, index, good):
        stray = stray | (good & ~region.contains(index))
    if stray.any():
        part.events.extend(
            stray_events(
                kind, operand, address, stray, size, mask_axes(mask, operand), part.programs
            )
        )
        good = good & ~stray
    return Lanes(storage, index, good)


def _all_inside(region: Region, index: np.ndarray, good: np.ndarray) -> bool:
    """The cheap test that settles most accesses: a dense region and the extreme indices."""
    if not region.dense or not index.size:
        return not index.size
    lanes = np.where(good, index, region.low)
    return region.low <= int(lanes.min()) and int(lanes.max()) < region.high


def _any_operand(storage: Storage, size: int) -> Operand:
    """An operand for an address whose pointer was not derived from an argument."""
    for operand in execution.current().session.operands:
        if operand.storage is storage:
            return operand
    n = storage.data.size // size
    return Operand("memory", tl.uint8, View(storage.start, size, (n,), (1,)), storage, ("0",))


def _wrapped_event(kind: str, ptr: Value, address: np.ndarray, wrapped: np.ndarray) -> Event:
    part = execution.current()
    rows = wrapped.reshape(len(wrapped), -1).any(axis=1)
    exact = np.broadcast_to(pad_rank(ptr.exact, wrapped.ndim), wrapped.shape)  # type: ignore[arg-type]
    start = ptr.base.view.start if ptr.base is not None else 0
    size = itemsize(_element(ptr))
    lane = np.unravel_index(int(np.argmax(wrapped)), wrapped.shape)
    return Event(
        kind="wrapped_offset",
        where=execution.where(),
        operand=ptr.base,
        access=kind,
        axis=None,
        programs=part.programs if len(rows) == 1 else part.programs[rows],
        lanes=int(wrapped.sum()),
        got=f"element offset {(int(address[lane]) - start) // size}",
        expected=f"{(int(exact[lane]) - start) // size}",
    )


def _trace(kind: str, ptr: Value, mask: Value | None, other: Any, full: tuple[int, ...]) -> None:
    part = execution.current()
    if part.session.trace is None or ptr.base is None:
        return
    size = itemsize(_element(ptr))
    address = np.broadcast_to(pad_rank(ptr.data, len(full)), full)
    lanes = None
    if mask is not None:
        lanes = np.broadcast_to(pad_rank(mask.data, len(full)), full)
    offsets = (address - ptr.base.view.start) // size
    part.touches.append(RawTouch(kind, ptr.base, offsets, lanes, other, part.programs))


# -- load --------------------------------------------------------------------------------------
def load(ptr: Value, mask: Any = None, other: Any = None) -> Value:
    """Load through a block of pointers; masked-off lanes hold `other`, or nothing defined."""
    part = execution.current()
    dtype = _element(ptr)
    mask = _as_mask(mask)
    parts = [ptr.data] + ([mask.data] if mask is not None else [])
    full = _broadcast(parts)[0].shape
    if mask is not None and len(full) > ptr.data.ndim and not ptr.shape:
        raise execution.kernel_error("a block mask needs a block of pointers")
    constant = None
    if other is not None:
        other = execution.vocabulary().convert(lift(other), dtype)
        if other.data.size == 1:
            constant = float(other.data.reshape(-1)[0])
    np_type = numpy_of(dtype)
    undefined = dirt(dtype, part.session.dirt)
    data = np.full(full, undefined, np_type)
    poison = np.ones(full, np.bool_)
    _trace("load", ptr, mask, constant, full)
    for lanes in _judge("load", ptr, mask, full):
        flat = lanes.storage.typed(np_type)
        if not flat.size:
            continue
        if lanes.good.all():
            data, poison = flat[lanes.index], np.zeros(full, np.bool_)
        else:
            data = np.where(lanes.good, flat[np.where(lanes.good, lanes.index, 0)], data)
            poison = poison & ~lanes.good
        defined = lanes.storage.defined_elements(np_type.itemsize)
        if defined is not None:
            known = defined[np.where(lanes.good, lanes.index, 0)].all(axis=-1)
            poison = poison | (lanes.good & ~known)
    if other is not None and mask is not None:
        off = ~np.broadcast_to(pad_rank(mask.data, len(full)), full)
        data = np.where(off, pad_rank(other.data, len(full)), data)
        poison = poison & ~off
        if other.poison is not None:
            poison = poison | (off & pad_rank(other.poison, len(full)))
    return Value(data, dtype, poison if poison.any() else None)


# -- store -------------------------------------------------------------------------------------
def _rows(full: tuple[int, ...]) -> tuple[int, ...]:
    """A store is done by each program: its lanes always have one row a program."""
    return (len(execution.current().programs), *full[1:])


def store(ptr: Value, value: Any, mask: Any = None) -> None:
    """Store a block; a lane may be stored once a launch, by one program (see Event kinds)."""
    dtype = _element(ptr)
    mask = _as_mask(mask)
    value = execution.vocabulary().convert(lift(value), dtype)
    parts = [ptr.data, value.data] + ([mask.data] if mask is not None else [])
    full = _rows(_broadcast(parts)[0].shape)
    if not ptr.shape and len(full) > 1:
        raise execution.kernel_error("a block cannot be stored through a scalar pointer")
    _trace("store", ptr, mask, None, full)
    data = np.broadcast_to(pad_rank(value.data, len(full)), full)
    poison = None
    if value.poison is not None:
        poison = np.broadcast_to(pad_rank(value.poison, len(full)), full)
    part = execution.current()
    part.spins = 0
    for lanes in _judge("store", ptr, mask, full):
        index = lanes.index[lanes.good]
        if not index.size:
            continue
        programs = np.broadcast_to(_column(part.programs, len(full)), full)[lanes.good]
        undefined = None if poison is None else poison[lanes.good]
        _put(lanes.storage, index, data[lanes.good])
        _mark(lanes.storage, index, data.dtype.itemsize, undefined, "store", ptr.base)
        _own(lanes.storage, index, data.dtype.itemsize, programs, ptr.base)


def _column(programs: np.ndarray, ndim: int) -> np.ndarray:
    return programs.reshape((-1,) + (1,) * (ndim - 1))


def _put(storage: Storage, index: np.ndarray, data: np.ndarray) -> None:
    """Write elements, leaving a way back."""
    flat = storage.typed(data.dtype)
    before = flat[index]
    flat[index] = data

    def undo() -> None:
        flat[index] = before

    execution.current().undo.append(undo)


def _mark(
    storage: Storage,
    index: np.ndarray,
    size: int,
    undefined: np.ndarray | None,
    access: str,
    operand: Operand | None,
) -> None:
    """Keep account of which elements are defined after a store."""
    part = execution.current()
    if undefined is not None and undefined.any():
        if storage.defined is None:
            storage.defined = np.ones(storage.data.size, np.bool_)
        part.events.append(
            Event(
                kind="undefined_stored",
                where=execution.where(),
                operand=operand,
                access=access,
                axis=None,
                programs=part.programs,
                lanes=int(undefined.sum()),
                storage=storage,
                elements=index[undefined] * size,
            )
        )
    defined = storage.defined_elements(size)
    if defined is None:
        return
    before = defined[index]
    defined[index] = True if undefined is None else ~undefined[:, None]

    def undo() -> None:
        defined[index] = before

    part.undo.append(undo)


def _own(
    storage: Storage, index: np.ndarray, size: int, programs: np.ndarray, operand: Operand | None
) -> None:
    """Find elements stored twice: by two lanes of this store, or by two programs of the launch."""
    part = execution.current()
    owner = storage.owners.get(size)
    if owner is None:
        owner = storage.owners[size] = np.full(storage.data.size // size, -1, np.int64)
    lanes = np.arange(len(index))
    before = owner[index]
    owner[index] = lanes  # the last lane of each element stays
    twice = owner[index] != lanes
    owner[index] = programs

    def undo() -> None:
        owner[index] = before

    part.undo.append(undo)
    twice |= (before >= 0) & (before != programs)
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


# -- atomics -----------------------------------------------------------------------------------
def _exchange(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    return new


COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda old, new: old + new,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": _exchange,
}


def atomic(
    op: str, ptr: Value, value: Any, mask: Any = None, compare: Value | None = None
) -> Value:
    """A read-modify-write of each lane, program after program; returns the old values.

    `op` is a key of COMBINE, or "cas" with `compare`. Lanes of one program that meet on an element
    are combined one after the other in lane order.
    """
    part = execution.current()
    part.atomics = True
    dtype = _element(ptr)
    mask = _as_mask(mask)
    value = execution.vocabulary().convert(lift(value), dtype)
    parts = [ptr.data, value.data] + ([mask.data] if mask is not None else [])
    full = _rows(_broadcast(parts)[0].shape)
    _trace("atomic", ptr, mask, None, full)
    new = np.broadcast_to(pad_rank(value.data, len(full)), full)
    poison = value.poison if compare is None else union(value.poison, compare.poison)
    bad = np.zeros(full, np.bool_)
    if poison is not None:
        bad = np.broadcast_to(pad_rank(poison, len(full)), full)
    wanted = None
    if compare is not None:
        compare = execution.vocabulary().convert(compare, dtype)
        wanted = np.broadcast_to(pad_rank(compare.data, len(full)), full)
    old = np.full(full, dirt(dtype, part.session.dirt), new.dtype)
    unknown = np.ones(full, np.bool_)
    for lanes in _judge("atomic", ptr, mask, full):
        flat = lanes.storage.typed(new.dtype)
        for row in range(full[0]):
            good = np.atleast_1d(lanes.good[row]).reshape(-1)
            index = np.atleast_1d(lanes.index[row]).reshape(-1)[good]
            if not index.size:
                continue
            fresh = np.atleast_1d(new[row]).reshape(-1)[good]
            want = None if wanted is None else np.atleast_1d(wanted[row]).reshape(-1)[good]
            mine = np.atleast_1d(bad[row]).reshape(-1)[good]
            seen, known = _update(lanes.storage, flat, index, op, fresh, want, mine, ptr.base)
            old[row].reshape(-1)[good] = seen
            unknown[row].reshape(-1)[good] = ~known
    return Value(old, dtype, unknown if unknown.any() else None)


def _update(
    storage: Storage,
    flat: np.ndarray,
    index: np.ndarray,
    op: str,
    new: np.ndarray,
    want: np.ndarray | None,
    undefined: np.ndarray,
    operand: Operand | None,
) -> tuple[np.ndarray, np.ndarray]:
    """One program's update; returns the old values and which of them were defined."""
    if len(np.unique(index)) != len(index):  # lanes that meet: one after the other
        pairs = [
            _update(
                storage,
                flat,
                index[i : i + 1],
                op,
                new[i : i + 1],
                None if want is None else want[i : i + 1],
                undefined[i : i + 1],
                operand,
            )
            for i in range(len(index))
        ]
        return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
    size = flat.dtype.itemsize
    defined = storage.defined_elements(size)
    known = np.ones(len(index), np.bool_) if defined is None else defined[index].all(axis=1)
    seen = flat[index]
    if op == "cas":
        after = np.where(seen == want, new, seen)
    else:
        after = COMBINE[op](seen, new).astype(flat.dtype)
    if (after != seen).any():
        execution.current().spins = 0
    _put(storage, index, after)
    lost = undefined | (~known if op not in ("xchg",) else np.zeros(len(index), np.bool_))
    _mark(storage, index, size, lost, "atomic", operand)
    return seen, known
