"""One program per tile of C, numbered so that neighbours share rows of A and columns of B in L2."""

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
def matmul_grouped_kernel(
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
    """C = A B for A (M, K), B (K, N), C (M, N) of any strides.

    Bands of GROUP_M rows of tiles follow each other; inside a band the tiles go down its columns.
    """
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = pid % num_pid_in_group
    pid_m = first_pid_m + pid_in_group % group_size_m
    pid_n = pid_in_group // group_size_m

    # Rows and columns past the end wrap to valid ones, whose results are never stored, so the
    # loads need only the K mask. 64 bits because an index times a stride can pass 2**31.
    offs_am = ((pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    offs_bn = ((pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        offs = k * BLOCK_K + offs_k
        a_ptrs = a_ptr + offs_am[:, None] * stride_am + offs[None, :] * stride_ak
        b_ptrs = b_ptr + offs[:, None] * stride_bk + offs_bn[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=offs[None, :] < K, other=0.0)
        b = tl.load(b_ptrs, mask=offs[:, None] < K, other=0.0)
        if PROMOTE:
            # Hopper's and Ada's fp8 units keep 13 fraction bits of a running sum: each block is
            # summed from zero and added in fp32. The limit stops the compiler from fusing the two.
            acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

    offs_cm = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_cn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    tl.store(
        c_ptr + offs_cm[:, None] * stride_cm + offs_cn[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N),
    )


def matmul_grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul`: the same arguments, formats, result and errors."""
    a, b, c = prepare("matmul_grouped", a, b, out_dtype, out, input_precision)
    launch_grouped(a, b, c, input_precision)
    return c


def launch_grouped(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Launch the kernel for operands and a result that were checked."""
    launch(matmul_grouped_kernel, lambda m, n: (m * n,), a, b, c, input_precision)
