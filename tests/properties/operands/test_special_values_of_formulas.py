"""Special values of a formula: NaN and Inf are where it has them, and nowhere else."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store

from gemmproof import Contract, KernelUnderTest, Operand, check
from gemmproof.properties.cases.case import Case
from gemmproof.reference.spec import sigmoid

SPECIAL = Case(13, 11, 5, fill="special", seed=1)


@triton.jit
def relu_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, WAY: tl.constexpr, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if WAY == "keep":
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif WAY == "drop":
        acc = tl.maximum(acc, 0.0)
    else:
        acc = tl.where(acc > 0, acc, 0.0)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


FORMULAS = {
    "np.maximum": lambda a, b: np.maximum(a @ b, 0),
    "np.fmax": lambda a, b: np.fmax(a @ b, 0),
    "np.where": lambda a, b: np.where(a @ b > 0, a @ b, 0),
}


def judge(way, formula, case=SPECIAL):
    kernel = KernelUnderTest(
        way, partial(launch, relu_kernel, WAY=way), Contract(), spec=FORMULAS[formula]
    )
    return check(kernel, case=case).findings


@pytest.mark.parametrize("way", ["drop", "where"])
def test_a_kernel_that_drops_nan_is_told_from_a_formula_that_keeps_it(way, texts):
    (finding,) = judge(way, "np.maximum")
    assert (finding.property, finding.fault) == ("special_values", "nan_lost")
    texts("NaN that a maximum drops", finding.message.partition(": ")[2])


@pytest.mark.parametrize(
    ("way", "formula"),
    [("keep", "np.maximum"), ("drop", "np.fmax"), ("drop", "np.where"), ("where", "np.where")],
)
def test_a_kernel_that_does_as_its_formula_is_right(way, formula):
    assert judge(way, formula) == ()


def test_nan_alone_is_what_a_maximum_drops():
    assert judge("drop", "np.maximum", Case(13, 11, 5)) == ()
    assert [finding.fault for finding in judge("keep", "np.fmax")] == ["special_spread"]


# -- formulas that round, and special values of further operands ---------------------------------
@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, s_ptr, FLAW: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    s = tl.load(s_ptr + offs_n, offs_n < N, 0.0)
    if FLAW == "largest":  # a NaN or Inf of one element reaches its tile
        acc += 0 * tl.max(acc)
    elif FLAW == "scale":
        s = tl.where(s == s, s, 0.0)
    elif FLAW == "zero":  # a sum of NaN or Inf times a scale of 0
        acc = tl.where(s[None, :] == 0, 0.0, acc)
    store(c_ptr, acc * s[None, :] * 1.1, offs_m, offs_n, M, N, sc)


def scaled(a, b, s, flaw):
    return launch(scaled_kernel, a, b, s, FLAW=flaw)


@pytest.mark.parametrize(
    ("flaw", "faults"),
    [
        ("", set()),
        ("largest", {"special_spread"}),
        ("scale", {"nan_lost"}),
        ("zero", {"nan_lost"}),
    ],
)
def test_special_values_of_a_formula_that_rounds_are_judged(flaw, faults):
    kernel = KernelUnderTest(
        flaw or "right",
        partial(scaled, flaw=flaw),
        Contract(layouts="contiguous"),
        operands={"s": Operand("fp32", "N")},
        spec=lambda a, b, s: a @ b * s * 1.1,
    )
    report = check(kernel, max_examples=30, proof=False)
    assert {x.property for x in report.findings} == ({"special_values"} if faults else set())
    assert {x.fault for x in report.findings} >= faults


# -- formulas that overflow ----------------------------------------------------------------------
@triton.jit
def logistic_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, WAY: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    acc = tl.exp(acc)
    if WAY == "ratio":
        acc = acc / (1 + acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


@pytest.mark.parametrize(
    ("way", "formula", "faults"),
    [
        ("exp", lambda a, b: np.exp(a @ b), 0),
        ("ratio", lambda a, b: np.exp(a @ b) / (1 + np.exp(a @ b)), 0),
        ("ratio", lambda a, b: sigmoid(a @ b), 1),
    ],
    ids=["Inf", "NaN", "NaN for a number"],
)
def test_a_kernel_may_overflow_where_its_formula_does(way, formula, faults):
    launched = partial(launch, logistic_kernel, WAY=way)
    kernel = KernelUnderTest(way, launched, Contract(), spec=formula)
    assert len(check(kernel, case=Case(13, 11, 5)).findings) == faults
