"""What a contract promises of compiled code, judged after all cases, in the process of a check."""

from __future__ import annotations

import time
from dataclasses import replace

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import list_promised
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.report import Report


def judge_compiled(
    report: Report,
    kernel: KernelUnderTest,
    target: str | None,
    case: Case | None,
    most: int,
    began: float,
) -> Report:
    """The report with what becomes of these claims, and the seconds of all; at once without any.

    At most so many launches of a format and a GPU are compiled, or a few more (claims/plan.py).
    """
    if list_promised(kernel.contract):
        from gemmproof.lowering.claims.work import add_claims  # brings what few need

        report = add_claims(report, kernel, target, case, most)
    return replace(report, seconds=time.perf_counter() - began)
