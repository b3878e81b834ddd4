"""What a traced launch touches by its formulas, evaluated for every program, trip and lane."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gemmproof.reference.symbolic.definitions import LANE
from gemmproof.reference.symbolic.machine.launch import follow
from gemmproof.reference.symbolic.machine.refusal import NotFollowed
from gemmproof.reference.symbolic.terms import evaluate, walk

MOST_LANES = 3_000_000
MOST_TRIPS = 400


class Left(Exception):
    """Why a launch is not compared."""


@dataclass
class Touches:
    """How often each (kind, tensor, program, element) is touched, and how many lanes that is."""

    count: Counter
    lanes: int = 0


def follow_all(path):
    """The machines of a path's launches. Raises Left."""
    machines = []
    for number, launch in enumerate(path.launches):
        try:
            machines.append(follow(launch, number))
        except NotFollowed as why:
            raise Left(f"not followed: {why}") from None
    for machine in machines:
        for access in machine.accesses:
            named = walk(access.term, access.mask, access.path, *ranges(machine, access.trips))
            for atom in named:
                if atom.kind == "unknown":
                    raise Left(f"unknown: {atom.args[0]}")
                if atom.kind == "symbol" and atom.args[0] == "trips":
                    raise Left("behind a while loop")
    return machines


def ranges(machine, trips):
    return [machine.known[trip] for trip in trips if trip in machine.known]


def list_trips(machine, trips, values):
    """Every tuple of trips at which loops in one another are, of one program."""
    if not trips:
        yield {}
        return
    *outer, inner = trips
    for at in list_trips(machine, outer, values):
        for n in range(MOST_TRIPS + 1):
            here = {**at, inner: n}
            if not bool(evaluate(machine.known[inner], {**values, **here})):
                break
            if n == MOST_TRIPS:
                raise Left("too many trips")
            yield here


def evaluate_accesses(machine, values):
    """What one launch touches where symbols have these values."""
    grid = [int(evaluate(n, values)) for n in machine.grid]
    found = Touches(Counter())
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                here = dict(values)
                for pid, n in zip(machine.pids, (x, y, z), strict=True):
                    if pid.atom is not None:
                        here[pid.atom] = n
                number = x + grid[0] * (y + grid[1] * z)
                for access in machine.accesses:
                    for at in list_trips(machine, access.trips, here):
                        _touch(found, access, {**here, **at}, number)
                        if found.lanes > MOST_LANES:
                            raise Left("too many lanes")
    return found


def _touch(found, access, values, program):
    lanes = {}
    shape = access.shape
    for atom in walk(access.term, access.mask, access.path):
        if atom.kind == "symbol" and atom.args[0] == LANE:
            axis, size = atom.args[1], atom.args[2]
            assert shape[axis] == size, (atom, shape)
            lanes[atom] = np.arange(size).reshape((size,) + (1,) * (len(shape) - axis - 1))
    values, memo = {**values, **lanes}, {}
    if not bool(np.all(evaluate(access.path, values, memo))):
        return
    mask = np.broadcast_to(evaluate(access.mask, values, memo), shape)
    offsets = np.broadcast_to(evaluate(access.term, values, memo), shape)
    found.lanes += max(mask.size, 1)
    elements, counts = np.unique(offsets[mask], return_counts=True)
    key = (access.kind, access.tensor.name, program)
    for element, n in zip(elements.tolist(), counts.tolist(), strict=True):
        found.count[*key, element] += n


def count_touches(accesses):
    """The same of what the simulator traced of one launch, by the parameters' own names."""
    count = Counter()
    for access in accesses:
        for row, program in enumerate(access.programs.tolist()):
            offsets = access.offsets[row if len(access.offsets) > 1 else 0]
            if access.mask is not None:
                mask = access.mask[row if len(access.mask) > 1 else 0]
                offsets = np.broadcast_to(offsets, np.broadcast_shapes(offsets.shape, mask.shape))
                offsets = offsets[np.broadcast_to(mask, offsets.shape)]
            elements, counts = np.unique(offsets, return_counts=True)
            for element, n in zip(elements.tolist(), counts.tolist(), strict=True):
                count[access.kind, access.operand.name, program, element] += n
    return count
