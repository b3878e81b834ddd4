"""Split-K products: a kernel writes a partial sum for each part of K, and torch adds them up."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 32, 64, 32


@triton.jit
def kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, PART,
    stride_am, stride_ak, stride_bk, stride_bn, stride_wz, stride_wm, stride_wn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    pid_z = tl.program_id(2).to(tl.int64)
    end = tl.minimum((pid_z + 1) * PART, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(pid_z * PART, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + offs_m * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < end), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < end) & (offs_n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    w_ptrs = w_ptr + pid_z * stride_wz + offs_m * stride_wm + offs_n * stride_wn
    tl.store(w_ptrs, acc, mask=(offs_m < M) & (offs_n < N))


def launch(a, b, w, part):
    """Write the sum over each part of K to w, of shape (parts, M, N)."""
    if w.numel() > 0:
        grid = (triton.cdiv(w.shape[1], BLOCK_M), triton.cdiv(w.shape[2], BLOCK_N), w.shape[0])
        sizes = (*w.shape[1:], a.shape[1], part, *a.stride(), *b.stride(), *w.stride())
        kernel[grid](a, b, w, *sizes, BLOCK_M, BLOCK_N, BLOCK_K)


def split(a, b, part):
    parts = max(1, triton.cdiv(a.shape[1], part))
    w = torch.empty((parts, a.shape[0], b.shape[1]), device=a.device)
    launch(a, b, w, part)
    return w.sum(0).to(a.dtype)


def matmul(a, b):
    """Divide K into four parts of whole blocks."""
    return split(a, b, BLOCK_K * max(1, triton.cdiv(a.shape[1], 4 * BLOCK_K)))


def matmul_uneven(a, b):
    """Divide K into four equal parts."""
    return split(a, b, max(1, triton.cdiv(a.shape[1], 4)))
