"""Scaled products of operands that the copy engine cannot address, by pointers."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..arguments import FP8
from .scales import BLOCK_K, scale_tile

#: A tile of few enough addresses for the registers, whatever the strides.
BLOCK_M = BLOCK_N = 64
GROUP_M, NUM_WARPS, NUM_STAGES = 8, 4, 3


@triton.jit
def matmul_scaled_pointer_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    stride_sa,
    stride_sb,
    stride_bias,
    A_PER_ROW: tl.constexpr,
    B_PER_COLUMN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B of scales and a bias, of any strides; a program for each tile.

    Bands of GROUP_M rows of tiles follow each other; inside a band the tiles go down its columns.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first_pid_m = (tl.program_id(0) // num_pid_in_group) * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = tl.program_id(0) % num_pid_in_group
    start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
    start_n = (pid_in_group // group_size_m) * BLOCK_N
    offs_m = (start_m + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (start_n + tl.arange(0, BLOCK_N)).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        offs_k = (k * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N),
            other=0.0,
        )
        if PROMOTE:
            acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.dot(a, b, acc, out_dtype=ACC_DTYPE)

    c = scale_tile(
        acc, start_m, start_n, M, N, scale_a_ptr, scale_b_ptr, bias_ptr,
        stride_sa, stride_sb, stride_bias, A_PER_ROW, B_PER_COLUMN,
    )  # fmt: skip
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        c.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def launch_by_pointers(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale_a: torch.Tensor,
    scale_b: torch.Tensor, bias: torch.Tensor | None, fast_accum: bool,
) -> None:  # fmt: skip
    """Launch the kernel for arguments that were checked; scales (M or 1, 1) and (1, N or 1)."""
    M, N = c.shape
    with torch.cuda.device_of(c):
        matmul_scaled_pointer_kernel[(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)](
            a, b, c, scale_a, scale_b, bias, M, N, a.shape[1],
            *a.stride(), *b.stride(), *c.stride(),
            scale_a.stride(0), scale_b.stride(1), 0 if bias is None else bias.stride(0),
            A_PER_ROW=scale_a.shape[0] > 1, B_PER_COLUMN=scale_b.shape[1] > 1,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=GROUP_M,
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            PROMOTE=a.dtype in FP8 and not fast_accum,
            num_warps=NUM_WARPS, num_stages=NUM_STAGES,
        )  # fmt: skip
