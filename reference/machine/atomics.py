"""Atomics: read-modify-write, program after program, lane after lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.access import mark, meet, put, rows
from gemmproof.reference.machine.judging import (
    UNWRITTEN,
    as_mask,
    element_type,
    judge,
    lanes_shape,
    spread,
    trace,
)
from gemmproof.reference.machine.memory import Operand, Storage, dirt
from gemmproof.reference.machine.value import Value, lift, union

COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda old, new: old + new,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, new: new,
}


def atomic(
    op: str, ptr: Value, value: Any, mask: Any = None, compare: Value | None = None
) -> Value:
    """A read-modify-write of each lane; returns the old values.

    `op` is a key of COMBINE, or "cas" with `compare`. Lanes of one program that meet on an element
    are combined in lane order. Adding to memory that nothing has stored leaves it undefined.
    """
    part = execution.current()
    part.atomics = True
    dtype = element_type(ptr)
    mask = as_mask(mask)
    value = execution.vocabulary().convert(lift(value), dtype)
    if compare is not None:
        compare = execution.vocabulary().convert(compare, dtype)
    full = rows(lanes_shape(ptr, value, mask, compare))
    trace("atomic", ptr, mask, None, full)
    flat_shape = (full[0], int(np.prod(full[1:], dtype=np.int64)))
    new = spread(value.data, full).reshape(flat_shape)
    want = None if compare is None else spread(compare.data, full).reshape(flat_shape)
    poison = union(value.poison, None if compare is None else compare.poison)
    bits = np.zeros(flat_shape, np.uint8)
    if poison is not None:
        bits = spread(poison, full).reshape(flat_shape)
    old = np.full(flat_shape, dirt(dtype, part.session.dirt), new.dtype)
    unknown = np.zeros(flat_shape, np.uint8)
    for lanes in judge("atomic", ptr, mask, full):
        index = np.broadcast_to(lanes.index, full).reshape(flat_shape)
        good = np.ones(flat_shape, np.bool_)
        if lanes.good is not None:
            good = np.broadcast_to(lanes.good, full).reshape(flat_shape)
        for row in range(full[0]):
            at = np.flatnonzero(good[row])
            if not at.size:
                continue
            wanted = None if want is None else want[row, at]
            program = part.programs[row : row + 1]
            meet(lanes.storage, index[row, at], new.dtype.itemsize, program, ptr.base)
            old[row, at], unknown[row, at] = _update(
                op, lanes.storage, index[row, at], new[row, at], wanted, bits[row, at], ptr.base
            )
    undefined = unknown.reshape(full) if unknown.any() else None
    return Value(old.reshape(full), dtype, undefined, loaded=8 * new.dtype.itemsize)


def _update(
    op: str,
    storage: Storage,
    index: np.ndarray,
    new: np.ndarray,
    want: np.ndarray | None,
    bits: np.ndarray,
    operand: Operand | None,
) -> tuple[np.ndarray, np.ndarray]:
    """One program's update; returns the old values and their poison bits."""
    if len(index) > 1 and len(np.unique(index)) != len(index):  # lanes that meet
        pairs = [
            _update(
                op,
                storage,
                index[i : i + 1],
                new[i : i + 1],
                None if want is None else want[i : i + 1],
                bits[i : i + 1],
                operand,
            )
            for i in range(len(index))
        ]
        return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
    size = new.dtype.itemsize
    seen = storage.typed(new.dtype)[index]
    undefined = storage.undefined_elements(size)
    unknown = np.zeros(len(index), np.uint8)
    if undefined is not None:
        missing = undefined[index].any(axis=1)
        if missing.any():
            unknown = missing * execution.source(UNWRITTEN, operand)
    if op == "cas":
        assert want is not None
        after = np.where(seen == want, new, seen)
    else:
        after = COMBINE[op](seen, new).astype(new.dtype)
    if (after != seen).any():
        execution.current().spins = 0
    put(storage, index, after)
    mark(storage, index, size, bits if op == "xchg" else bits | unknown, "atomic", operand)
    return seen, unknown
