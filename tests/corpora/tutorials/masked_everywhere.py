"""After a lesson on tiled products: a 2-D grid, and a mask on both axes of every access."""

import torch
import triton
import triton.language as tl


@triton.jit
def tiled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(
            a_ptr + offs_m[:, None] * sam + (k + offs_k)[None, :] * sak,
            mask=(offs_m[:, None] < M) & ((k + offs_k)[None, :] < K),
            other=0.0,
        ).to(tl.bfloat16)
        b = tl.load(
            b_ptr + (k + offs_k)[:, None] * sbk + offs_n[None, :] * sbn,
            mask=((k + offs_k)[:, None] < K) & (offs_n[None, :] < N),
            other=0.0,
        ).to(tl.bfloat16)
        acc = tl.dot(a, b, acc)
    tl.store(
        c_ptr + offs_m[:, None] * scm + offs_n[None, :] * scn,
        acc.to(tl.bfloat16),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, device=a.device, dtype=torch.bfloat16)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    strides = (*a.stride(), *b.stride(), *c.stride())
    tiled_kernel[grid](a, b, c, M, N, K, *strides, BM=64, BN=64, BK=32)
    return c
