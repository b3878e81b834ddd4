"""Cases beyond a contract are tried and reported, and never fail a check."""

import math
from pathlib import Path

import pytest
import torch
import triton
from tests.corpora.mutants.offsets import (
    right,
    row_offset_of_a_in_32_bits,
    row_offset_of_c_in_32_bits,
)
from tests.corpora.no_false_alarm.splitting import locked_kernel
from tests.support.wide import wide

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.backends.cuda import select_cases
from gemmproof.contract_search.steps import list_beyond
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import corners
from gemmproof.properties.cases.generate import Survey, is_admitted, vary
from gemmproof.properties.codec import dump, parse
from gemmproof.reference.formats import OPERANDS
from gemmproof.report.record import Report
from gemmproof.worker.load_kernel import load_registered

TILE = (16, 16, 16)

ROOT = Path(__file__).parents[2]


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
    assert parse(Report, dump(report), "report") == report
    return {limit.name: limit for limit in report.limits}


def find_refusal(message):
    """Return what the wrapper said, without its line and what pytest adds to an assertion."""
    return message.partition(": ")[2].partition(" assert ")[0]


def test_each_limit_names_what_stops_and_the_option_that_promises_it(texts):
    limits = limits_of(strict, Contract(K="16..:16"))
    stopped = {name: limit for name, limit in limits.items() if limit.status == "limit"}
    assert list(stopped) == [
        "K not in 16..:16", "any strides", "bf16", "fp32", "tf32", "fp8e4m3", "fp8e5m2", "int8",
    ]  # fmt: skip
    assert stopped["K not in 16..:16"].option == "--sizes K=1.."
    message = stopped["K not in 16..:16"].message
    texts("a size that a wrapper refuses", find_refusal(message))
    assert stopped["any strides"].option == "--layouts any"
    assert stopped["any strides"].case.layouts
    assert limits["M = 0"].status == "holds"
    # huge views have strides: where those are refused, nothing is learned of spans
    assert "2**31 elements" not in limits


@pytest.mark.lane("full")
def test_a_kernel_that_takes_all_there_is_has_no_limits_but_its_formats():
    limits = limits_of(right, Contract())
    stopped = {name for name, limit in limits.items() if limit.status == "limit"}
    assert stopped <= {"fp32", "fp8e4m3", "fp8e5m2", "int8"}
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


@pytest.mark.lane("full")
def test_a_result_of_2_31_elements_is_a_limit_of_dense_kernels_too():
    limits = limits_of(row_offset_of_c_in_32_bits, Contract())
    assert limits["2**31 elements of c"].status == "limit"
    assert limits["2**31 elements of c"].option == "--huge"
    assert limits["2**31 elements of c"].case.is_sampled
    assert limits["2**31 elements"].status == "limit"  # its options promise that, too
    assert limits["2**31 elements"].option == "--huge --layouts any"
    held = limits_of(strict, Contract(K="16..:16"))["2**31 elements of c"]
    assert held.status == "holds"


@pytest.mark.lane("full")
def test_what_a_few_programs_cannot_show_is_not_said_to_hold():
    limits = limits_of(turns_kept_for_every_tile, Contract())
    assert limits["2**31 elements of c"].status == "not tried"


def turns_kept_for_every_tile(a, b):
    """Slices add to c in turn, under a lock for each tile."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), 3)
    turns = torch.zeros(grid[0] * grid[1], dtype=torch.int32, device=a.device)
    strides = a.stride(), b.stride(), c.stride()
    locked_kernel[grid](a, b, c, turns, M, N, K, *strides, triton.cdiv(K, 48) * 16, BLOCK=16)
    return c.to(a.dtype)


@pytest.mark.parametrize("layouts", ["contiguous", "any"])
def test_a_sampled_case_is_judged_by_what_single_programs_show(layouts):
    contract = Contract(layouts=layouts, huge=True)
    case = Case(65536, 32769, 1)
    for wrapper, verdict in ((right, "pass"), (row_offset_of_c_in_32_bits, "fail")):
        report = check(KernelUnderTest("matmul", wrapper, contract), case=case)
        assert report.verdict == verdict
        judged = {p.name for p in report.properties if p.examples}
        assert judged == {"compiles", "stays_in_bounds", "offsets_fit"}
    (finding,) = report.findings
    assert (finding.property, finding.operand, finding.axis) == ("offsets_fit", "c", "M")


@pytest.mark.lane("full")
def test_a_refusal_of_so_large_a_result_breaks_the_promise(texts):
    def refuses(a, b):
        assert a.shape[0] * b.shape[1] < 2**31, "c is too large"
        return right(a, b)

    report = check(KernelUnderTest("matmul", refuses, Contract(huge=True)), max_examples=60)
    assert [f.property for f in report.findings] == ["runs_to_completion"]
    texts("a result that a wrapper refuses", find_refusal(report.findings[0].message))
    assert report.findings[0].case.is_sampled


def list_sampled(contract):
    sampled = [c for c in corners(contract, Survey(), "fp16") if c.is_sampled]
    assert all(math.prod(c.result_shape) > 2**31 for c in sampled)
    assert all((c.layouts, c.calls, c.compare) == ((), 1, None) for c in sampled)
    return [(c.M, c.N, c.K, c.batch) for c in sampled]


def test_so_large_a_result_is_drawn_where_offsets_from_2_31_are_promised():
    assert list_sampled(wide()) == [(57344, 57344, 1, None), (57343, 57341, 1, None)]
    assert list_sampled(Contract(huge=True)) == list_sampled(wide())
    assert list_sampled(wide(huge=False)) == list_sampled(Contract()) == []
    assert not is_admitted(Case(57344, 57344, 1), wide(huge=False))
    batches = {batch for *_, batch in list_sampled(wide(batched=True))}
    assert batches == {1, 3}
    assert {b for *_, b in list_sampled(wide(batched=True, M="..2048", N="..2048"))} == {800}


def test_so_large_a_result_has_sizes_of_its_contract_or_there_is_none():
    assert list_sampled(wide(M="..49152")) == [(49152, 57344, 1, None), (49152, 57341, 1, None)]
    assert list_sampled(wide(N="128..:128", K="64..:64"))[0] == (57344, 57344, 64, None)
    assert list_sampled(Contract(where=lambda M, N, K: M == N, huge=True))[0][:2] == (57344, 57344)
    for small in (wide(M="..32767"), wide(N=1), wide(K=4096), wide(M="..300", batched=True)):
        assert list_sampled(small) == []


def test_a_comparison_never_leads_from_a_whole_case_to_a_sampled_one():
    case = Case(8000, 8000, 1)
    assert vary(case, wide(), M=8001) is not None
    assert vary(case, wide(), M=16000, N=16000) is None
    assert not any(c.is_sampled for c in select_cases([case, Case(57344, 57344, 1)]))


@pytest.mark.parametrize("kernel", load_registered(str(ROOT / "conftest.py")), ids=lambda k: k.name)
def test_each_step_beyond_a_contract_of_ours_is_a_contract(kernel):
    """Sums in units of 13 bits are those of fp8 alone: no step adds a format that has no such."""
    steps = list(list_beyond(kernel.contract, Survey().tiles[0][0]))
    assert all(step.apply(kernel).contract != kernel.contract for step in steps)
    if kernel.contract.accumulator == "e8m13":
        assert {step.name for step in steps} & set(OPERANDS) == {"fp8e4m3", "fp8e5m2"} - {
            *kernel.contract.formats
        }
