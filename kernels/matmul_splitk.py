"""Programs that share out K, for results of few tiles; a second kernel adds up in a fixed order."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import FP8, num_sms, prepare

#: (BLOCK_M, BLOCK_N, num_stages): the first whose rows M does not exceed, else the last.
TILES = ((16, 32, 5), (32, 64, 4), (64, 64, 4))
NUM_WARPS = 4
#: Steps along K that are worth a program of their own.
STEPS = 4
#: Elements that a program of the second kernel adds up.
BLOCK = 1024


@triton.jit
def matmul_splitk_kernel(
    a_ptr,
    b_ptr,
    w_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_wz,
    stride_wm,
    stride_wn,
    SHARE,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """W[z] = A B over the k of share z, each of SHARE steps, for W (shares, M, N).

    Tiles go down the columns of W, so that programs that start together read the same of B.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    pid_m, pid_n = tl.program_id(0) % num_pid_m, tl.program_id(0) // num_pid_m
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    share = tl.program_id(1).to(tl.int64)
    begin = share * SHARE * BLOCK_K
    end = tl.minimum(begin + SHARE * BLOCK_K, K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
    for k in range(begin, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < end),
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < end) & (offs_n[None, :] < N),
            other=0.0,
        )
        if PROMOTE:
            # Hopper's fp8 units keep 13 fraction bits of a running sum: each block is summed from
            # zero and added in fp32. The limit keeps the compiler from fusing.
            acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

    tl.store(
        w_ptr + share * stride_wz + offs_m[:, None] * stride_wm + offs_n[None, :] * stride_wn,
        acc.to(w_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


@triton.jit
def add_shares_kernel(w_ptr, c_ptr, size, N, stride_cm, stride_cn, shares, BLOCK: tl.constexpr):
    """C = W[0] + W[1] + ..., always in this order, so that its bits are the same in every run.

    size: the elements of C, and of each share.
    """
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(w_ptr + offs, mask=offs < size, other=0)
    for share in tl.range(1, shares, loop_unroll_factor=8):  # loads wait side by side
        total += tl.load(w_ptr + share.to(tl.int64) * size + offs, mask=offs < size, other=0)
    tl.store(
        c_ptr + offs // N * stride_cm + offs % N * stride_cn,
        total.to(c_ptr.dtype.element_ty),
        mask=offs < size,
    )


def matmul_splitk(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul`: the same arguments, formats, result and errors.

    The shares depend on the sizes and on the number of multiprocessors; for the same ones the
    result has the same bits in every run.
    """
    a, b, c = prepare("matmul_splitk", a, b, out_dtype, out, input_precision)
    launch_splitk(a, b, c, input_precision)
    return c


def launch_splitk(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Launch the kernel for operands and a result that were checked."""
    if c.numel() == 0:
        return
    (M, N), K = c.shape, a.shape[1]
    BLOCK_M, BLOCK_N, stages = next((x for x in TILES if x[0] >= M), TILES[-1])
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    BLOCK_K = 256 // max(2, a.element_size())  # 8 bits have no use for more
    steps = triton.cdiv(K, BLOCK_K)
    share = max(STEPS, triton.cdiv(steps, max(1, num_sms(a.device) // tiles)))
    shares = max(1, triton.cdiv(steps, share))
    acc = torch.int32 if a.dtype == torch.int8 else torch.float32
    # a single share is the product, and needs no second kernel
    w = c[None] if shares == 1 else torch.empty((shares, M, N), dtype=acc, device=a.device)
    with torch.cuda.device_of(c):
        matmul_splitk_kernel[(tiles, shares)](
            a, b, w, M, N, K, *a.stride(), *b.stride(), *w.stride(), share,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
            num_warps=NUM_WARPS, num_stages=stages,
        )  # fmt: skip
        if shares > 1:
            add_shares_kernel[(triton.cdiv(M * N, BLOCK),)](
                w, c, M * N, N, *c.stride(), shares, BLOCK=BLOCK
            )
