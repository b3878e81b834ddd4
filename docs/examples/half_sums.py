"""A loop that changes the type of its accumulator: Triton does not compile it."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, S: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * S + tl.arange(0, S)[:, None]
    offs_n = tl.program_id(1).to(tl.int64) * S + tl.arange(0, S)[None, :]
    acc = tl.zeros((S, S), dtype=tl.float16)
    for k in range(0, K, S):
        offs_k = k + tl.arange(0, S).to(tl.int64)
        a_mask = (offs_m < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n < N)
        a_tile = tl.load(a + offs_m * sam + offs_k[None, :] * sak, mask=a_mask, other=0.0)
        b_tile = tl.load(b + offs_k[:, None] * sbk + offs_n * sbn, mask=b_mask, other=0.0)
        acc += tl.dot(a_tile, b_tile)
    tl.store(c + offs_m * scm + offs_n * scn, acc, mask=(offs_m < M) & (offs_n < N))


def matmul(a, b):
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    if M and N:
        kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), S=32)
    return c
