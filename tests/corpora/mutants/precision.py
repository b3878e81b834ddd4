"""Class I: kernels that lose bits which their accumulator should keep."""

from functools import partial

import torch
import triton
import triton.language as tl
from tiled import launch, launch_column


@triton.jit
def rounding_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if FLAW == "half_acc":
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float16)
    elif a_ptr.dtype.element_ty == tl.int8:
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    else:
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0)
        if FLAW == "half_acc":
            acc = tl.dot(a, b, acc, out_dtype=tl.float16)
        elif FLAW == "rounded_between_tiles":
            acc = (acc + tl.dot(a, b)).to(tl.float16).to(tl.float32)
        elif FLAW == "bf16_operands":
            acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
        elif FLAW == "half_operands":
            acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc)
        elif FLAW == "tf32":
            acc = tl.dot(a, b, acc, input_precision="tf32")
        elif a.dtype == tl.int8:
            acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        else:
            acc = tl.dot(a, b, acc, input_precision="ieee")
    if FLAW == "rounded_twice":
        acc = acc.to(tl.bfloat16).to(tl.float32)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, rounding_kernel, FLAW="", BLOCK=32)
half_accumulator = partial(right, FLAW="half_acc")
sums_rounded_between_tiles = partial(right, FLAW="rounded_between_tiles")
operands_rounded_to_bf16 = partial(right, FLAW="bf16_operands")
fp32_operands_rounded_to_half = partial(right, FLAW="half_operands")
tf32_not_asked_for = partial(right, FLAW="tf32")
result_rounded_twice = partial(right, FLAW="rounded_twice")
int8_result_wraps = partial(right, dtype=torch.int8)
# the products are made, and summed, in the operands' format
one_column_in_low_precision = partial(launch_column, products=tl.float16)
