"""Class I: kernels that lose bits which their accumulator should keep."""

import torch
import triton
import triton.language as tl


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


def _launch(a, b, flaw="", dtype=None):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=dtype or a.dtype)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    strides = (*a.stride(), *b.stride(), *c.stride())
    rounding_kernel[grid](a, b, c, M, N, K, *strides, FLAW=flaw, BLOCK=32)
    return c


def half_accumulator(a, b):
    return _launch(a, b, "half_acc")


def sums_rounded_between_tiles(a, b):
    return _launch(a, b, "rounded_between_tiles")


def operands_rounded_to_bf16(a, b):
    return _launch(a, b, "bf16_operands")


def fp32_operands_rounded_to_half(a, b):
    return _launch(a, b, "half_operands")


def tf32_not_asked_for(a, b):
    return _launch(a, b, "tf32")


def result_rounded_twice(a, b):
    return _launch(a, b, "rounded_twice")


def int8_result_wraps(a, b):
    return _launch(a, b, dtype=torch.int8)


@triton.jit
def column_kernel(
    a_ptr, b_ptr, c_ptr, M, K, stride_am, stride_ak, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A matrix times a column; the products are made, and summed, in the operands' format."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + offs_k * stride_bk, mask=offs_k < K, other=0.0)
        acc += tl.sum(a * b[None, :], axis=1)
    tl.store(c_ptr + offs_m * stride_cm, acc.to(c_ptr.dtype.element_ty), mask=offs_m < M)


def one_column_in_low_precision(a, b):
    (M, K), N = a.shape, b.shape[1]
    if N != 1:
        return _launch(a, b)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    column_kernel[(triton.cdiv(M, 16),)](
        a, b, c, M, K, *a.stride(), b.stride(0), c.stride(0), BLOCK_M=16, BLOCK_K=32
    )
    return c
