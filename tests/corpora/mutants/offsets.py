"""Class D: kernels whose offsets leave 32 bits where strides are large."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import batched, launch, product, store


@triton.jit
def offsets_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    WIDE_A: tl.constexpr, WIDE_B: tl.constexpr, WIDE_STEP: tl.constexpr,
    WIDE_C: tl.constexpr, BLOCK: tl.constexpr,
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
    if WIDE_C:
        c_ptrs = c_ptr + wide_m[:, None] * stride_cm + wide_n[None, :] * stride_cn
    else:
        c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, offsets_kernel, WIDE_A=True, WIDE_B=True, WIDE_STEP=True, WIDE_C=True)
row_offset_of_a_in_32_bits = partial(right, WIDE_A=False)
k_offset_of_b_in_32_bits = partial(right, WIDE_B=False)
k_step_of_a_in_32_bits = partial(right, WIDE_STEP=False)
# small operands have so large a result: of two vectors, say
row_offset_of_c_in_32_bits = partial(right, WIDE_C=False)
batch_offset_of_a_in_32_bits = partial(batched, A_BATCH=tl.int32)


@triton.jit
def workspace_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, sw, SPLIT_K: tl.constexpr, WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Slices of K, each to its own plane of the workspace."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2)
    step = tl.cdiv(K, SPLIT_K)
    begin, end = part * step, tl.minimum(part * step + step, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    if WIDE:
        w_ptr += part.to(tl.int64) * M * N
    else:
        w_ptr += part * M * N
    store(w_ptr, acc, offs_m, offs_n, M, N, sw)


def launch_planes(a, b, wide=True):
    w = torch.empty((8, a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    sw = (b.shape[1], 1)
    launch(workspace_kernel, a, b, c=w, sc=sw, depth=8, SPLIT_K=8, WIDE=wide)
    return w.sum(0).to(a.dtype)


workspace_plane_in_32_bits = partial(launch_planes, wide=False)
