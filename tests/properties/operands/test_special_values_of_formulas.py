"""Special values of a formula: NaN and Inf are where it has them, and nowhere else."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof import Contract, KernelUnderTest, Operand, check
from gemmproof.properties.cases.case import Case

SPECIAL = Case(13, 11, 5, fill="special", seed=1)


@triton.jit
def relu_kernel(a_ptr, b_ptr, c_ptr, M, N, K, WAY: tl.constexpr, B: tl.constexpr):
    rm = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    rn = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    rk = tl.arange(0, B).to(tl.int64)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        a_mask = (rm[:, None] < M) & (rk[None, :] + k < K)
        b_mask = (rk[:, None] + k < K) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :] + k, a_mask, 0.0)
        b = tl.load(b_ptr + (rk[:, None] + k) * N + rn[None, :], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    if WAY == "keep":
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif WAY == "drop":
        acc = tl.maximum(acc, 0.0)
    else:
        acc = tl.where(acc > 0, acc, 0.0)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask)


def relu(a, b, way):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    relu_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, c, M, N, K, way, 16)
    return c


FORMULAS = {
    "np.maximum": lambda a, b: np.maximum(a @ b, 0),
    "np.fmax": lambda a, b: np.fmax(a @ b, 0),
    "np.where": lambda a, b: np.where(a @ b > 0, a @ b, 0),
}


def judge(way, formula, case=SPECIAL):
    kernel = KernelUnderTest(way, partial(relu, way=way), Contract(), spec=FORMULAS[formula])
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
def scaled_kernel(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, FLAW: tl.constexpr, B: tl.constexpr):
    rm = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    rn = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    rk = tl.arange(0, B).to(tl.int64)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        a_mask = (rm[:, None] < M) & (rk[None, :] + k < K)
        b_mask = (rk[:, None] + k < K) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :] + k, a_mask, 0.0)
        b = tl.load(b_ptr + (rk[:, None] + k) * N + rn[None, :], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    s = tl.load(s_ptr + rn, rn < N, 0.0)
    if FLAW == "largest":  # a NaN or Inf of one element reaches its tile
        acc += 0 * tl.max(acc)
    elif FLAW == "scale":
        s = tl.where(s == s, s, 0.0)
    elif FLAW == "zero":  # a sum of NaN or Inf times a scale of 0
        acc = tl.where(s[None, :] == 0, 0.0, acc)
    acc = acc * s[None, :] * 1.1
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask)


def scaled(a, b, s, flaw):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    scaled_kernel[grid](a, b, s, c, M, N, K, flaw, 16)
    return c


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
