"""One program per tile of C on a two-dimensional grid renumbered in bands; pointers advance."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import KEY, TILES, keep_fitting, launch, make_configs, prepare, time_config

CONFIGS = make_configs(*TILES, GROUP_M=8)


@triton.autotune(
    configs=CONFIGS,
    key=KEY,
    prune_configs_by={"early_config_prune": keep_fitting},
    do_bench=time_config,
)
@triton.jit
def matmul_swizzled_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B for A (M, K), B (K, N), C (M, N) of any strides; tl.swizzle2d maps programs to tiles.

    The grid's first axis runs along N: the hardware counts it fastest and swizzle2d numbers the
    tiles row by row, so programs that start together are neighbours in a band of GROUP_M rows.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = tl.swizzle2d(tl.program_id(1), tl.program_id(0), num_pid_m, num_pid_n, GROUP_M)
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    # Zero, not one, is the smallest stride: an expanded operand repeats one row or column.
    tl.assume(stride_am >= 0)
    tl.assume(stride_ak >= 0)
    tl.assume(stride_bk >= 0)
    tl.assume(stride_bn >= 0)
    tl.assume(stride_cm >= 0)
    tl.assume(stride_cn >= 0)

    # 64 bits because an index times a stride, or BLOCK_K times a stride, can pass 2**31.
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    step = tl.full((), BLOCK_K, tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & (offs_n[None, :] < N), other=0.0)
        if PROMOTE:
            # Hopper's and Ada's fp8 units keep 13 fraction bits of a running sum: each block is
            # summed from zero and added in fp32. The limit stops the compiler from fusing the two.
            acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk

    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def matmul_swizzled(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul`: the same arguments, formats, result and errors."""
    a, b, c = prepare("matmul_swizzled", a, b, out_dtype, out, input_precision)
    launch_swizzled(a, b, c, input_precision)
    return c


def launch_swizzled(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str
) -> None:
    """Launch the kernel for operands and a result that were checked."""
    launch(matmul_swizzled_kernel, lambda m, n: (n, m), a, b, c, input_precision)
