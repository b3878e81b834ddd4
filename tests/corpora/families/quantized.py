"""fp8 with a scale a tensor and a saturated fp8 result; int8 with scales of rows and columns."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

E4M3_MAX = 448.0


@triton.jit
def fp8_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, scale_c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FP8_MAX: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    FLAW: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // num_pid_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % num_pid_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_left = K - k * BLOCK_K
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < k_left)
        b_mask = (offs_k[:, None] < k_left) & (offs_n[None, :] < N)
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    scale_a = tl.load(scale_a_ptr)
    scale_b = tl.load(scale_a_ptr if FLAW == "one_scale" else scale_b_ptr)
    scale_c = tl.load(scale_c_ptr)
    acc *= scale_a * scale_b
    if FLAW == "saturated_first":
        acc = tl.clamp(acc, -FP8_MAX, FP8_MAX)
    if FLAW == "inverted":
        acc *= scale_c
    else:
        acc /= scale_c
    acc = tl.clamp(acc, -FP8_MAX, FP8_MAX)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def fp8_mm(a, b, scale_a, scale_b, scale_c, FP8_MAX=E4M3_MAX, FLAW="none"):
    """a @ b of fp8 with one scale a tensor, quantised to fp8 again by the result's scale."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float8_e4m3fn)
    grid = (triton.cdiv(M, 32) * triton.cdiv(N, 32),)
    fp8_kernel[grid](
        a, b, c, scale_a, scale_b, scale_c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        FP8_MAX=FP8_MAX, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, FLAW=FLAW,
    )  # fmt: skip
    return c


scale_of_a_taken_for_b = partial(fp8_mm, FLAW="one_scale")
multiplied_by_the_scale_of_the_result = partial(fp8_mm, FLAW="inverted")
saturated_before_the_scale_of_the_result = partial(fp8_mm, FLAW="saturated_first")
saturated_as_another_fp8_is = partial(fp8_mm, FP8_MAX=240.0)


@triton.jit
def int8_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, zero_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    sum_b = tl.zeros((BLOCK_N,), dtype=tl.int32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=a_mask, other=0)
        b = tl.load(b_ptrs, mask=b_mask, other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        if FLAW == "last_sum":
            sum_b = tl.sum(b.to(tl.int32), axis=0)
        else:
            sum_b += tl.sum(b.to(tl.int32), axis=0)
    if FLAW == "other_axis":
        scale_a = tl.load(scale_a_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    else:
        scale_a = tl.load(scale_a_ptr + offs_m, mask=offs_m < M, other=0.0)[:, None]
    scale_b = tl.load(scale_b_ptr + offs_n, mask=offs_n < N, other=0.0)
    # a holds q + zero: (a - zero) @ b = a @ b - zero * (sums of the columns of b)
    zero = tl.load(zero_ptr + offs_m, mask=offs_m < M, other=0)
    if FLAW == "added":
        acc += zero[:, None] * sum_b[None, :]
    elif FLAW != "late" and FLAW != "times_k":
        acc -= zero[:, None] * sum_b[None, :]
    elif FLAW == "times_k":
        acc -= zero[:, None] * K
    c = acc.to(tl.float32) * scale_a * scale_b[None, :]
    if FLAW == "late":
        c -= (zero[:, None] * sum_b[None, :]).to(tl.float32)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, c.to(c_ptr.dtype.element_ty), mask=c_mask)


def int8_mm(a, b, scale_a, scale_b, zero, FLAW="none"):
    """int8 activations with a scale and a zero point a row, weights with a scale a column."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    int8_kernel[grid](
        a, b, c, scale_a, scale_b, zero, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, FLAW=FLAW,
    )  # fmt: skip
    return c


zero_point_subtracted_after_the_scales = partial(int8_mm, FLAW="late")
zero_point_added = partial(int8_mm, FLAW="added")
zero_point_times_k = partial(int8_mm, FLAW="times_k")
columns_summed_over_the_last_tile_alone = partial(int8_mm, FLAW="last_sum")
scale_of_rows_loaded_by_columns = partial(int8_mm, FLAW="other_axis")

FP8 = Family(
    "a scale a tensor, and a saturated fp8 result",
    KernelUnderTest(
        "fp8_mm",
        fp8_mm,
        Contract(formats=("fp8e4m3",), out="fp8e4m3", layouts=("row", "column", "padded")),
        operands={
            "scale_a": Operand("fp32", 1),
            "scale_b": Operand("fp32", 1),
            "scale_c": Operand("fp32", 1),
        },
        spec=lambda a, b, scale_a, scale_b, scale_c: np.clip(
            (a @ b) * scale_a * scale_b / scale_c, -E4M3_MAX, E4M3_MAX
        ),
    ),
    """
R quantized:scale_of_a_taken_for_b EXACT operand_replaced scale_b - 1 1 1 lane=default
R quantized:multiplied_by_the_scale_of_the_result EXACT operand_inverted scale_c - 1 1 1
R quantized:saturated_before_the_scale_of_the_result EXACT wrong_value c - 21 3 1
R quantized:saturated_as_another_fp8_is EXACT wrong_value c - 21 3 1
""",
)
INT8 = Family(
    "int8 with scales of rows and columns, and zero points",
    KernelUnderTest(
        "int8_mm",
        int8_mm,
        Contract(formats=("int8",), out="bf16", layouts=("row", "column", "padded")),
        operands={
            "scale_a": Operand("fp32", "M"),
            "scale_b": Operand("fp32", "N"),
            "zero": Operand("int32", "M", (-128, 127)),
        },
        spec=lambda a, b, scale_a, scale_b, zero: (
            ((a - zero[:, None]) @ b) * scale_a[:, None] * scale_b
        ),
    ),
    """
R quantized:zero_point_subtracted_after_the_scales EXACT wrong_value c - 2 1 1
R quantized:zero_point_added EXACT operand_negated zero - 2 1 1 lane=default
R quantized:zero_point_times_k EXACT wrong_value c - 2 1 1
R quantized:columns_summed_over_the_last_tile_alone EXACT later_block c K 2 1 33
R quantized:scale_of_rows_loaded_by_columns BOUNDS out_of_bounds scale_a M 1 2 1
""",
)
FAMILIES = (FP8, INT8)
