"""What lies beyond a contract is tried and told, and never fails a check."""

from __future__ import annotations

import pytest
import torch
from mutants.offsets import right, row_offset_of_a_in_32_bits
from wide import wide

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.properties.cases.beyond import list_beyond
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.report.report import Report

TILE = (16, 16, 16)


def strict(a, b):
    """Right for dense operands with K a multiple of 16 in fp16, and for nothing else."""
    assert a.is_contiguous(), "a must be contiguous"
    assert b.is_contiguous(), "b must be contiguous"
    assert a.shape[1] % 16 == 0, "K must be a multiple of 16"
    assert a.dtype == torch.float16, "fp16 only"
    return right(a, b)


def limits_of(wrapper, contract):
    report = check(KernelUnderTest("matmul", wrapper, contract), max_examples=4, limits=True)
    assert (report.verdict, report.findings) == ("pass", ())
    assert Report.from_json(report.to_json()) == report
    return {limit.name: limit for limit in report.limits}


def test_each_limit_names_what_stops_and_the_option_that_promises_it():
    limits = limits_of(strict, Contract(K="16..:16"))
    stopped = {name: limit for name, limit in limits.items() if limit.status == "limit"}
    assert list(stopped) == [
        "K not in 16..:16", "any strides", "bf16", "fp32", "tf32", "fp8e4m3", "fp8e5m2", "int8",
    ]  # fmt: skip
    assert stopped["K not in 16..:16"].option == "--sizes K=1.."
    assert "AssertionError: K must be a multiple of 16" in stopped["K not in 16..:16"].message
    assert stopped["any strides"].option == "--layouts any"
    assert stopped["any strides"].case.layouts
    assert limits["M = 0"].status == "holds"
    # huge views have strides: where those are refused, nothing is learned of spans
    assert "2**31 elements" not in limits


def test_a_kernel_that_takes_all_there_is_has_no_limits_but_its_formats():
    limits = limits_of(right, Contract())
    assert {n for n, x in limits.items() if x.status == "limit"} <= {
        "fp32",
        "fp8e4m3",
        "fp8e5m2",
        "int8",
    }
    assert limits["2**31 elements"].status == "holds"
    assert list(limits_of(right, wide()))[:1] == ["bf16"]  # nothing else lies beyond that


def test_offsets_that_wrap_are_a_limit_of_their_own():
    limits = limits_of(row_offset_of_a_in_32_bits, Contract(layouts="any"))
    assert limits["2**31 elements"].status == "limit"
    assert limits["2**31 elements"].option == "--huge"


def test_a_failing_kernel_is_not_tried_further():
    def wrong(a, b):
        return right(a, b) * 2

    report = check(KernelUnderTest("matmul", wrong, Contract()), max_examples=3, limits=True)
    assert (report.verdict, report.limits) == ("fail", ())


@pytest.mark.parametrize(
    "contract",
    [Contract(), Contract(batched=True), Contract(K="32..:32", N=1), Contract(where="M == N")],
    ids=str,
)
def test_what_lies_beyond_is_not_within(contract):
    steps = list(list_beyond(contract, TILE))
    assert steps
    for step in steps:
        assert step.cases
        assert not any(is_admitted(case, contract) for case in step.cases)
