"""Cases that failed before are tried before any is drawn, and count apart from those."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gemmproof.engine.judge import Judged
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.kernel import KernelUnderTest, Misstated


def try_first(
    kernel: KernelUnderTest,
    cases: Iterable[Case],
    judge: Callable[[Case, str], Judged],
    tell: Callable[[dict[str, Any]], None],
) -> list[Judged]:
    """Judge the cases that the contract still admits, and tell which need not be kept any longer.

    Those are the ones that it does not admit, and the ones that hold now. A case of which nothing
    is known now stays.
    """
    tried, dropped = [], []
    for case in cases:
        judged = _judge(kernel, case, judge)
        if judged is None or (judged.applied and not judged.findings):
            dropped.append(case.to_json())
        if judged is not None:
            tried.append(judged)
    if tried or dropped:
        tell({"event": "kept", "tried": len(tried), "dropped": dropped})
    return tried


def _judge(
    kernel: KernelUnderTest, case: Case, judge: Callable[[Case, str], Judged]
) -> Judged | None:
    """What becomes of a case; None where the kernel no longer takes it."""
    try:
        kernel.require(case)
    except ValueError:
        return None
    if not is_admitted(case, kernel.contract):
        return None
    try:
        judged = judge(case, "kept")
        judged.require_config()
    except Misstated:
        return None
    return judged
