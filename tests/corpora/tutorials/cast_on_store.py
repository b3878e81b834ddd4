"""After a lesson on tl.dot: bf16 operands, an fp32 accumulator, one cast before the store."""

import torch
import triton
import triton.language as tl


@triton.jit
def dot_kernel(
    a_ptr, b_ptr, y_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_ym, stride_yn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = (offs_m[:, None] < M) & ((k + offs_k)[None, :] < K)
        right = ((k + offs_k)[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :] * stride_ak
        b_ptrs = b_ptr + (k + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=left, other=0.0).to(tl.bfloat16)
        b = tl.load(b_ptrs, mask=right, other=0.0).to(tl.bfloat16)
        acc = tl.dot(a, b, acc)
    y = acc.to(tl.bfloat16)
    y_ptrs = y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn
    tl.store(y_ptrs, y, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    y = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    grid = (triton.cdiv(M, 128) * triton.cdiv(N, 32),)
    strides = (*a.stride(), *b.stride(), *y.stride())
    dot_kernel[grid](a, b, y, M, N, K, *strides, BM=128, BN=32, BK=32)
    return y
