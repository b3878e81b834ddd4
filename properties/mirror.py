"""The property that a kernel touches what its mirror says, access by access."""

from __future__ import annotations

from collections.abc import Iterator

from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome
from gemmproof.properties.traces import touches_by_program
from gemmproof.reference.mirrors.access import first_difference
from gemmproof.reference.mirrors.launch import launch_of
from gemmproof.reference.mirrors.run import touches_of

NAME = "mirror_equals_source"


def applies(outcome: Outcome) -> bool:
    """Whether the kernel has a mirror, the call ended and it launched something."""
    return (
        outcome.kernel.mirror is not None
        and outcome.trace is not None
        and outcome.result is not None
        and len(outcome.runs[0].launches) > 0
    )


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding: the first access, in program order, where source and mirror part ways."""
    assert outcome.trace is not None
    a, b = (operand.tensor for operand in outcome.operands)
    run = outcome.runs[0]
    launch = launch_of(
        ((a.shape[0], a.shape[1]), (a.stride(0), a.stride(1))),
        ((b.shape[0], b.shape[1]), (b.stride(0), b.stride(1))),
        (
            (run.result.shape[0], run.result.shape[1]),
            (run.result.stride(0), run.result.stride(1)),
        ),
        run.launches[-1].constexprs,
    )
    mirror = outcome.kernel.mirror
    got = touches_by_program(outcome.trace)
    stated = dict.fromkeys(mirror.pids(launch))
    for pid in [*stated, *(pid for pid in got if pid not in stated)]:
        expected = touches_of(mirror, launch, pid) if pid in stated else ()
        difference = first_difference(got.get(pid, ()), expected)
        if difference is not None:
            yield Finding(
                property=NAME,
                fault="access_differs",
                message=f"pid {pid}, {difference}",
                case=outcome.case,
            )
            return
