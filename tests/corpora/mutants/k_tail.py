"""Class A: kernels that are wrong where K is no multiple of the K tile."""

from functools import partial

import triton
import triton.language as tl
from tests.corpora.tiled import launch


@triton.jit
def _store(c_ptr, acc, offs_m, offs_n, M, N, stride_cm, stride_cn):
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def even_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    EVEN_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    rows, columns = offs_m[:, None] < M, offs_n[None, :] < N
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :] * stride_ak
        b_ptrs = b_ptr + (k + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn
        if EVEN_K:
            a = tl.load(a_ptrs, mask=rows, other=0.0)
        else:
            a = tl.load(a_ptrs, mask=rows & ((k + offs_k)[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=columns & ((k + offs_k)[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc)
    _store(c_ptr, acc, offs_m, offs_n, M, N, stride_cm, stride_cn)


def even_k_means_divisible_by_two(a, b):
    return launch(even_kernel, a, b, EVEN_K=a.shape[1] % 2 == 0)


@triton.jit
def advancing_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    tiles = tl.cdiv(K, BLOCK)
    if FLAW == "rounded_down":
        tiles = K // BLOCK
    for k in range(0, tiles):
        left = K - k * BLOCK
        a_k, b_k = offs_k[None, :] < left, offs_k[:, None] < left
        if FLAW == "mask_stays":
            b_k = offs_k[:, None] < K
        if FLAW == "one_too_far":
            a_k = offs_k[None, :] <= left
        if FLAW == "one_too_few":
            a_k = offs_k[None, :] < left - 1
        if FLAW == "none":
            b_k = tl.full((BLOCK, 1), 1, tl.int1)
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & a_k, other=0.0)
        b = tl.load(b_ptrs, mask=b_k & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK * tl.cast(stride_bn if FLAW == "along_n" else stride_bk, tl.int64)
    _store(c_ptr, acc, offs_m, offs_n, M, N, stride_cm, stride_cn)


right = partial(launch, advancing_kernel, FLAW="")
mask_does_not_advance = partial(right, FLAW="mask_stays")
k_mask_admits_one_more = partial(right, FLAW="one_too_far")
k_mask_loses_the_last = partial(right, FLAW="one_too_few")
no_k_mask_on_b = partial(right, FLAW="none")
k_tiles_rounded_down = partial(right, FLAW="rounded_down")


@triton.jit
def pairs_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Even and odd k in two dots, as a kernel for packed pairs does; the bound counts pairs."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, tl.cdiv(K, 2), BLOCK):
        pair = start + tl.arange(0, BLOCK).to(tl.int64)
        for half in tl.static_range(2):
            offs_k = 2 * pair + half
            a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
            b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
            a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (pair[None, :] < K // 2), other=0.0)
            b = tl.load(b_ptrs, mask=(pair[:, None] < K // 2) & (offs_n[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc)
    _store(c_ptr, acc, offs_m, offs_n, M, N, stride_cm, stride_cn)


bound_in_packed_units = partial(launch, pairs_kernel)
