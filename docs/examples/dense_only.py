"""A tiled product of dense row-major operands: its strides are the sizes."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_mask = (offs_m < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n < N)
        a = tl.load(a_ptr + offs_m * K + offs_k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (offs_m < M) & (offs_n < N)
    tl.store(c_ptr + offs_m * N + offs_n, acc.to(c_ptr.dtype.element_ty), mask=mask)


def matmul(a, b):
    assert a.is_contiguous(), "a must be contiguous"
    assert b.is_contiguous(), "b must be contiguous"
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    kernel[triton.cdiv(M, 32), triton.cdiv(N, 64)](
        a, b, c, M, N, K, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32
    )
    return c
