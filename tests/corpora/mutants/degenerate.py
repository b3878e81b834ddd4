"""Class K: kernels and wrappers that fail where a size is 0 or 1."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch


@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    if FLAW == "leaves" and K == 0:
        return
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    k = 0
    if FLAW == "peeled":
        # the first tile is taken out of the loop, as if there were always one
        offs_k = tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
        b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
        left = tl.maximum(K, 1)
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < left) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        k = BLOCK
    while k < K:
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
        b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        if FLAW == "stores_in_loop":
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
        k += BLOCK
    if FLAW != "stores_in_loop":
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, tile_kernel, FLAW="")
no_store_without_k = partial(right, FLAW="leaves")
first_k_tile_peeled = partial(right, FLAW="peeled")
stores_only_inside_the_k_loop = partial(right, FLAW="stores_in_loop")


def wrapper_divides_by_k(a, b):
    (M, K), N = a.shape, b.shape[1]
    rows_at_a_time = max(1, 65536 // K)
    grid = (triton.cdiv(min(M, rows_at_a_time), 16), triton.cdiv(N, 16))
    return right(a, b, grid=grid) if rows_at_a_time >= M else right(a, b)


def wrapper_squeezes_one_row(a, b):
    return right(a, b).squeeze(0)


def wrapper_returns_early_without_k(a, b):
    """No work to do, so nothing is launched; c is as torch.empty left it."""
    if a.numel() == 0:
        return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    return right(a, b)


def wrapper_refuses_one_column(a, b):
    if b.shape[1] < 2:
        raise ValueError(f"b: got {b.shape[1]} columns, expected at least 2")
    return right(a, b)
