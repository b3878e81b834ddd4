"""Loads: every lane is judged, then read where that is allowed.

A lane that is not allowed never reads real memory: its value is undefined.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.checks.blame import beyond_view
from gemmproof.reference.simulator.checks.judge import (
    MASKED,
    STRAY,
    UNKNOWN,
    UNPADDED,
    UNWRITTEN,
    Lanes,
    all_inside,
    element_of,
    judge,
    trace,
)
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.memory import Argument, uninitialised_value
from gemmproof.reference.simulator.ops.access.store import program_column, record_readers
from gemmproof.reference.simulator.ops.dots.shared_tiles import Shared, Tiles, find_shared
from gemmproof.reference.simulator.ops.outer import combine, parts_of
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir.dtypes import Dtype


def load(ptr: Value, mask: Value | None, fill: Value | None, shape: tuple[int, ...]) -> Value:
    """Load through a block of pointers; masked-off lanes hold `fill`, or are undefined."""
    launch = current()
    dtype = element_of(ptr)
    np_type = dtype.numpy
    operands = [x for x in (ptr, mask, fill) if x is not None]
    full = (max(len(part) for x in operands for part in parts_of(x)), *shape)
    trace("load", ptr, mask, fill, full)
    plain = _plain_load(ptr, mask, fill, dtype)
    if plain is not None:
        return plain
    context.check_width(int(np.prod(full, dtype=np.int64)) * max(8, np_type.itemsize))
    found = judge("load", ptr, mask, full)
    data: np.ndarray = np.broadcast_to(uninitialised_value(dtype, launch.session.fill), full)
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
        stray = ~done if off is None else ~done & ~off
        if stray.any():
            poison = union(poison, stray * context.poison_bit(STRAY, ptr.base))
    if data.shape != full:
        data = np.broadcast_to(data, full)
    if ptr.poison is not None:
        poison = union(poison, _hint_bits(ptr, mask, full))
    if launch.session.sampled and mask is not None and mask.poison is not None:
        poison = union(poison, np.broadcast_to(mask.poison, full))
    return Value(data, dtype, poison, loaded=8 * np_type.itemsize)


def _plain_load(ptr: Value, mask: Value | None, fill: Value | None, dtype: Dtype) -> Value | None:
    """The value of a load that is plainly right, or None where `judge` has to look closer.

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
    if same is not None:
        return Tiles(Shared(data, same[1]), dtype)
    return Value(data, dtype, loaded=8 * np_type.itemsize)


def _hint_bits(ptr: Value, mask: Value | None, full: tuple[int, ...]) -> np.ndarray:
    """Poison of lanes loaded from an address that a hint misdescribes: the operand is now known."""
    assert ptr.poison is not None
    before = np.broadcast_to(ptr.poison, full) & context.hint_bits()
    if mask is not None:
        before = np.where(np.broadcast_to(mask.data, full), before, np.uint8(0))
    bits = np.zeros(full, np.uint8)
    for i, origin in context.origins_by_bit(current().session).items():
        lanes = (before >> i) & 1 == 1
        if origin.kind == "false_hint" and lanes.any():
            named = origin if origin.operand is not None else replace(origin, operand=ptr.base)
            bits |= lanes * context.origin_bit(named)
    return bits


def mark_uninitialised(lanes: Lanes, size: int, operand: Argument | None) -> np.ndarray | None:
    """Poison for lanes that read uninitialised memory, or memory that a sampled call lacks."""
    if not current().session.knows(lanes.storage):
        return np.ones(lanes.index.shape, np.uint8) * context.poison_bit(UNKNOWN, operand)
    undefined = lanes.storage.undefined_elements(size)
    if undefined is None:
        return None
    unknown = undefined[lanes.index] != 0
    if lanes.good is not None:
        unknown &= lanes.good
    return unknown * context.poison_bit(UNWRITTEN, operand) if unknown.any() else None


def _masked_bits(ptr: Value, off: np.ndarray, size: int) -> np.ndarray:
    """Poison bits of masked-off lanes: by the axis along which they lie beyond the operand."""
    bits = np.zeros(off.shape, np.uint8)
    rest = off
    words = MASKED if current().box is None else UNPADDED
    if ptr.base is not None:
        address = np.broadcast_to(ptr.data, off.shape)
        for axis, lanes in beyond_view(ptr.base, address, off, size):
            bits |= lanes * context.poison_bit(words, ptr.base, axis)
            rest = rest & ~lanes
    if rest.any():
        bits |= rest * context.poison_bit(words, ptr.base)
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
