"""Loads, stores and atomics through pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.access_checks import (
    MASKED,
    STRAY,
    UNKNOWN,
    UNPADDED,
    UNWRITTEN,
    Lanes,
    all_inside,
    beyond_view,
    check_vectors,
    element_of,
    judge,
    note,
    trace,
)
from gemmproof.reference.simulator.memory import Argument, Storage, uninitialised_value
from gemmproof.reference.simulator.ops.dots import Shared, Tiles, find_shared
from gemmproof.reference.simulator.ops.floats import canonical
from gemmproof.reference.simulator.ops.registry import operation, refusal
from gemmproof.reference.simulator.session import current
from gemmproof.reference.simulator.value import Value, combine, parts_of, union
from gemmproof.reference.ttir import I1, Dtype, Op, unsigned


# -- store ---------------------------------------------------------------------------------------
def program_column(ndim: int) -> np.ndarray:
    """Return the running programs' ids along the first of `ndim` axes."""
    return current().programs.reshape((-1,) + (1,) * (ndim - 1))


def store(
    ptr: Value, value: Value, mask: Value | None, shape: tuple[int, ...], text: str = ""
) -> None:
    """Store a block. Records elements stored by two programs or lanes, and undefined lanes.

    `text` is the operation's TTIR, by which the launch knows the vectors that hints grant it.
    """
    launch = current()
    # every program stores: the lanes always have one row for each
    full = (len(launch.programs), *shape)
    session.check_width(int(np.prod(full, dtype=np.int64)) * 8)
    trace("store", ptr, mask, None, full)
    if text in launch.vectors:
        check_vectors("store", launch.vectors[text], ptr, mask, full)
    data = np.broadcast_to(value.data, full)
    poison = None if value.poison is None else np.broadcast_to(value.poison, full)
    launch.changes += 1
    for lanes in judge("store", ptr, mask, full):
        if launch.session.sampled:
            continue
        good: Any = lanes.good
        if good is None or good.all():
            good = ...
        index = np.broadcast_to(lanes.index, full)[good].reshape(-1)
        if not index.size:
            continue
        lanes.storage.typed(data.dtype)[index] = data[good].reshape(-1)
        if (terms := launch.session.terms) is not None:
            numbers = np.broadcast_to(value.term_numbers(), full)[good].reshape(-1)
            terms.store(lanes.storage, index, data[good].reshape(-1), numbers)
        bits = None if poison is None else poison[good].reshape(-1)
        mark_defined(lanes.storage, index, data.dtype.itemsize, bits, "store", ptr.base)
        programs = np.broadcast_to(program_column(len(full)), full)[good].reshape(-1)
        _record_owners(lanes.storage, index, data.dtype.itemsize, programs, ptr.base)


def mark_defined(
    storage: Storage,
    index: np.ndarray,
    size: int,
    bits: np.ndarray | None,
    access: str,
    operand: Argument | None,
) -> None:
    """Record which elements a store defines; `bits` are the poison stored."""
    current().session.writers.mark_store(storage, index, size)
    if bits is not None and bits.any():
        if storage.undefined is None:
            storage.undefined = np.zeros(storage.data.size, np.bool_)
        bad = bits != 0
        note(
            "undefined_stored",
            access,
            current().programs,
            int(bad.sum()),
            operand=operand,
            storage=storage,
            elements=index[bad] * size,
            bits=bits[bad],
        )
    undefined = storage.undefined_elements(size)
    if undefined is not None:
        every_byte = int.from_bytes(b"\x01" * size, "little")
        undefined[index] = 0 if bits is None else np.where(bits != 0, every_byte, 0)


def _record_owners(
    storage: Storage, index: np.ndarray, size: int, programs: np.ndarray, operand: Argument | None
) -> None:
    """Find elements stored twice: by two lanes of this store, or by two programs of the launch.

    A program that has read the element since adds to what the other stored; that is accumulation.
    """
    owner = storage.ledger("owners", size)
    lanes = np.arange(len(index))
    before = owner[index]
    owner[index] = lanes  # the last lane of each element stays
    twice = owner[index] != lanes
    owner[index] = programs
    other = (before >= 0) & (before != programs)
    if size in storage.readers:
        reader = storage.readers[size][index]
        foreign = (reader >= 0) & (reader != programs)
        note_race(operand, "store", programs[foreign], "stores what another program reads")
        other &= reader != programs
    twice |= other
    if twice.any():
        note(
            "stored_twice",
            "store",
            np.unique(programs[twice]),
            int(twice.sum()),
            operand=operand,
            storage=storage,
            elements=index[twice] * size,
        )


def record_readers(
    storage: Storage,
    index: np.ndarray,
    size: int,
    programs: np.ndarray,
    operand: Argument | None,
) -> None:
    """Record who reads or updates elements, and those that another program stored.

    Nothing orders the two, unless a branch of the launch depends on loaded data (run_grid drops
    the violations then).
    """
    if size in storage.owners:
        owner = storage.owners[size][index]
        foreign = (owner >= 0) & (owner != programs)
        action = "reads or updates what another program stores"
        note_race(operand, "load", np.broadcast_to(programs, foreign.shape)[foreign], action)
    storage.ledger("readers", size)[index] = programs


def note_race(operand: Argument | None, access: str, programs: np.ndarray, action: str) -> None:
    """Record that programs access the same elements with nothing to order them."""
    if programs.size:
        note(
            "race",
            access,
            np.unique(programs),
            int(programs.size),
            operand=operand,
            got=f"a program {action} in the same launch",
            expected="an order between the two",
        )


# -- load ----------------------------------------------------------------------------------------
def load(
    ptr: Value,
    mask: Value | None,
    fill: Value | None,
    shape: tuple[int, ...],
    text: str = "",
) -> Value:
    """Load through a block of pointers; masked-off lanes hold `fill`, or are undefined.

    `text` is the operation's TTIR, by which the launch knows the vectors that hints grant it.
    """
    launch = current()
    dtype = element_of(ptr)
    np_type = dtype.numpy
    operands = [x for x in (ptr, mask, fill) if x is not None]
    full = (max(len(part) for x in operands for part in parts_of(x)), *shape)
    trace("load", ptr, mask, fill, full)
    strange = None
    if text in launch.vectors:
        strange = check_vectors("load", launch.vectors[text], ptr, mask, full)
    terms = launch.session.terms
    is_checked = strange is not None or terms is not None
    plain = None if is_checked else _plain_load(ptr, mask, fill, dtype)
    if plain is not None:
        return plain
    session.check_width(int(np.prod(full, dtype=np.int64)) * max(8, np_type.itemsize))
    accesses = judge("load", ptr, mask, full)
    data: np.ndarray = np.broadcast_to(uninitialised_value(dtype, launch.session.fill), full)
    done = np.zeros(full, np.bool_) if len(accesses) != 1 or accesses[0].good is not None else None
    poison = strange
    for lanes in accesses:
        flat = lanes.storage.typed(np_type)
        if not flat.size:
            continue
        values = flat[lanes.index]
        data = values if lanes.good is None else np.where(lanes.good, values, data)
        if done is not None:
            done = done | (True if lanes.good is None else lanes.good)
        poison = union(poison, mark_uninitialised(lanes, np_type.itemsize, ptr.base))
        _record_readers(lanes, np_type.itemsize, full, ptr.base)
    if done is not None and not done.all():
        off = None if mask is None else ~np.broadcast_to(mask.data, full)
        if off is not None and fill is not None:
            data = np.where(off, fill.data, data)
            if fill.poison is not None:
                poison = union(poison, np.where(off, fill.poison, np.uint8(0)))
        elif off is not None and off.any():
            poison = union(poison, _masked_bits(ptr, off, np_type.itemsize))
        outside = ~done if off is None else ~done & ~off
        if outside.any():
            poison = union(poison, outside * session.poison_bit(STRAY, ptr.base))
    if data.shape != full:
        data = np.broadcast_to(data, full)
    if ptr.poison is not None:
        poison = union(poison, _hint_bits(ptr, mask, full))
    if launch.session.sampled and mask is not None and mask.poison is not None:
        poison = union(poison, np.broadcast_to(mask.poison, full))
    result = Value(data, dtype, poison, loaded=8 * np_type.itemsize)
    if terms is not None:
        result.terms = terms.load(accesses, ptr, fill, np_type, full)
    return result


def _plain_load(ptr: Value, mask: Value | None, fill: Value | None, dtype: Dtype) -> Value | None:
    """Return the value of a load that is clearly valid, or None if `judge` must check it.

    Programs that load the very same block (a row of tiles shares a's) load it once.
    """
    base, np_type = ptr.base, dtype.numpy
    if base is None or ptr.poison is not None or ptr.exact is not None:
        return None
    storage = base.storage
    if not current().session.knows(storage):
        return None
    if storage.private or storage.undefined is not None or base.view.itemsize != np_type.itemsize:
        return None
    if mask is not None and (fill is None or fill.poison is not None or mask.poison is not None):
        return None
    region = base.region(np_type.itemsize)
    if region.high <= region.low or (base.view.start - storage.start) % np_type.itemsize:
        return None
    parts, tests = parts_of(ptr), [] if mask is None else parts_of(mask)
    own_fill = fill is not None and len(fill.data) > 1  # programs differ in their fill values
    same = None if own_fill else find_shared([*parts, *tests])
    if same is not None:
        parts, tests = (
            [p if len(p) == 1 else p[same[0]] for p in several] for several in (parts, tests)
        )
    lanes = combine(tests) if tests else None
    if lanes is not None and lanes.all():
        lanes = None
    index = (combine(parts) - storage.start) >> (np_type.itemsize.bit_length() - 1)
    if not index.size:
        return None
    if lanes is not None:
        index = np.where(lanes, index, region.low)
    if not all_inside(region, index) and not region.contains(index).all():
        return None
    data = storage.typed(np_type)[index]
    if lanes is not None and fill is not None:
        data = np.where(lanes, data, fill.data)
    if same is not None:
        return Tiles(Shared(data, same[1]), dtype)
    return Value(data, dtype, loaded=8 * np_type.itemsize)


def _hint_bits(ptr: Value, mask: Value | None, full: tuple[int, ...]) -> np.ndarray:
    """Return poison of lanes loaded from an address that a hint misdescribes, with the operand."""
    assert ptr.poison is not None
    before = np.broadcast_to(ptr.poison, full) & session.hint_bits()
    if mask is not None:
        before = np.where(np.broadcast_to(mask.data, full), before, np.uint8(0))
    bits = np.zeros(full, np.uint8)
    for i, origin in session.origins_by_bit(current().session).items():
        lanes = (before >> i) & 1 == 1
        if origin.kind == "false_hint" and lanes.any():
            named = origin if origin.operand is not None else replace(origin, operand=ptr.base)
            bits |= lanes * session.origin_bit(named)
    return bits


def mark_uninitialised(lanes: Lanes, size: int, operand: Argument | None) -> np.ndarray | None:
    """Return poison of lanes that read uninitialised memory, or memory of unknown content."""
    if not current().session.knows(lanes.storage):
        return np.ones(lanes.index.shape, np.uint8) * session.poison_bit(UNKNOWN, operand)
    undefined = lanes.storage.undefined_elements(size)
    if undefined is None:
        return None
    unknown = undefined[lanes.index] != 0
    if lanes.good is not None:
        unknown &= lanes.good
    return unknown * session.poison_bit(UNWRITTEN, operand) if unknown.any() else None


def _masked_bits(ptr: Value, off: np.ndarray, size: int) -> np.ndarray:
    """Return poison of masked-off lanes, by the axis along which they lie beyond the operand."""
    bits = np.zeros(off.shape, np.uint8)
    rest = off
    what = MASKED if current().box is None else UNPADDED
    if ptr.base is not None:
        address = np.broadcast_to(ptr.data, off.shape)
        for axis, lanes in beyond_view(ptr.base, address, off, size):
            bits |= lanes * session.poison_bit(what, ptr.base, axis)
            rest = rest & ~lanes
    if rest.any():
        bits |= rest * session.poison_bit(what, ptr.base)
    return bits


def _record_readers(
    lanes: Lanes, size: int, full: tuple[int, ...], operand: Argument | None
) -> None:
    """Record who last read each element of the wrapper's own memory: it may accumulate there."""
    storage = lanes.storage
    if not storage.private or current().session.sampled:
        return
    index, programs = np.broadcast_arrays(lanes.index, program_column(len(full)))
    good = slice(None) if lanes.good is None else np.broadcast_to(lanes.good, index.shape)
    record_readers(storage, index[good], size, programs[good], operand)


# -- atomics -------------------------------------------------------------------------------------
Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]

COMBINE: dict[str, Combine] = {
    "add": lambda old, new: old + new,
    "fadd": lambda old, new: canonical(old + new),
    "max": np.maximum,
    "min": np.minimum,
    "umax": lambda old, new: np.maximum(unsigned(old), unsigned(new)).view(old.dtype),
    "umin": lambda old, new: np.minimum(unsigned(old), unsigned(new)).view(old.dtype),
    "and": lambda old, new: np.bitwise_and(unsigned(old), unsigned(new)).view(old.dtype),
    "or": lambda old, new: np.bitwise_or(unsigned(old), unsigned(new)).view(old.dtype),
    "xor": lambda old, new: np.bitwise_xor(unsigned(old), unsigned(new)).view(old.dtype),
    "exch": lambda old, new: new,
}


@operation("tt.atomic_rmw", pure=False)
def _build_atomic(op: Op) -> Callable[..., Value]:
    if op.keywords[0] not in COMBINE:
        raise Unsupported(f"tt.atomic_rmw {op.keywords[0]} is not known to the tile simulator")
    word, shape = op.keywords[0], op.operand_types[0].shape

    def compute(ptr: Value, value: Value, mask: Value | None = None) -> Value:
        return atomic(word, ptr, value, mask, shape)

    return compute


@operation("tt.atomic_cas", pure=False)
def _build_compare_and_swap(op: Op) -> Callable[..., Value]:
    shape = op.operand_types[0].shape
    return lambda ptr, compare, value: atomic("cas", ptr, value, None, shape, compare)


@operation("tt.atomic_load", pure=False)
def _build_atomic_load(op: Op) -> Callable[..., Value]:
    shape = op.operand_types[0].shape
    return lambda ptr, mask=None: load(ptr, mask, None, shape)


@operation("tt.atomic_store", pure=False)
def _build_atomic_store(op: Op) -> Callable[..., None]:
    shape = op.operand_types[0].shape

    def compute(ptr: Value, value: Value, mask: Value | None = None) -> None:
        atomic("exch", ptr, value, mask, shape)

    return compute


@operation("tt.atomic_poll", pure=False)
def _build_poll(op: Op) -> Callable[..., tuple[Value, Value]]:
    """One read of tt.atomic_poll: True if every lane has the expected value, and lane by lane."""
    shape = op.operand_types[0].shape
    if len(op.operands) > 2:
        raise Unsupported(
            f"{refusal('tt.atomic_poll')}: with a timeout it depends on how fast a GPU is"
        )

    def compute(ptr: Value, expected: Value) -> tuple[Value, Value]:
        value = load(ptr, None, None, shape)
        seen = value.data == expected.data
        poison = union(value.poison, expected.poison)
        rows = seen.reshape(len(seen), -1).all(axis=1)
        bits = None
        if poison is not None:
            bits = np.bitwise_or.reduce(poison.reshape(len(poison), -1), axis=1)
        return Value(rows, I1, bits, loaded=value.loaded), Value(seen, I1, poison)

    return compute


def atomic(
    op: str,
    ptr: Value,
    value: Value,
    mask: Value | None,
    shape: tuple[int, ...],
    compare: Value | None = None,
) -> Value:
    """Read, modify and write each lane; return the old values.

    `op` is a key of COMBINE, or "cas" with `compare`. Lanes of one program that hit one element
    are combined in lane order. Adding to uninitialised memory leaves it undefined.
    """
    launch = current()
    launch.atomics = True
    dtype = element_of(ptr)
    full = (len(launch.programs), *shape)
    session.check_width(int(np.prod(full, dtype=np.int64)) * 8)
    trace("atomic", ptr, mask, None, full)
    flat_shape = (full[0], int(np.prod(full[1:], dtype=np.int64)))

    def flatten(part: np.ndarray) -> np.ndarray:
        return np.broadcast_to(part, full).reshape(flat_shape)

    compare = value if compare is None else compare
    new, expected = flatten(value.data), flatten(compare.data)
    bits = flatten(value.marks() | compare.marks())
    old = np.full(flat_shape, uninitialised_value(dtype, launch.session.fill), new.dtype)
    unknown = np.zeros(flat_shape, np.uint8)
    for lanes in judge("atomic", ptr, mask, full):
        if launch.session.sampled:
            unknown |= session.poison_bit(UNKNOWN, ptr.base)
            continue
        index = flatten(lanes.index)
        good = np.ones(flat_shape, np.bool_) if lanes.good is None else flatten(lanes.good)
        for row in range(full[0]):
            at = np.flatnonzero(good[row])
            if not at.size:
                continue
            program = launch.programs[row : row + 1]
            record_readers(lanes.storage, index[row, at], new.dtype.itemsize, program, ptr.base)
            parts = (x[row, at] for x in (index, new, expected, bits))
            if launch.session.terms is not None:
                numbers = flatten(value.term_numbers())[row, at]
                launch.session.terms.update(
                    op, lanes.storage, index[row, at], new[row, at], numbers
                )
            old[row, at], unknown[row, at] = _update(op, lanes.storage, ptr.base, *parts)
    undefined = unknown.reshape(full) if unknown.any() else None
    return Value(old.reshape(full), dtype, undefined, loaded=8 * new.dtype.itemsize)


def _update(
    op: str,
    storage: Storage,
    operand: Argument | None,
    index: np.ndarray,
    new: np.ndarray,
    expected: np.ndarray,
    bits: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Update one program's lanes; return the old values and their poison bits."""
    if len(index) > 1 and len(np.unique(index)) != len(index):  # lanes that collide
        single = (slice(i, i + 1) for i in range(len(index)))
        pairs = [
            _update(op, storage, operand, index[i], new[i], expected[i], bits[i]) for i in single
        ]
        return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
    size = new.dtype.itemsize
    seen = storage.typed(new.dtype)[index]
    unknown = mark_uninitialised(Lanes(storage, index, None), size, operand)
    unknown = np.zeros(len(index), np.uint8) if unknown is None else unknown
    if op == "cas":
        after = np.where(
            unsigned(seen) == unsigned(expected), new, seen
        )  # the hardware compares bits
    else:
        after = COMBINE[op](seen, new).astype(new.dtype)
    if after.tobytes() != seen.tobytes():
        current().changes += 1
    storage.typed(new.dtype)[index] = after
    mark_defined(storage, index, size, bits if op == "exch" else bits | unknown, "atomic", operand)
    return seen, unknown
