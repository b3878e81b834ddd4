"""What one test file of a project imports with `*`: an item per kernel, format and property."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from gemmproof.render import clean, finding_text

if TYPE_CHECKING:
    from gemmproof.plugin import GemmItem
    from gemmproof.properties.case import Case
    from gemmproof.results import Report

__all__ = ["test_drift", "test_gemm"]


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


@pytest.mark.gemm
def test_drift(gemm_drift_item: GemmItem, gemm_target: str | None) -> None:
    """The kernel sums in the accumulator that it declares, and within its bound at every K."""
    from gemmproof.cli import UNMODELLED
    from gemmproof.drift import drift_of
    from gemmproof.reference.accumulator.probes import Unprobed
    from gemmproof.reference.simulator import SimulatorError

    if gemm_target in UNMODELLED:
        pytest.skip(f"{gemm_target} has no model of its matrix cores")
    kernel, name = gemm_drift_item.kernel, gemm_drift_item.format
    try:
        report = drift_of(kernel, name, target=gemm_target or "sm_90")
    except (SimulatorError, Unprobed) as error:
        pytest.fail(f"{kernel.name} at {name}: {error}", pytrace=False)
    told = [f"{kernel.name} drifts more than declared: {f.message}" for f in report.findings]
    if told:
        pytest.fail(clean("\n".join(told)), pytrace=False)
