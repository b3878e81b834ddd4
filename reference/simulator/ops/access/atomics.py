"""Atomics: read-modify-write, program after program, lane after lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmproof.reference.observation import Unsupported
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.checks.judge import UNKNOWN, Lanes, element_of, judge, trace
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.memory import Argument, Storage, uninitialised_value
from gemmproof.reference.simulator.ops.access.load import load, mark_uninitialised
from gemmproof.reference.simulator.ops.access.store import mark_defined, record_readers
from gemmproof.reference.simulator.ops.floats import canonical
from gemmproof.reference.simulator.ops.registry import operation, refusal
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir.dtypes import I1, unsigned
from gemmproof.reference.ttir.module import Op

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
    if op.words[0] not in COMBINE:
        raise Unsupported(f"tt.atomic_rmw {op.words[0]} is not known to the tile simulator")
    word, shape = op.words[0], op.operand_types[0].shape

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
    """One read of tt.atomic_poll: whether every lane holds the expected value, and which do."""
    shape = op.operand_types[0].shape
    if len(op.operands) > 2:
        raise Unsupported(
            f"{refusal('tt.atomic_poll')}: with a timeout it depends on how fast a GPU is"
        )

    def compute(ptr: Value, expected: Value) -> tuple[Value, Value]:
        found = load(ptr, None, None, shape)
        seen = found.data == expected.data
        poison = union(found.poison, expected.poison)
        rows = seen.reshape(len(seen), -1).all(axis=1)
        bits = None
        if poison is not None:
            bits = np.bitwise_or.reduce(poison.reshape(len(poison), -1), axis=1)
        return Value(rows, I1, bits, loaded=found.loaded), Value(seen, I1, poison)

    return compute


def atomic(
    op: str,
    ptr: Value,
    value: Value,
    mask: Value | None,
    shape: tuple[int, ...],
    compare: Value | None = None,
) -> Value:
    """A read-modify-write of each lane; returns the old values.

    `op` is a key of COMBINE, or "cas" with `compare`. Lanes of one program that hit one element
    are combined in lane order. Adding to uninitialised memory leaves it undefined.
    """
    launch = current()
    launch.atomics = True
    dtype = element_of(ptr)
    full = (len(launch.programs), *shape)
    context.check_width(int(np.prod(full, dtype=np.int64)) * 8)
    trace("atomic", ptr, mask, None, full)
    flat_shape = (full[0], int(np.prod(full[1:], dtype=np.int64)))

    def flatten(part: np.ndarray) -> np.ndarray:
        return np.broadcast_to(part, full).reshape(flat_shape)

    compare = value if compare is None else compare
    new, want = flatten(value.data), flatten(compare.data)
    bits = flatten(value.marks() | compare.marks())
    old = np.full(flat_shape, uninitialised_value(dtype, launch.session.fill), new.dtype)
    unknown = np.zeros(flat_shape, np.uint8)
    for lanes in judge("atomic", ptr, mask, full):
        if launch.session.sampled:
            unknown |= context.poison_bit(UNKNOWN, ptr.base)
            continue
        index = flatten(lanes.index)
        good = np.ones(flat_shape, np.bool_) if lanes.good is None else flatten(lanes.good)
        for row in range(full[0]):
            at = np.flatnonzero(good[row])
            if not at.size:
                continue
            program = launch.programs[row : row + 1]
            record_readers(lanes.storage, index[row, at], new.dtype.itemsize, program, ptr.base)
            parts = (x[row, at] for x in (index, new, want, bits))
            old[row, at], unknown[row, at] = _update(op, lanes.storage, ptr.base, *parts)
    undefined = unknown.reshape(full) if unknown.any() else None
    return Value(old.reshape(full), dtype, undefined, loaded=8 * new.dtype.itemsize)


def _update(
    op: str,
    storage: Storage,
    operand: Argument | None,
    index: np.ndarray,
    new: np.ndarray,
    want: np.ndarray,
    bits: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """One program's update; returns the old values and their poison bits."""
    if len(index) > 1 and len(np.unique(index)) != len(index):  # lanes that collide
        single = (slice(i, i + 1) for i in range(len(index)))
        pairs = [_update(op, storage, operand, index[i], new[i], want[i], bits[i]) for i in single]
        return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])
    size = new.dtype.itemsize
    seen = storage.typed(new.dtype)[index]
    unknown = mark_uninitialised(Lanes(storage, index, None), size, operand)
    unknown = np.zeros(len(index), np.uint8) if unknown is None else unknown
    if op == "cas":
        after = np.where(unsigned(seen) == unsigned(want), new, seen)  # the hardware compares bits
    else:
        after = COMBINE[op](seen, new).astype(new.dtype)
    if after.tobytes() != seen.tobytes():
        current().changes += 1
    storage.typed(new.dtype)[index] = after
    mark_defined(storage, index, size, bits if op == "exch" else bits | unknown, "atomic", operand)
    return seen, unknown
