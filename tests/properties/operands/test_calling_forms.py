"""out=, results in place, several results, alpha and beta, operands left out, modules."""

import re

import numpy as np
import pytest
from tests.corpora.families import calling_forms as called
from tests.corpora.mutants import promises

from gemmproof import Contract, KernelUnderTest, OneOf, Operand, check
from gemmproof.kernels import matmul
from gemmproof.properties.cases.case import Case
from gemmproof.target import TargetError
from gemmproof.worker.load_kernel import read_case

ANY = Contract(layouts="any")
BLAS, (TO_OUT, WITH_BIAS, WITH_SUMS, _) = called.FAMILY.right, called.FAMILY.also
OUT, GEMM, BIAS = TO_OUT.operands, BLAS.operands, WITH_BIAS.operands
blas, biased, summed = BLAS.spec, WITH_BIAS.spec, WITH_SUMS.spec


def judge(launch, contract=ANY, operands=None, spec=None, **options):
    kernel = KernelUnderTest("k", launch, contract, operands=operands or {}, spec=spec)
    return check(kernel, **{"max_examples": 60, **options})


@pytest.mark.lane("full")
def test_a_wrapper_that_writes_out_and_returns_nothing_passes():
    report = judge(called.into_out_silently, operands=OUT)
    assert ([f.message for f in report.findings], report.verdict) == ([], "pass")


@pytest.mark.lane("full")
def test_keywords_that_nobody_stated_are_tried_and_told_as_limits():
    right = check(KernelUnderTest("k", called.with_out_dtype), max_examples=3, limits=True)
    (held,) = (limit for limit in right.limits if limit.name == "out_dtype=")
    assert held.status == "holds"
    for launch, name, message, option in (
        (promises.out_stays_as_it_was, "out=", "of out never stored", "'out=fp16[M, N] written'"),
        (promises.out_dtype_reached_in_two_steps, "out_dtype=", "got", "out_dtype=torch.float32"),
    ):
        report = check(KernelUnderTest("k", launch), max_examples=3, limits=True)
        (limit,) = (limit for limit in report.limits if limit.name == name)
        assert (report.verdict, limit.status) == ("pass", "limit")
        assert message in limit.message
        assert limit.option.startswith(f"--operand {option}")


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("launch", "operands", "spec", "name", "message"),
    [
        (called.out_ignored, OUT, None, "stores_each_element_once", "of out never stored"),
        (called.out_taken_for_dense, OUT, None, "stays_in_bounds", "of out"),
        (called.first_bias_for_all, BIAS, biased, "exact_on_integers", "bias had the first entry"),
        (called.bias_needed, BIAS, biased, "runs_to_completion", "'NoneType' object has no"),
        (called.gemm_that_always_reads_c, GEMM, blas, "exact_on_integers", "if c were read"),
        (called.gemm_without_alpha, GEMM, blas, "exact_on_integers", "as if alpha were"),
        (called.bias_taken_for_dense, BIAS, biased, "stays_in_bounds", "bias"),
        (called.row_sums_doubled, {}, summed, "exact_on_integers", "result[1][0]: got"),
        (called.row_sums_only, {}, summed, "runs_to_completion", "result[0]: got shape"),
    ],
)
def test_wrong_kernels_of_every_form_are_named(launch, operands, spec, name, message):
    report = judge(launch, operands=operands, spec=spec)
    assert report.verdict == "fail"
    assert report.findings[0].property == name
    assert message in report.findings[0].message


@pytest.mark.lane("full")
@pytest.mark.parametrize("axis", ["M", "N"])
def test_a_wrong_result_of_one_axis_is_told_beside_operands_of_rows_and_columns(axis):
    def wrong(a, b, scale):
        c, sums = called.with_row_sums(a, b)
        return c, sums + scale.sum() + 1

    operands = {"scale": Operand("fp32", axis)}
    spec = lambda a, b, scale: (a @ b, (a @ b).sum(1) + scale.sum())  # noqa: E731
    first = judge(wrong, operands=operands, spec=spec).findings[0]
    assert (first.property, first.result) == ("exact_on_integers", "result[1]")


def test_a_case_says_of_operands_what_they_can_be_wherever_it_comes_from():
    case = Case(1, 1, 1, arguments=(("alpha", "7.0"),))
    message = re.escape("case alpha: got 7.0, expected 1.0 or 0.5")
    with pytest.raises(ValueError, match=message):
        check(BLAS, case=case)
    with pytest.raises(TargetError, match=f"gemm: {message}"):
        read_case(case.to_json(), BLAS)


def test_values_need_no_order_and_no_truth():
    tables = OneOf(np.zeros(2), np.ones(2))
    spec = lambda a, b, table: a @ b + 1  # noqa: E731
    report = judge(lambda a, b, table: matmul(a, b), operands={"table": tables}, spec=spec)
    assert report.findings[0].property == "exact_on_integers"
