"""What a kernel does beyond its contract: a limit where it stops, which is never a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gemmproof.engine.judge import Judged
from gemmproof.properties.cases.beyond import Beyond, list_beyond, list_keywords
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest, Misstated
from gemmproof.reference.spec import SpecError
from gemmproof.reference.work import counted_seconds
from gemmproof.report.report import Limit

SECONDS = 20.0  # counted, for all that lies beyond; what is not reached is said to be not tried

Judge = Callable[[KernelUnderTest, Case, Beyond], Judged]


@dataclass(frozen=True, slots=True)
class Stop:
    """A step beyond a contract with what became of it, and the finding where it is a limit."""

    step: Beyond
    limit: Limit
    finding: Finding | None = None


def find_limits(kernel: KernelUnderTest, tile: Tile, judge: Judge) -> Iterator[Stop]:
    """For every step beyond the contract, whether it holds, or the first case that shows a limit.

    Where other strides are a limit, a misaligned base and spans are not tried: they are views too.
    """
    until, limited = counted_seconds() + SECONDS, set()
    for step in (*list_keywords(kernel, tile), *list_beyond(kernel.contract, tile)):
        if "any strides" in limited and step.words.get("layouts") == ANY:
            continue
        if counted_seconds() > until:
            yield Stop(step, Limit(step.name, step.option, "not tried", "no time was left"))
            continue
        stop = _try(kernel, step, judge)
        if stop.limit.status != "holds":
            limited.add(step.name)
        yield stop


def _try(kernel: KernelUnderTest, step: Beyond, judge: Judge) -> Stop:
    def say(status: str, why: str = "", case: Case | None = None) -> Stop:
        return Stop(step, Limit(step.name, step.option, status, why, case))

    wider = step.widen(kernel)
    for case in step.cases:
        try:
            judged = judge(wider, case, step)
        except (Misstated, SpecError) as mistake:  # it need not hold where nothing is promised
            return say("not tried", str(mistake), case)
        root = next((f for f in judged.findings if f.cause is None), None)
        if root is not None:
            return replace(say("limit", root.message, case), finding=root)
        if judged.raised is not None:  # the simulator does not know what the kernel does there
            return say("not tried", judged.raised.text, case)
        if case.is_sampled and not judged.followed:
            why = "what the call does depends on elements of so large a result"
            return say("not tried", why, case)
    return say("holds")
