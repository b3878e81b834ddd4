"""What a kernel does beyond its contract: a limit where it stops, which is never a finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gemmproof.engine.judge import Judged
from gemmproof.properties.cases.beyond import Beyond, list_beyond, list_keywords
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.operand import Misstated
from gemmproof.reference.spec import SpecError
from gemmproof.report.report import Limit

SECONDS = 20.0  # for all that lies beyond; what is not reached is said to be not tried

Judge = Callable[[KernelUnderTest, Case, Beyond], Judged]


def find_limits(kernel: KernelUnderTest, tile: Tile, judge: Judge) -> Iterator[Limit]:
    """For every step beyond the contract, whether it holds, or the first case that shows a limit.

    Where other strides are a limit, a misaligned base and spans are not tried: they are views too.
    """
    until, limited = time.monotonic() + SECONDS, set()
    for step in (*list_keywords(kernel, tile), *list_beyond(kernel.contract, tile)):
        if "any strides" in limited and step.words.get("layouts") == ANY:
            continue
        if time.monotonic() > until:
            yield Limit(step.name, step.option, "not tried", "no time was left")
            continue
        limit = _try(kernel, step, judge)
        if limit.status != "holds":
            limited.add(step.name)
        yield limit


def _try(kernel: KernelUnderTest, step: Beyond, judge: Judge) -> Limit:
    wider = step.widen(kernel)
    for case in step.cases:
        try:
            judged = judge(wider, case, step)
        except (Misstated, SpecError) as mistake:  # it need not hold where nothing is promised
            return Limit(step.name, step.option, "not tried", str(mistake), case)
        root = next((f for f in judged.findings if f.cause is None), None)
        if root is not None:
            return Limit(step.name, step.option, "limit", root.message, case)
        if judged.raised is not None:  # the simulator does not know what the kernel does there
            return Limit(step.name, step.option, "not tried", judged.raised.text, case)
        if case.is_sampled and not judged.followed:
            why = "what the call does depends on elements of so large a result"
            return Limit(step.name, step.option, "not tried", why, case)
    return Limit(step.name, step.option, "holds")
