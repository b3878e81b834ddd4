"""Loads and stores: every lane is judged, then done where it may be.

A lane that may not be touched never reaches real memory: a stray load gives an undefined value, a
stray store is dropped. What was wrong is noted as an event of the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.checks.blame import Event, beyond_view
from gemmproof.reference.simulator.checks.judge import (
    MASKED,
    STRAY,
    UNWRITTEN,
    Lanes,
    all_inside,
    element_of,
    judge,
    spread,
    trace,
)
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.memory import Operand, Storage, dirt
from gemmproof.reference.simulator.ops.outer import combine, parts_of
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.ops.shared_tiles import Shared, Tiles
from gemmproof.reference.simulator.reader import Op
from gemmproof.reference.simulator.value import Value


@operation("tt.load", pure=False)
def _build_load(op: Op) -> Callable[..., Value]:
    from gemmproof.reference.simulator.ops.blocks import build_window_load

    kind = op.operand_types[0]
    if kind.kind == "window":
        return build_window_load(op)
    shape = kind.shape

    def compute(ptr: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        return load(ptr, mask, other, shape)

    return compute


@operation("tt.store", pure=False)
def _build_store(op: Op) -> Callable[..., None]:
    from gemmproof.reference.simulator.ops.blocks import build_window_store

    kind = op.operand_types[0]
    if kind.kind == "window":
        return build_window_store(op)
    shape = kind.shape

    def compute(ptr: Value, value: Value, mask: Value | None = None) -> None:
        store(ptr, value, mask, shape)

    return compute


# -- load ----------------------------------------------------------------------------------------
def lanes_shape(shape: tuple[int, ...], *parts: Value | None) -> tuple[int, ...]:
    """The shape (programs or 1, *block) of an access."""
    programs = max(len(x) for p in parts if p is not None for x in parts_of(p))
    return (programs, *shape)


def load(ptr: Value, mask: Value | None, fill: Value | None, shape: tuple[int, ...]) -> Value:
    """Load through a block of pointers; masked-off lanes hold `fill`, or nothing defined."""
    launch = current()
    dtype = element_of(ptr)
    np_type = dtype.numpy
    full = lanes_shape(shape, ptr, mask, fill)
    if launch.session.trace is not None:
        one = None if fill is None or fill.data.size != 1 else float(fill.data.reshape(-1)[0])
        trace("load", ptr, mask, one, full)
    plain = _plain_load(ptr, mask, fill, np_type)
    if plain is not None:
        if isinstance(plain, Shared):
            return Tiles(plain, dtype)
        return Value(plain, dtype, loaded=8 * np_type.itemsize)
    context.check_width(int(np.prod(full, dtype=np.int64)) * max(8, np_type.itemsize))
    found = judge("load", ptr, mask, full)
    data: np.ndarray = np.broadcast_to(dirt(dtype, launch.session.dirt), full)
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
            data = np.where(off, fill.data, data)
            if fill.poison is not None:
                mixed = np.where(off, fill.poison, np.uint8(0))
                poison = mixed if poison is None else poison | mixed
        elif off is not None and off.any():
            bits = _masked_bits(ptr, off, np_type.itemsize)
            poison = bits if poison is None else poison | bits
        stray = ~done if off is None else ~done & ~off
        if stray.any():
            bits = stray * context.source(STRAY, ptr.base)
            poison = bits if poison is None else poison | bits
    if data.shape != full:
        data = np.broadcast_to(data, full)
    if ptr.poison is not None:
        bits = _hint_bits(ptr, mask, full)
        poison = bits if poison is None else poison | bits
    return Value(data, dtype, poison, loaded=8 * np_type.itemsize)


def _plain_load(
    ptr: Value, mask: Value | None, fill: Value | None, np_type: np.dtype
) -> np.ndarray | Shared | None:
    """The lanes of a load with which nothing is amiss, or None where `judge` has to look closer.

    Programs that load the very same block (a row of tiles shares a's) load it once.
    """
    base = ptr.base
    if base is None or ptr.poison is not None or ptr.exact is not None:
        return None
    storage = base.storage
    if storage.private or storage.undefined is not None or base.view.itemsize != np_type.itemsize:
        return None
    if mask is not None and (fill is None or fill.poison is not None or mask.poison is not None):
        return None
    region = base.region(np_type.itemsize)
    if region.high <= region.low or (base.view.start - storage.start) % np_type.itemsize:
        return None
    parts, tests = parts_of(ptr), [] if mask is None else parts_of(mask)
    own_fill = fill is not None and len(fill.data) > 1  # programs differ in what they fill in
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
    return data if same is None else Shared(data, same[1])


def find_shared(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Programs that stand for all, and which of them each program is like; None if too few meet.

    Programs are alike where all the parts (programs or 1, *lanes) of their access are.
    """
    several = [p for p in parts if len(p) > 1]
    programs = len(several[0]) if several else 1
    if programs < 4 or parts[0].ndim == 1:
        return None
    known = current().shared  # in a loop the parts that programs differ in are mostly the same
    key = tuple(map(id, several))
    if key not in known:
        if len(known) > 64:
            known.clear()
        known[key] = several, _find_shared(several)
    return known[key][1]


def _find_shared(several: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    programs = len(several[0])
    # the first lanes tell programs apart, mostly; that no other lane does is then looked at
    keys = np.zeros(programs, np.int64)
    for part in several:
        keys = keys * 1000003 + part.reshape(programs, -1)[:, 0]
    some, like = _group(keys.tobytes())
    if 2 * len(some) > programs or not all(_repeats(p, some, like) for p in several):
        return None
    return some, like


@lru_cache(maxsize=256)
def _group(keys: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each key, and for every key the number of its first place."""
    found = np.unique(np.frombuffer(keys, np.int64), return_index=True, return_inverse=True)
    return found[1], found[2]


def _repeats(part: np.ndarray, some: np.ndarray, like: np.ndarray) -> bool:
    """Whether every program's block is that of its representative; without a copy in a grid."""
    n, u = len(part), len(some)
    if n % u == 0 and np.array_equal(like, np.arange(n) % u):
        grid = part.reshape(n // u, u, *part.shape[1:])
        return bool((grid == grid[:1]).all())
    if n % u == 0 and np.array_equal(like, np.arange(n) // (n // u)):
        grid = part.reshape(u, n // u, *part.shape[1:])
        return bool((grid == grid[:, :1]).all())
    return np.array_equal(part[some][like], part)


def _hint_bits(ptr: Value, mask: Value | None, full: tuple[int, ...]) -> np.ndarray:
    """Poison of lanes loaded from an address that a hint misdescribes: the operand is now known."""
    assert ptr.poison is not None
    before = spread(ptr.poison, full) & context.hinted()
    if mask is not None:
        before = np.where(spread(mask.data, full), before, np.uint8(0))
    bits = np.zeros(full, np.uint8)
    for i, origin in enumerate(list(current().session.sources[:7])):
        lanes = (before >> i) & 1 == 1
        if origin.kind == "false_hint" and lanes.any():
            named = origin if origin.operand is not None else replace(origin, operand=ptr.base)
            bits |= lanes * context.bit_of(named)
    return bits


def _unwritten(
    lanes: Lanes, size: int, operand: Operand | None, poison: np.ndarray | None
) -> np.ndarray | None:
    """Poison for lanes that read memory nothing has stored to."""
    undefined = lanes.storage.undefined_elements(size)
    if undefined is None:
        return poison
    unknown = undefined[lanes.index] != 0
    if lanes.good is not None:
        unknown &= lanes.good
    if not unknown.any():
        return poison
    bits = unknown * context.source(UNWRITTEN, operand)
    return bits if poison is None else poison | bits


def _masked_bits(ptr: Value, off: np.ndarray, size: int) -> np.ndarray:
    """Poison bits of masked-off lanes: by the axis along which they lie beyond the operand."""
    bits = np.zeros(off.shape, np.uint8)
    rest = off
    if ptr.base is not None:
        address = spread(ptr.data, off.shape)
        for axis, lanes in beyond_view(ptr.base, address, off, size):
            bits |= lanes * context.source(MASKED, ptr.base, axis)
            rest = rest & ~lanes
    if rest.any():
        bits |= rest * context.source(MASKED, ptr.base)
    return bits


def _remember_readers(
    lanes: Lanes, size: int, full: tuple[int, ...], operand: Operand | None
) -> None:
    """Which program last read each element of memory that the wrapper made: it may add to it."""
    storage = lanes.storage
    if not storage.private:
        return
    index, programs = np.broadcast_arrays(lanes.index, column(len(full)))
    good = slice(None) if lanes.good is None else np.broadcast_to(lanes.good, index.shape)
    meet(storage, index[good], size, programs[good], operand)


def meet(
    storage: Storage,
    index: np.ndarray,
    size: int,
    programs: np.ndarray,
    operand: Operand | None,
) -> None:
    """Remember who reads or updates elements, and note those that another program stored.

    Nothing orders the two, unless a branch of the launch depends on what it loaded (grid.py drops
    the events then).
    """
    if size in storage.owners:
        owner = storage.owners[size][index]
        foreign = (owner >= 0) & (owner != programs)
        words = "reads or updates what another program stores"
        _race(operand, "load", np.broadcast_to(programs, foreign.shape)[foreign], words)
    storage.ledger("readers", size)[index] = programs


def _race(operand: Operand | None, access: str, programs: np.ndarray, words: str) -> None:
    """Note that programs meet on elements with nothing to order them."""
    if programs.size:
        current().events.append(
            Event(
                kind="race",
                where=context.where(),
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
    """The running programs' ids along the first of `ndim` axes."""
    return current().programs.reshape((-1,) + (1,) * (ndim - 1))


def store(ptr: Value, value: Value, mask: Value | None, shape: tuple[int, ...]) -> None:
    """Store a block. Notes elements stored by two programs or lanes, and undefined lanes."""
    launch = current()
    # a store is done by each program: its lanes always have one row a program
    full = (len(launch.programs), *shape)
    context.check_width(int(np.prod(full, dtype=np.int64)) * 8)
    trace("store", ptr, mask, None, full)
    data = spread(value.data, full)
    poison = None if value.poison is None else spread(value.poison, full)
    launch.changes += 1
    for lanes in judge("store", ptr, mask, full):
        good: Any = lanes.good
        if good is None or good.all():
            good = ...
        index = np.broadcast_to(lanes.index, full)[good].reshape(-1)
        if not index.size:
            continue
        lanes.storage.typed(data.dtype)[index] = data[good].reshape(-1)
        bits = None if poison is None else poison[good].reshape(-1)
        mark(lanes.storage, index, data.dtype.itemsize, bits, "store", ptr.base)
        programs = np.broadcast_to(column(len(full)), full)[good].reshape(-1)
        _own(lanes.storage, index, data.dtype.itemsize, programs, ptr.base)


def mark(
    storage: Storage,
    index: np.ndarray,
    size: int,
    bits: np.ndarray | None,
    access: str,
    operand: Operand | None,
) -> None:
    """Keep account of which elements are defined after a store; `bits` are the poison stored."""
    launch = current()
    if bits is not None and bits.any():
        if storage.undefined is None:
            storage.undefined = np.zeros(storage.data.size, np.bool_)
        bad = bits != 0
        launch.events.append(
            Event(
                kind="undefined_stored",
                where=context.where(),
                operand=operand,
                access=access,
                axis=None,
                programs=launch.programs,
                lanes=int(bad.sum()),
                storage=storage,
                elements=index[bad] * size,
                bits=bits[bad],
            )
        )
    undefined = storage.undefined_elements(size)
    if undefined is not None:
        every_byte = int.from_bytes(b"\x01" * size, "little")
        undefined[index] = 0 if bits is None else np.where(bits != 0, every_byte, 0)


def _own(
    storage: Storage, index: np.ndarray, size: int, programs: np.ndarray, operand: Operand | None
) -> None:
    """Find elements stored twice: by two lanes of this store, or by two programs of the launch.

    A program that has read the element since adds to what the other stored; that is accumulation.
    """
    launch = current()
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
        _race(operand, "store", programs[foreign], "stores what another program reads")
        other &= reader != programs
    twice |= other
    if twice.any():
        launch.events.append(
            Event(
                kind="stored_twice",
                where=context.where(),
                operand=operand,
                access="store",
                axis=None,
                programs=np.unique(programs[twice]),
                lanes=int(twice.sum()),
                storage=storage,
                elements=index[twice] * size,
            )
        )
