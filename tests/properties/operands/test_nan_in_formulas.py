"""Maximum and minimum in a formula keep NaN, fmax and fmin do not; a kernel must do the same."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof import Contract, KernelUnderTest, check
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
    assert (finding.property, finding.fault) == ("exact_on_integers", "nan_lost")
    texts("NaN that a maximum drops", finding.message.partition(": ")[2])


@pytest.mark.parametrize(
    ("way", "formula"),
    [("keep", "np.maximum"), ("drop", "np.fmax"), ("drop", "np.where"), ("where", "np.where")],
)
def test_a_kernel_that_does_as_its_formula_is_right(way, formula):
    assert judge(way, formula) == ()


def test_nan_alone_is_what_a_maximum_drops():
    assert judge("drop", "np.maximum", Case(13, 11, 5)) == ()
    assert [finding.fault for finding in judge("keep", "np.fmax")] == ["wrong_value"]
