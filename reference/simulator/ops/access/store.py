"""Stores, and the record of which program stored or read each element.

A stray store is dropped. What was wrong is noted as a sighting of the launch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.checks.judge import judge, trace
from gemmproof.reference.simulator.checks.sightings import note
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.memory import Argument, Storage
from gemmproof.reference.simulator.value import Value


def program_column(ndim: int) -> np.ndarray:
    """The running programs' ids along the first of `ndim` axes."""
    return current().programs.reshape((-1,) + (1,) * (ndim - 1))


def store(ptr: Value, value: Value, mask: Value | None, shape: tuple[int, ...]) -> None:
    """Store a block. Notes elements stored by two programs or lanes, and undefined lanes."""
    launch = current()
    # every program stores: the lanes always have one row for each
    full = (len(launch.programs), *shape)
    context.check_width(int(np.prod(full, dtype=np.int64)) * 8)
    trace("store", ptr, mask, None, full)
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
    """Record which elements are defined after a store; `bits` are the poison stored."""
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
    """Record who reads or updates elements, and note those that another program stored.

    Nothing orders the two, unless a branch of the launch depends on what it loaded (grid.py drops
    the sightings then).
    """
    if size in storage.owners:
        owner = storage.owners[size][index]
        foreign = (owner >= 0) & (owner != programs)
        words = "reads or updates what another program stores"
        note_race(operand, "load", np.broadcast_to(programs, foreign.shape)[foreign], words)
    storage.ledger("readers", size)[index] = programs


def note_race(operand: Argument | None, access: str, programs: np.ndarray, words: str) -> None:
    """Note that programs access the same elements with nothing to order them."""
    if programs.size:
        note(
            "race",
            access,
            np.unique(programs),
            int(programs.size),
            operand=operand,
            got=f"a program {words} in the same launch",
            expected="an order between the two",
        )
