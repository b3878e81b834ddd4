"""What one test file of a project imports with `*`: an item per kernel, format and property."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from gemmproof.report.text import finding_text

if TYPE_CHECKING:
    from gemmproof.plugin import GemmItem
    from gemmproof.properties.cases.case import Case
    from gemmproof.report.report import Report

__all__ = ["test_gemm"]


@pytest.mark.gemm
def test_gemm(
    gemm_item: GemmItem,
    gemm_report: Report,
    gemm_reproduce: Callable[[Case], str],
    gemm_case: Case | None,
) -> None:
    """The kernel has the property, over the cases of one format."""
    result = next(p for p in gemm_report.properties if p.name == gemm_item.property)
    if result.status == "pass" or (gemm_case is not None and result.status == "not run"):
        return
    told = [
        finding_text(gemm_item.kernel.name, finding, result.claim, gemm_reproduce)
        for finding in gemm_report.findings
        if finding.property == gemm_item.property
    ]
    bare = "not run: no case of those drawn bears on it, or each that does fails otherwise"
    reason = f"{gemm_item.property}: {gemm_report.note or bare}"
    pytest.fail("\n\n".join(told) or reason, pytrace=False)
