"""The line of the kernel that a wrong value comes from, read from the trace of a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gemmproof.properties.contract import ROLES
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values
from gemmproof.properties.observation import ObservedCase, word
from gemmproof.reference.arithmetic import Array

SHOWN = 3  # lines, where one operand is loaded on several
NOT_REPEATED = "not so when the call is repeated: it depends on an address, chance or kept state"


@dataclass(frozen=True, slots=True)
class _Stores:
    """The accesses that stored some elements: their kind, lines, and the programs in each launch.

    Programs are pairs of the launch's number and the program's. The kind is "" if kernels only
    stored the values that torch made the elements of.
    """

    kind: str
    lines: frozenset[str]
    programs: frozenset[tuple[int, int]]


def locate(finding: Finding, observation: ObservedCase) -> Finding:
    """Return a finding of values with its line: the load of operand a or b, else the store of c.

    `observation` is that of the finding's case, called once more with a trace. The finding is
    unchanged if no single line is the cause; if that call gives no wrong value, it says so.
    """
    run = observation.calls[0].run if observation.calls else None
    if finding.where is not None or run is None or not observation.has_result:
        return finding
    wrong = exact_values.mark_wrong(observation, finding.property)
    if not wrong.any():
        return replace(finding, message=f"{finding.message}; {NOT_REPEATED}")
    stores = _find_stores(observation, _addresses(observation.calls[0].given)[wrong])
    if stores is None:
        return finding
    if finding.operand in ROLES:
        lines = sorted(_find_loads(observation, str(finding.operand), stores.programs))
        if not lines:
            return finding
        shown = " and ".join(lines[:SHOWN])
        label = word(observation, str(finding.operand))
        message = f"{finding.message}; {label} is loaded at {shown}"
    else:
        lines = sorted(stores.lines)
        verb = {"": "made of what is stored", "atomic": "updated"}.get(stores.kind, "stored")
        prefix, _, rest = finding.message.partition(": ")
        if len(lines) > 1 or not prefix.startswith(f"{observation.result_name}["):
            return finding
        message = f"{prefix}, {verb} at {lines[0]}: {rest}"
    if len(lines) > 1:
        return replace(finding, message=message)
    accesses = (access.where for _, access in _accesses(observation))
    file = next(where.file for where in accesses if str(where) == lines[0])
    return replace(finding, message=message, where=lines[0], file=file)


def _addresses(result: torch.Tensor) -> Array:
    """Return the address of every element."""
    steps = [
        np.arange(n, dtype=np.int64) * stride
        for n, stride in zip(result.shape, result.stride(), strict=True)
    ]
    grid = np.zeros(tuple(result.shape), np.int64)
    for axis, step in enumerate(steps):
        grid += step.reshape([-1 if i == axis else 1 for i in range(grid.ndim)])
    return np.asarray(result.data_ptr() + grid * result.element_size())


def _find_stores(observation: ObservedCase, addresses: Array) -> _Stores | None:
    """Return the last stores to the addresses; else all stores; None if there are none."""
    distinct = np.unique(addresses)
    last = np.full(distinct.size, -1)
    programs = np.zeros(distinct.size, np.int64)
    accesses = [x for x in _accesses(observation) if x[1].kind != "load"]
    for number, (_, access) in enumerate(accesses):
        size = access.operand.view.itemsize
        address = access.operand.view.start + access.offsets * size
        program = access.programs.reshape(-1, *(1,) * (address.ndim - 1))
        address, program = np.broadcast_arrays(address, program)
        hit = np.isin(address, distinct)
        if access.mask is not None:
            hit &= access.mask
        at = np.searchsorted(distinct, address[hit])
        last[at], programs[at] = number, program[hit]
    if not accesses:
        return None
    if (last < 0).any():
        everyone = {(launch, int(p)) for launch, access in accesses for p in access.programs}
        lines = {str(access.where) for _, access in accesses}
        return _Stores("", frozenset(lines), frozenset(everyone))
    touched = [accesses[number][1] for number in np.unique(last)]
    kinds = {access.kind for access in touched}
    return _Stores(
        "atomic" if kinds == {"atomic"} else "store",
        frozenset(str(access.where) for access in touched),
        frozenset((accesses[n][0], int(p)) for n, p in zip(last, programs, strict=True)),
    )


def _find_loads(
    observation: ObservedCase, operand: str, programs: frozenset[tuple[int, int]]
) -> set[str]:
    """Return the lines on which these programs load an operand."""
    lines = set()
    for launch, access in _accesses(observation):
        if access.kind == "load" and access.operand.name == operand:
            running = {(launch, int(program)) for program in access.programs}
            if running & programs:
                lines.add(str(access.where))
    return lines


def _accesses(observation: ObservedCase) -> Iterator[tuple[int, Any]]:
    """Yield every traced access, with the number of its launch."""
    for number, (_, _, accesses) in enumerate(observation.trace or ()):
        for access in accesses:
            if access.where is not None:
                yield number, access
