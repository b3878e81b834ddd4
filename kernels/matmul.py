"""One program per tile of C on a two-dimensional grid, every access masked on both of its axes."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import KEY, launch, make_configs, prepare, time_config

CONFIGS = make_configs(
    (128, 64, 64, 4, 4),
    (128, 128, 32, 4, 3),
    (128, 128, 64, 8, 3),
    (64, 256, 32, 8, 4),
    (256, 128, 32, 8, 3),
)


@triton.autotune(configs=CONFIGS, key=KEY, do_bench=time_config)
@triton.jit
def matmul_kernel(
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
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B for A (M, K), B (K, N), C (M, N) of any strides; program (i, j) stores its tile."""
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    # Indices are 64 bits wide because an index times a stride can pass 2**31.
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
    for k in range(0, K, BLOCK_K):
        offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
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
            # Hopper's and Ada's fp8 units keep 13 fraction bits of a running sum: each block is
            # summed from zero and added in fp32. The limit stops the compiler from fusing the two.
            acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one format and any strides, on one device.

    fp16, bf16, fp32 and fp8 (e4m3fn, e5m2) accumulate in fp32 and are rounded once to `out_dtype`,
    one of those formats: by default the operands' own, for fp8 fp32. int8 accumulates in int32 and
    stays so. fp32 operands are multiplied in full, or truncated to tf32 if `input_precision` is
    "tf32"; global switches are ignored. `out`, when given, is overwritten and returned; it may have
    any strides but no memory in common with a or b. Not differentiable.

    Raises TypeError for a type, format or device it does not take, ValueError for a shape.
    """
    a, b, c = prepare("matmul", a, b, out_dtype, out, input_precision)
    launch_matmul(a, b, c, input_precision)
    return c


def launch_matmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Launch the kernel for operands and a result that were checked."""
    launch(matmul_kernel, lambda m, n: (m, n), a, b, c, input_precision)
