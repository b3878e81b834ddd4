"""Right kernels in suspicious styles pass every property.

GEMMPROOF_EXAMPLES=500 judges each by 500 cases; without it they are few enough for every push.
"""

from __future__ import annotations

import os

import pytest
from tests.corpora.no_false_alarm.table import KERNELS, LANES

from gemmproof.engine.kernel_check import check

EXAMPLES = int(os.environ.get("GEMMPROOF_EXAMPLES", "40"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kernel",
    [pytest.param(k, id=k.name, marks=pytest.mark.lane(LANES[k.name])) for k in KERNELS],
)
def test_a_right_kernel_is_not_accused(kernel):
    examples = max(EXAMPLES // len(kernel.contract.formats), 1)
    report = check(kernel, max_examples=examples, seed=1)
    assert [f.message for f in report.findings] == []
    assert report.verdict == "pass"
    assert report.note is None


def test_there_are_enough_of_them_and_all_are_different():
    assert len(KERNELS) >= 25
    assert len({k.launch for k in KERNELS}) == len(KERNELS)
