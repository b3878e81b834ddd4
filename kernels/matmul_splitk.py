"""Programs that share out K, for results of few tiles; a second kernel adds up in a fixed order."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import FP8, num_sms, prepare, shared_memory
from .descriptors import has_engine

#: BLOCK_M: the first that M does not exceed, else the last.
BLOCKS_M = (16, 32, 64)
BLOCK_N, NUM_WARPS = 64, 4
#: Of the blocks of a and b that a program waits for, as far as they fit.
MAX_STAGES = 6
#: Steps along K that are worth a separate program.
STEPS = 4
#: Elements that a program of the second kernel adds up, and shares of them that it waits for.
BLOCK, ADD_WARPS, AT_ONCE = 512, 4, 8


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
    OVERLAPS: tl.constexpr,
):
    """W[z] = A B over the k of share z, each of SHARE steps, for W (shares, M, N).

    Tiles go down the columns of W, so that programs that start together read the same of B. They
    are those of C^T = B^T A^T, whose rows fill an instruction of Hopper's, as few rows of A do not.
    OVERLAPS: the kernel that adds up may start before this one ends.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    num_pid_m = tl.cdiv(M, BLOCK_M)
    pid_m, pid_n = tl.program_id(0) % num_pid_m, tl.program_id(0) // num_pid_m
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    share = tl.program_id(1).to(tl.int64)
    begin = share * SHARE * BLOCK_K
    end = tl.minimum(begin + SHARE * BLOCK_K, K)

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=ACC_DTYPE)
    for k in range(begin, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        b = tl.load(
            b_ptr + offs_n[:, None] * stride_bn + offs_k[None, :] * stride_bk,
            mask=(offs_n[:, None] < N) & (offs_k[None, :] < end),
            other=0.0,
        )
        a = tl.load(
            a_ptr + offs_m[None, :] * stride_am + offs_k[:, None] * stride_ak,
            mask=(offs_m[None, :] < M) & (offs_k[:, None] < end),
            other=0.0,
        )
        if PROMOTE:
            # Hopper's fp8 units keep 13 fraction bits of a running sum: each block is summed from
            # zero and added in fp32. The limit keeps the compiler from fusing.
            acc += tl.dot(b, a, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.dot(b, a, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

    tl.store(
        w_ptr + share * stride_wz + offs_n[:, None] * stride_wn + offs_m[None, :] * stride_wm,
        acc.to(w_ptr.dtype.element_ty),
        mask=(offs_n[:, None] < N) & (offs_m[None, :] < M),
    )


@triton.jit
def add_shares_kernel(
    w_ptr,
    c_ptr,
    size,
    N,
    stride_cm,
    stride_cn,
    shares,
    BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """C = W[0] + W[1] + ..., always in this order, so that its bits are the same in every run.

    size: the elements of C, and of each share. OVERLAPS: W may not have been written yet.
    """
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
    total = tl.load(w_ptr + offs, mask=offs < size, other=0)
    for first in tl.range(1, shares, AT_ONCE):
        for share in tl.static_range(AT_ONCE):  # whose loads wait side by side
            is_there = first + share < shares
            at = w_ptr + (first + share).to(tl.int64) * size + offs
            more = tl.load(at, mask=is_there & (offs < size), other=0)
            total = tl.where(is_there, total + more, total)
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
    BLOCK_M = next((m for m in BLOCKS_M if m >= M), BLOCKS_M[-1])
    BLOCK_K = 256 // max(2, a.element_size())  # 8 bits do not profit from more
    stage = (BLOCK_M + BLOCK_N) * BLOCK_K * a.element_size()
    limit = shared_memory(a.device) - BLOCK_M * BLOCK_N * 4  # where the sums are turned
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    steps = triton.cdiv(K, BLOCK_K)
    share = max(STEPS, triton.cdiv(steps, max(1, num_sms(a.device) // tiles)))
    shares = max(1, triton.cdiv(steps, share))
    acc = torch.int32 if a.dtype == torch.int8 else torch.float32
    # a single share is the product, and needs no second kernel
    w = c[None] if shares == 1 else torch.empty((shares, M, N), dtype=acc, device=a.device)
    overlaps = shares > 1 and can_overlap(c.device)
    with torch.cuda.device_of(c):
        matmul_splitk_kernel[(tiles, shares)](
            a, b, w, M, N, K, *a.stride(), *b.stride(), *w.stride(), share,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
            OVERLAPS=overlaps,
            num_warps=NUM_WARPS,
            num_stages=max(2, min(MAX_STAGES, limit // stage)),
        )  # fmt: skip
    if shares > 1:
        add_shares(w, c, overlaps)


def can_overlap(device: torch.device) -> bool:
    """Return whether a device starts a kernel while the previous one ends: Hopper and later do."""
    return device.type == "cuda" and has_engine(device)


def add_shares(w: torch.Tensor, c: torch.Tensor, overlaps: bool) -> None:
    """Launch the second kernel for w (shares, M, N); overlaps: the first one allows that."""
    size = c.numel()
    options = {"launch_pdl": True} if overlaps else {}
    with torch.cuda.device_of(c):
        add_shares_kernel[(triton.cdiv(size, BLOCK),)](
            w, c, size, c.shape[1], *c.stride(), w.shape[0],
            BLOCK=BLOCK, AT_ONCE=AT_ONCE, OVERLAPS=overlaps, num_warps=ADD_WARPS, **options,
        )  # fmt: skip
