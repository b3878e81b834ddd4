"""Split-K into a workspace: a second kernel adds the parts up, then the bias, then activates."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

SPLIT_K = 4


@triton.jit
def part_kernel(
    a_ptr, b_ptr, w_ptr, bias_ptr, M, N, K, stride_am, stride_bk, stride_wz, stride_wm,
    SPLIT_K: tl.constexpr, FLAW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(1)
    m_mask, n_mask = offs_m[:, None] < M, offs_n[None, :] < N
    # a part has as many K tiles as any other, but the last ones, which may have none
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    begin, end = part * share, tl.minimum((part + 1) * share, K)
    if (begin >= K) & (FLAW == "exit"):
        return
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
        a = tl.load(a_ptrs, mask=m_mask & (offs_k[None, :] < end), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < end) & n_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    if FLAW == "bias":
        acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
    if FLAW == "relu":
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    w_ptrs = w_ptr + part.to(tl.int64) * stride_wz + offs_m[:, None] * stride_wm + offs_n[None, :]
    tl.store(w_ptrs, acc.to(w_ptr.dtype.element_ty), mask=m_mask & n_mask)


@triton.jit
def sum_parts_kernel(
    w_ptr, bias_ptr, c_ptr, M, N, stride_wz, stride_wm, stride_cm,
    PARTS: tl.constexpr, FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    n_mask = offs_n < N
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        w_ptrs = w_ptr + part * stride_wz + row * stride_wm + offs_n
        acc += tl.load(w_ptrs, mask=n_mask, other=0.0).to(tl.float32)
    bias_at = offs_n
    if FLAW == "rows":
        bias_at = tl.zeros_like(offs_n) + row
    if FLAW != "bias":
        acc += tl.load(bias_ptr + bias_at, mask=n_mask, other=0.0).to(tl.float32)
    acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(c_ptr + row * stride_cm + offs_n, acc.to(c_ptr.dtype.element_ty), mask=n_mask)


def split_k_mm(a, b, bias, part="none", total="none", summed=SPLIT_K, stride_wz=None):
    """c = max(a b + bias, 0)."""
    (M, K), N = a.shape, b.shape[1]
    w = torch.empty((SPLIT_K, M, N), device=a.device, dtype=torch.float32)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    stride_wz = w.stride(0) if stride_wz is None else stride_wz(w)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16), SPLIT_K)
    part_kernel[grid](
        a, b, w, bias, M, N, K, a.stride(0), b.stride(0), stride_wz, w.stride(1),
        SPLIT_K=SPLIT_K, FLAW=part, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
    )  # fmt: skip
    sum_parts_kernel[(M, triton.cdiv(N, 64))](
        w, bias, c, M, N, stride_wz, w.stride(1), c.stride(0),
        PARTS=summed, FLAW=total, BLOCK=64,
    )  # fmt: skip
    return c


bias_added_by_every_part = partial(split_k_mm, part="bias", total="bias")
parts_activated_before_they_are_summed = partial(split_k_mm, part="relu")
parts_without_k_leave_their_slice = partial(split_k_mm, part="exit")
last_slice_lost = partial(split_k_mm, summed=SPLIT_K - 1)
slices_one_row_apart = partial(split_k_mm, stride_wz=lambda w: w.stride(1))
bias_by_row_in_the_reduction = partial(split_k_mm, total="rows")

FAMILY = Family(
    "split-K into a workspace, with bias and ReLU",
    KernelUnderTest(
        "split_k_mm",
        split_k_mm,
        Contract(formats=("fp16", "bf16")),
        operands={"bias": Operand("fp16", "N")},
        spec=lambda a, b, bias: np.maximum(a @ b + bias, 0.0),
    ),
    """
R split_k_bias:bias_added_by_every_part EXACT operand_applied_twice bias - 1 1 5
R split_k_bias:parts_activated_before_they_are_summed EXACT wrong_value c - 1 2 1
R split_k_bias:parts_without_k_leave_their_slice LANES undefined_stored w_ptr - 1 1 1 lane=default
R split_k_bias:last_slice_lost EXACT last_k_block c K 1 2 49
R split_k_bias:slices_one_row_apart EXACT wrong_value c - 2 1 1
R split_k_bias:bias_by_row_in_the_reduction BOUNDS out_of_bounds bias N 2 1 1
""",
)
