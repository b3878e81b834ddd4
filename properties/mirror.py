"""The property that a kernel touches what its mirror says, access by access."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from gemmproof.properties.finding import Finding, make_finding
from gemmproof.properties.observation import Observation
from gemmproof.reference.mirrors.access import Pid, Touch, first_difference
from gemmproof.reference.mirrors.launch import launch_of
from gemmproof.reference.mirrors.run import touches_of

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
    assert observation.trace is not None
    run = observation.calls[0].run
    tensors = (*(operand.tensor for operand in observation.operands.values()), run.result)
    a, b, c = (((t.shape[0], t.shape[1]), (t.stride(0), t.stride(1))) for t in tensors)
    launch = launch_of(a, b, c, run.launches[-1].constexprs)
    mirror = observation.kernel.mirror
    got = touches_by_program(observation.trace)
    stated = dict.fromkeys(mirror.pids(launch))
    for pid in [*stated, *(pid for pid in got if pid not in stated)]:
        expected = touches_of(mirror, launch, pid) if pid in stated else ()
        difference = first_difference(got.get(pid, ()), expected)
        if difference is not None:
            message = f"pid {pid}, {difference}"
            yield make_finding(observation, NAME, "access_differs", message=message)
            return


def touches_by_program(
    trace: Sequence[tuple[str, tuple[int, int, int], Any]],
) -> dict[Pid, list[Touch]]:
    """Accesses of every program, in order, from (kernel, grid, accesses of its programs).

    An access holds offsets and mask with a leading axis over `programs`, of length 1 where they
    are the same for all; programs are numbered with the grid's first axis innermost.
    """
    found: dict[Pid, list[Touch]] = defaultdict(list)
    for _, (x, y, _), accesses in trace:
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
