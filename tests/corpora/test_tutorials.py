"""The four tutorials' kernels are judged as docs/results/four-tutorials.md says."""

from __future__ import annotations

import importlib

import pytest
from tests.support.wide import wide

from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest

DENSE = wide(layouts="contiguous")
BF16 = wide(formats=("bf16",), layouts="contiguous")
RIGHT = [
    ("masked_everywhere:matmul", BF16),
    ("cast_on_store:matmul", BF16),
    ("step_by_step:persistent", DENSE),
]
STRAYING = ["step_by_step:matmul", "any_layout:matmul"]


def check_tutorial(target: str, contract: Contract):
    module, _, function = target.partition(":")
    launch = getattr(importlib.import_module(f"tests.corpora.tutorials.{module}"), function)
    return check(KernelUnderTest(target, launch, contract), max_examples=40)


@pytest.mark.lane("full")
@pytest.mark.parametrize(("target", "contract"), RIGHT, ids=lambda x: str(x)[:30])
def test_a_tutorial_that_is_right_for_what_it_promises(target, contract):
    report = check_tutorial(target, contract)
    assert [f.message for f in report.findings] == []
    assert report.verdict == "pass"


@pytest.mark.parametrize("target", STRAYING)
def test_two_read_rows_of_a_beyond_m_and_columns_of_b_beyond_n(target):
    report = check_tutorial(target, DENSE)
    findings = {(f.operand, f.axis): f for f in report.findings if f.cause is None}
    assert set(findings) == {("a", "M"), ("b", "N")}
    assert {f.property for f in findings.values()} == {"stays_in_bounds"}
    assert {f.case for f in findings.values()} == {Case(1, 1, 1)}


def test_one_rounds_fp16_operands_to_bf16():
    first = check_tutorial("masked_everywhere:matmul", DENSE).findings[0]
    assert (first.property, first.fault) == ("within_bound", "rounding")
