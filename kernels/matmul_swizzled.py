"""One program per tile of C on a two-dimensional grid renumbered in bands; pointers advance."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import MAX_GRID_Y, arithmetic, prepare

#: BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages.
TILES = [
    (128, 256, 64, 8, 3),
    (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4),
    (64, 32, 32, 2, 5),
    (32, 64, 32, 2, 5),
]
CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_warps=w, num_stages=s
    )
    for m, n, k, w, s in TILES
]
#: Strides decide which loads vectorise, so a choice made for one layout is not reused for another.
KEY = [
    *("M", "N", "K", "INPUT_PRECISION"),
    *("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"),
]


@triton.autotune(configs=CONFIGS, key=KEY)
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
    """a @ b for a (M, K) and b (K, N) of one format and any strides, on one device.

    fp16, bf16, fp32 and fp8 (e4m3fn, e5m2) are summed in fp32 and rounded once to `out_dtype`, one
    of those formats: by default the operands' own, for fp8 fp32. int8 is summed in int32 and stays
    so. fp32 operands are multiplied whole, or cut to tf32 when `input_precision="tf32"`; global
    switches are not consulted. `out`, when given, is overwritten and returned; it may have any
    strides but no memory in common with a or b. Not differentiable.

    Raises TypeError for a type, format or device it does not take, ValueError for a shape.
    """
    a, b, c = prepare("matmul_swizzled", a, b, out_dtype, out, input_precision)
    if c.numel() == 0:
        return c
    narrowest = min(config.kwargs["BLOCK_M"] for config in CONFIGS)
    if triton.cdiv(c.shape[0], narrowest) > MAX_GRID_Y:
        _launch(b.T, a.T, c.T, input_precision)
    else:
        _launch(a, b, c, input_precision)
    return c


def _launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    M, N = c.shape

    def grid(meta: dict[str, int]) -> tuple[int, ...]:
        return triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"])

    constants = arithmetic(a.dtype, input_precision)
    with torch.cuda.device_of(c):
        matmul_swizzled_kernel[grid](
            a, b, c, M, N, a.shape[1], *a.stride(), *b.stride(), *c.stride(), **constants
        )
