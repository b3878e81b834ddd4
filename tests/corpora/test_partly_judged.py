"""A wrong kernel that passes says what was not judged; a right one of 30 cases leaves nothing."""

from __future__ import annotations

import pytest
from tests.corpora.partly_judged.table import RIGHT, WRONG

from gemmproof.engine.kernel_check import check
from gemmproof.report.text import lines, list_gaps


@pytest.mark.parametrize("partly", WRONG, ids=lambda x: f"{x.kernel.name}-{x.gap}-{x.examples}")
def test_a_wrong_kernel_that_passes_names_what_was_not_judged(partly):
    report = check(partly.kernel, max_examples=partly.examples)
    assert (report.verdict, report.findings) == ("pass", ())
    gap = next(p for p in report.properties if p.name == partly.gap)
    assert (gap.status, gap.is_gap) == ("not exercised", True)
    assert gap.why.startswith("no case had ")
    verdict = lines(report, str)[-1][0]
    assert verdict.startswith(f"{partly.kernel.name}: pass; not exercised: ")
    named = verdict.partition("not exercised: ")[2].partition(";")[0]
    assert partly.gap in named.split(", ")


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.name)
def test_a_right_kernel_of_thirty_cases_leaves_nothing_open(kernel):
    report = check(kernel, max_examples=30)
    assert [finding.message for finding in report.findings] == []
    assert (report.verdict, list_gaps(report)) == ("pass", [])
    assert "all" in lines(report, str)[-1][0]


def test_there_are_enough_of_them():
    assert len({partly.kernel.name for partly in WRONG}) >= 8
    assert len(RIGHT) >= 5
