"""Class D: kernels whose offsets leave 32 bits where strides are large."""

from functools import partial

import triton
import triton.language as tl
from tiled import batched, launch


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


right = partial(launch, offsets_kernel, WIDE_A=True, WIDE_B=True, WIDE_STEP=True)
row_offset_of_a_in_32_bits = partial(right, WIDE_A=False)
k_offset_of_b_in_32_bits = partial(right, WIDE_B=False)
k_step_of_a_in_32_bits = partial(right, WIDE_STEP=False)
batch_offset_of_a_in_32_bits = partial(batched, A_BATCH=tl.int32)
