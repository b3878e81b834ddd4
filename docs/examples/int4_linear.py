"""A linear layer with int4 weights, eight in a word, and scales for groups of 64 rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def int4_kernel(
    x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        rows = m[:, None] < M
        columns = n[None, :] < N
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=rows & (k[None, :] < K), other=0.0)
        known = columns & (k[:, None] < K)
        w = tl.load(w_ptr + k[:, None] // 8 * N + n[None, :], mask=known, other=0)
        s = tl.load(s_ptr + k[:, None] // 64 * N + n[None, :], mask=known, other=0.0)
        w = (((w >> (k[:, None] % 8 * 4)) & 15) - 8).to(x.dtype) * s
        acc = tl.dot(x, w, acc)
    y = y_ptr + m[:, None] * N + n[None, :]
    tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def int4_linear(x, qweight, scales):
    M, K = x.shape
    N = qweight.shape[1]
    assert qweight.shape[0] * 8 == K, "eight weights lie in a word"
    assert scales.dtype == x.dtype
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = triton.cdiv(M, 16), triton.cdiv(N, 32)
    int4_kernel[grid](x, qweight, scales, y, M, N, K, BM=16, BN=32, BK=32)
    return y
