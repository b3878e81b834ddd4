"""Scales of rows and columns and a bias, as fp8 layers have them."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand


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


scale_of_rows_forgotten = partial(scaled_mm, FLAW="forgotten")
scale_of_rows_applied_twice = partial(scaled_mm, FLAW="twice")
scale_of_the_next_row = partial(scaled_mm, FLAW="shifted")
bias_forgotten = partial(scaled_mm, FLAW="no_bias")
scale_of_columns_unmasked = partial(scaled_mm, FLAW="no_mask")
scale_of_columns_overwritten = partial(scaled_mm, FLAW="overwritten")

FAMILY = Family(
    "scales of rows and columns, and a bias",
    KernelUnderTest(
        "scaled_mm",
        scaled_mm,
        Contract(formats=("fp8e4m3", "fp16", "bf16"), out="bf16"),
        operands={
            "scale_a": Operand("fp32", "M"),
            "scale_b": Operand("fp32", "N"),
            "bias": Operand("bf16", "N"),
        },
        spec=lambda a, b, scale_a, scale_b, bias: (
            (a @ b) * scale_a[:, None] * scale_b[None, :] + bias
        ),
    ),
    """
R row_scales:scale_of_rows_forgotten EXACT operand_forgotten scale_a - 1 1 1
R row_scales:scale_of_rows_applied_twice EXACT operand_applied_twice scale_a - 1 1 1 lane=default
R row_scales:scale_of_the_next_row EXACT operand_shifted scale_a M 2 1 1
R row_scales:bias_forgotten EXACT operand_forgotten bias - 1 1 1 dtype=bf16
R row_scales:scale_of_columns_unmasked BOUNDS out_of_bounds scale_b N 1 1 1
R row_scales:scale_of_columns_overwritten INPUTS element_changed scale_b - 1 1 1
""",
)
