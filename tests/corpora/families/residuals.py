"""alpha a @ b + beta residual, out of place, by split-K into a workspace that a second launch adds.

The residual is read through its strides; with beta = 0 it is not read, as in BLAS.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, OneOf, Operand


@triton.jit
def slices_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_ws, stride_wm, stride_wn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    pid, pid_k = tl.program_id(0), tl.program_id(1).to(tl.int64)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // num_pid_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % num_pid_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    num_k = tl.cdiv(K, BLOCK_K)
    for k in range(pid_k, num_k, SPLIT_K):
        offs_k = k * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    w_ptrs = w_ptr + pid_k * stride_ws + offs_m[:, None] * stride_wm + offs_n[None, :] * stride_wn
    w_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if FLAW != "empty_slice" or pid_k < num_k:
        tl.store(w_ptrs, acc, mask=w_mask)


@triton.jit
def sum_kernel(
    w_ptr, r_ptr, c_ptr, alpha, beta, M, N, stride_ws, stride_wm, stride_wn,
    stride_rm, stride_rn, stride_cm, stride_cn, HAS_BETA: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    w_ptrs = w_ptr + offs_m * stride_wm + offs_n * stride_wn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if FLAW == "of_every_slice":
        for _ in tl.static_range(SPLIT_K):
            r_ptrs = r_ptr + offs_m * stride_rm + offs_n * stride_rn
            acc += beta * tl.load(r_ptrs, mask=mask, other=0.0).to(tl.float32)
    for _ in tl.static_range(SPLIT_K - (1 if FLAW == "last_slice" else 0)):
        acc += alpha * tl.load(w_ptrs, mask=mask, other=0.0)
        w_ptrs += stride_ws
    if HAS_BETA and FLAW != "of_every_slice":
        r_ptrs = r_ptr + offs_m * stride_rm + offs_n * stride_rn
        r_mask = offs_m < M if FLAW == "rows_only" else mask
        r = tl.load(r_ptrs, mask=r_mask, other=0.0).to(tl.float32)
        if FLAW == "alpha_of_both":
            acc += alpha * beta * r
        elif FLAW == "beta_of_the_sum":
            acc = beta * (acc + r)
        elif FLAW == "beta_forgotten":
            acc += r
        elif FLAW == "subtracted":
            acc -= beta * r
        else:
            acc += beta * r
    c_ptrs = c_ptr + offs_m * stride_cm + offs_n * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def addmm(a, b, residual, alpha, beta, SPLIT_K=3, FLAW="none"):
    """alpha a @ b + beta residual, of a's format, c new."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    w = torch.empty((SPLIT_K, M, N), device=a.device, dtype=torch.float32)
    tiles = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    slices_kernel[(tiles[0] * tiles[1], SPLIT_K)](
        a, b, w, M, N, K, *a.stride(), *b.stride(), *w.stride(),
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, SPLIT_K=SPLIT_K, FLAW=FLAW,
    )  # fmt: skip
    strides = c.stride() if FLAW == "strides_of_c" else residual.stride()
    sum_kernel[tiles](
        w, residual, c, alpha, beta, M, N, *w.stride(), *strides, *c.stride(),
        HAS_BETA=beta != 0 or FLAW == "read_with_beta_of_0",
        BLOCK_M=16, BLOCK_N=32, SPLIT_K=SPLIT_K, FLAW=FLAW,
    )  # fmt: skip
    return c


residual_added_by_every_slice = partial(addmm, FLAW="of_every_slice")
alpha_applied_to_the_residual = partial(addmm, FLAW="alpha_of_both")
beta_applied_to_the_sum = partial(addmm, FLAW="beta_of_the_sum")
beta_forgotten = partial(addmm, FLAW="beta_forgotten")
residual_subtracted = partial(addmm, FLAW="subtracted")
last_slice_not_added = partial(addmm, FLAW="last_slice")
empty_slice_not_written = partial(addmm, FLAW="empty_slice")
residual_masked_along_the_rows_alone = partial(addmm, FLAW="rows_only")
residual_taken_for_dense = partial(addmm, FLAW="strides_of_c")
residual_read_with_beta_of_0 = partial(addmm, FLAW="read_with_beta_of_0")

FAMILY = Family(
    "alpha a @ b + beta residual",
    KernelUnderTest(
        "addmm",
        addmm,
        Contract(formats=("bf16",), layouts=("row", "column", "padded")),
        operands={
            "residual": Operand("bf16", ("M", "N"), layouts=("row", "column", "padded")),
            "alpha": OneOf(0.5, 1.0),
            "beta": OneOf(-2.0, 1.0, 0.0),
        },
        spec=lambda a, b, residual, alpha, beta: (
            alpha * (a @ b) + beta * residual if beta else alpha * (a @ b)
        ),
    ),
    """
R residuals:residual_added_by_every_slice EXACT operand_applied_twice residual - 1 1 1
R residuals:alpha_applied_to_the_residual EXACT operand_multiplied residual - 1 1 1
R residuals:beta_applied_to_the_sum EXACT wrong_value c - 1 1 1
R residuals:beta_forgotten EXACT operand_forgotten beta - 1 1 1
R residuals:residual_subtracted EXACT operand_negated residual - 1 1 1
R residuals:last_slice_not_added EXACT last_k_block c K 1 1 33
R residuals:empty_slice_not_written LANES undefined_stored w_ptr - 1 1 1
R residuals:residual_masked_along_the_rows_alone BOUNDS out_of_bounds residual N 1 1 1 lane=default
R residuals:residual_taken_for_dense BOUNDS out_of_bounds residual M 2 1 1 residual=padded
R residuals:residual_read_with_beta_of_0 EXACT operand_read residual - 1 1 1 beta=0.0
""",
)
