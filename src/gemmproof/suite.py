"""What one test file of a project imports with `*`: an item per kernel, format and property."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from gemmproof.report.text import finding_text, proof_text

if TYPE_CHECKING:
    from gemmproof.plugin import GemmItem, Options
    from gemmproof.properties.cases.case import Case
    from gemmproof.report.report import Report

__all__ = ["test_gemm"]


@pytest.mark.gemm
def test_gemm(
    gemm_item: GemmItem,
    gemm_report: Report,
    gemm_reproduce: Callable[[Case], str],
    gemm_options: Options,
    record_property: Callable[[str, object], None],
) -> None:
    """The kernel has the property, over the cases of one format."""
    about = (gemm_item.property, gemm_item.backend)
    result = next((p for p in gemm_report.properties if (p.name, p.backend) == about), None)
    why = "not run: it applies to no drawn case, or only to cases that fail for another reason"
    reason = f"{gemm_item.property}: {gemm_report.note or why}"
    if result is None:  # nothing was launched, and the note says why
        pytest.fail(reason, pytrace=False)
    if said := proof_text(result):
        record_property("proof", said)
    not_due = result.status == "not run" and gemm_options.case is not None
    if gemm_item.backend == "cuda":  # a case that fails when simulated is not launched
        not_due &= gemm_report.verdict == "pass"
    found = [f for f in gemm_report.findings if (f.property, f.backend) == about]
    if gemm_item.kernel.device_only and gemm_item.property == "runs_to_completion":
        # of what the simulator does see of it, and what has no item of its own
        found += [f for f in gemm_report.findings if f.backend == "simulator"]
    if not found and (not_due or (result.status == "pass" and not result.is_disputed)):
        return
    failures = [
        finding_text(gemm_item.kernel.name, finding, result.claim, gemm_reproduce)
        for finding in found
    ]
    pytest.fail("\n\n".join(failures) or reason, pytrace=False)
