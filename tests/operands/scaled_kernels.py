"""A product with scales of rows and columns and a bias, right and wrong in one way each."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K,
    BLOCK: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    rows = offs_m
    if FLAW == "shifted":
        rows = (offs_m + 1) % M
    scale_a = tl.load(scale_a_ptr + rows, mask=offs_m < M, other=0.0)
    if FLAW == "no_mask":
        scale_b = tl.load(scale_b_ptr + offs_n)
    else:
        scale_b = tl.load(scale_b_ptr + offs_n, mask=offs_n < N, other=0.0)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    if FLAW != "forgotten":
        acc *= scale_a[:, None]
    if FLAW == "twice":
        acc *= scale_a[:, None]
    acc *= scale_b[None, :]
    if FLAW != "no_bias":
        acc += bias[None, :]
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
    if FLAW == "overwritten":
        tl.store(scale_b_ptr + offs_n, scale_b * 2, mask=offs_n < N)


def scaled_mm(a, b, scale_a, scale_b, bias, FLAW="none"):
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    scaled_kernel[grid](a, b, c, scale_a, scale_b, bias, M, N, K, BLOCK=32, FLAW=FLAW)
    return c


def flawed(flaw):
    return partial(scaled_mm, FLAW=flaw)
