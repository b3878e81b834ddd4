"""The property that a kernel touches what its mirror says, access by access."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gemmproof.properties.finding import Finding, make_finding
from gemmproof.properties.observation import Observation
from gemmproof.reference.mirrors.mirrored_launch import (
    MirrorCall,
    MirrorTensor,
    Pid,
    Touch,
    first_difference,
)

NAME = "mirror_equals_source"


def applies(observation: Observation) -> bool:
    """Whether the call ended and it launched something."""
    return (
        observation.trace is not None
        and observation.has_result
        and len(observation.calls[0].run.launches) > 0
    )


def judge(observation: Observation) -> Iterator[Finding]:
    """One finding: the first access, in program order, where source and mirror differ."""
    difference = find_difference(observation)
    if difference is not None:
        yield make_finding(observation, NAME, "access_differs", message=difference)


def find_difference(observation: Observation) -> str | None:
    """Where the first call first differs from what its mirror states, None if it does not."""
    trace = observation.trace
    assert trace is not None
    stated = observation.kernel.mirror(describe_call(observation))
    if len(trace) != len(stated):
        return f"launches: got {len(trace)}, expected {len(stated)}"
    for (kernel, grid, accesses), launch in zip(trace, stated, strict=True):
        got = touches_by_program(grid, accesses)
        pids = dict.fromkeys(launch.pids())
        for pid in [*pids, *(pid for pid in got if pid not in pids)]:
            expected = launch.touches(pid) if pid in pids else ()
            difference = first_difference(got.get(pid, ()), expected)
            if difference is not None:
                where = f"{kernel}, " if len(stated) > 1 else ""
                return f"{where}pid {pid}, {difference}"
    return None


def describe_call(observation: Observation) -> MirrorCall:
    """The first call as its mirror is given it."""
    run = observation.calls[0].run
    tensors = {name: operand.tensor for name, operand in observation.operands.items()}
    constants: dict[str, object] = {}
    for launch in run.launches:
        constants |= {**launch.integers, **launch.constexprs}
    placed = {name: _place(tensor) for name, tensor in {**tensors, "c": run.result}.items()}
    return MirrorCall(placed, constants)


def _place(x: torch.Tensor) -> MirrorTensor:
    is_integer = not (x.dtype.is_floating_point or x.dtype.is_complex)
    values = x.numpy() if is_integer else None
    return MirrorTensor(tuple(x.shape), x.stride(), x.data_ptr(), x.element_size(), values)


def touches_by_program(
    grid: tuple[int, int, int], accesses: Sequence[Any]
) -> dict[Pid, list[Touch]]:
    """Accesses of every program of a launch, in order.

    An access holds offsets and mask with a leading axis over `programs`, of length 1 where they
    are the same for all; programs are numbered with the grid's first axis innermost.
    """
    found: dict[Pid, list[Touch]] = defaultdict(list)
    x, y, _ = grid
    for access in accesses:
        for row, program in enumerate(access.programs.tolist()):
            pid = (program % x, program // x % y, program // (x * y))
            offsets = access.offsets[row if len(access.offsets) > 1 else 0]
            mask = access.mask
            if mask is not None:
                mask = mask[row if len(mask) > 1 else 0]
            touch = Touch(access.kind, access.operand.name, offsets, mask, access.other, pid)
            found[pid].append(touch)
    return dict(found)
