"""Families of production kernels: the right ones pass; test_mutants.py judges the wrong ones."""

from __future__ import annotations

import pytest
from tests.corpora.families.table import FAMILIES, RIGHT
from tests.support.lanes import combine

from gemmproof.engine.kernel_check import check


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("kernel", "target"),
    [pytest.param(*row, id=f"{row[0].name}-{row[1]}") for row in combine(RIGHT, (None, "sm_90"))],
)
def test_a_right_kernel_passes(kernel, target):
    report = check(kernel, max_examples=40, target=target)
    assert [f.message for f in report.findings] == []
    assert report.verdict == "pass", report.note


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.title)
def test_a_family_has_three_wrong_kernels_or_more(family):
    assert len(family.wrong) >= 3
    assert len({mutant.wrapper for mutant in family.wrong}) == len(family.wrong)
