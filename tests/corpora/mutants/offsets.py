"""Class D: kernels whose offsets leave 32 bits where strides are large."""

import torch
import triton
import triton.language as tl


@triton.jit
def offsets_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    WIDE_A: tl.constexpr, WIDE_B: tl.constexpr, WIDE_STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK)
    wide_m, wide_n, wide_k = offs_m.to(tl.int64), offs_n.to(tl.int64), offs_k.to(tl.int64)
    a_k = wide_k
    if WIDE_A:
        a_ptrs = a_ptr + wide_m[:, None] * stride_am + a_k[None, :] * stride_ak
    else:
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + a_k[None, :] * stride_ak
    if WIDE_B:
        b_ptrs = b_ptr + wide_k[:, None] * stride_bk + wide_n[None, :] * stride_bn
    else:
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + wide_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK)):
        left = K - k * BLOCK
        if WIDE_STEP:
            a_now = a_ptrs + k.to(tl.int64) * BLOCK * stride_ak
        else:
            a_now = a_ptrs + k * BLOCK * stride_ak
        b_now = b_ptrs + k.to(tl.int64) * BLOCK * stride_bk
        a = tl.load(a_now, mask=(offs_m[:, None] < M) & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_now, mask=(offs_k[:, None] < left) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + wide_m[:, None] * stride_cm + wide_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _launch(a, b, wide_a=True, wide_b=True, wide_step=True):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    offsets_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        WIDE_A=wide_a, WIDE_B=wide_b, WIDE_STEP=wide_step, BLOCK=16,
    )  # fmt: skip
    return c


def row_offset_of_a_in_32_bits(a, b):
    return _launch(a, b, wide_a=False)


def k_offset_of_b_in_32_bits(a, b):
    return _launch(a, b, wide_b=False)


def k_step_of_a_in_32_bits(a, b):
    return _launch(a, b, wide_step=False)


@triton.jit
def batch_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """The offset of the batch is a product of 32-bit integers; all others are 64 bits wide."""
    batch = tl.program_id(2)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + batch * sa[0] + offs_m[:, None] * sa[1] + offs_k[None, :] * sa[2]
        b_ptrs = b_ptr + batch.to(tl.int64) * sb[0]
        b_ptrs += offs_k[:, None] * sb[1] + offs_n[None, :] * sb[2]
        acc = tl.dot(tl.load(a_ptrs, a_mask, 0.0), tl.load(b_ptrs, b_mask, 0.0), acc)
    c_ptrs = c_ptr + batch.to(tl.int64) * sc[0] + offs_m[:, None] * sc[1] + offs_n[None, :] * sc[2]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def batch_offset_of_a_in_32_bits(a, b):
    (batch, M, K), N = a.shape, b.shape[2]
    c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), batch)
    batch_kernel[grid](a, b, c, M, N, K, a.stride(), b.stride(), c.stride(), BLOCK=16)
    return c
