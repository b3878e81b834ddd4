"""One program per tile of C on a two-dimensional grid, every access masked on both of its axes."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import MAX_GRID_Y, arithmetic, prepare

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 32}, num_warps=8, num_stages=4),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=3),
]
#: Strides decide which loads vectorise, so a choice made for one layout is not reused for another.
KEY = [
    *("M", "N", "K", "INPUT_PRECISION"),
    *("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"),
]


@triton.autotune(configs=CONFIGS, key=KEY)
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

    fp16, bf16, fp32 and fp8 (e4m3fn, e5m2) are summed in fp32 and rounded once to `out_dtype`, one
    of those formats: by default the operands' own, for fp8 fp32. int8 is summed in int32 and stays
    so. fp32 operands are multiplied whole, or cut to tf32 when `input_precision="tf32"`; global
    switches are not consulted. `out`, when given, is overwritten and returned; it may have any
    strides but no memory in common with a or b. Not differentiable.

    Raises TypeError for a type, format or device it does not take, ValueError for a shape.
    """
    a, b, c = prepare("matmul", a, b, out_dtype, out, input_precision)
    if c.numel() == 0:
        return c
    narrowest = min(config.kwargs["BLOCK_N"] for config in CONFIGS)
    if triton.cdiv(c.shape[1], narrowest) > MAX_GRID_Y:
        _launch(b.T, a.T, c.T, input_precision)
    else:
        _launch(a, b, c, input_precision)
    return c


def _launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    M, N = c.shape

    def grid(meta: dict[str, int]) -> tuple[int, ...]:
        return triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"])

    constants = arithmetic(a.dtype, input_precision)
    with torch.cuda.device_of(c):
        matmul_kernel[grid](
            a, b, c, M, N, a.shape[1], *a.stride(), *b.stride(), *c.stride(), **constants
        )
