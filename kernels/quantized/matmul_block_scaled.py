"""fp8 products with a scale for 128 elements along K of a row of a, and for 128 x 128 of b."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import warnings
from typing import Any

import torch
import triton
import triton.language as tl

from ..arguments import FP8, check_operands, num_sms
from ..descriptors import describe, find_layouts, has_engine
from .scales import BLOCK_K, check_vector, explain_pointers, make_result

#: Columns of b that share a scale: a tile is no wider, and has one a block of K.
GROUP_N = tl.constexpr(128)
# (BLOCK_M, BLOCK_N, num_warps, num_stages, GROUP_M): tiles whose second accumulator has registers.
TILES = ((128, 128, 8, 4, 8), (64, 128, 4, 4, 8))
#: Of the kernel by pointers: few enough addresses for its registers, whatever the strides.
POINTER_TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": BLOCK_K, "GROUP_M": 8}


def set_blocks(nargs: dict[str, Any]) -> None:
    """Give the descriptors the blocks of a configuration."""
    m, n, k = (nargs[f"BLOCK_{axis}"] for axis in "MNK")
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [n, k]
    nargs["c_desc"].block_shape = [m, n]


CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": BLOCK_K, "GROUP_M": g},
        num_warps=warps,
        num_stages=stages,
        pre_hook=set_blocks,
    )
    for m, n, warps, stages, g in TILES
]


@triton.jit
def load_scales(
    scale_a_ptr,
    scale_b_ptr,
    k,
    start_m,
    start_n,
    M,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    BLOCK_M: tl.constexpr,
):
    """The scales of block k of K: a's of the rows from start_m, times b's of their one block."""
    # 64 bits because an index times a stride can pass 2**31
    offs_m = (start_m + tl.arange(0, BLOCK_M)).to(tl.int64)
    block_k = k.to(tl.int64)
    scale_a = tl.load(
        scale_a_ptr + offs_m * stride_sam + block_k * stride_sak, mask=offs_m < M, other=0.0
    )
    block_n = (start_n // GROUP_N).to(tl.int64)
    return scale_a * tl.load(scale_b_ptr + block_k * stride_sbk + block_n * stride_sbn)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "C_BYTES", "NUM_SMS"])
@triton.jit
def matmul_block_scaled_kernel(
    a_desc,
    b_desc,
    c_desc,
    scale_a_ptr,
    scale_b_ptr,
    M,
    N,
    K,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    C_BYTES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
):
    """C = A B of scaled blocks; program p takes tiles p + i NUM_SMS, as in `matmul_tma`.

    b_desc is of the transpose. C_BYTES is read by the tuner alone.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    k_tiles = tl.cdiv(K, BLOCK_K)

    for tile_id in tl.range(tl.program_id(0), num_pid_m * num_pid_n, NUM_SMS, flatten=True):
        first_pid_m = (tile_id // num_pid_in_group) * GROUP_M
        group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
        pid_in_group = tile_id % num_pid_in_group
        start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
        start_n = (pid_in_group // group_size_m) * BLOCK_N

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, k_tiles):
            a = a_desc.load([start_m, k * BLOCK_K])
            b = b_desc.load([start_n, k * BLOCK_K]).T
            scales = load_scales(
                scale_a_ptr, scale_b_ptr, k, start_m, start_n, M,
                stride_sam, stride_sak, stride_sbk, stride_sbn, BLOCK_M,
            )  # fmt: skip
            acc = tl.fma(tl.dot(a, b), scales[:, None], acc)
        c_desc.store([start_m, start_n], acc.to(c_desc.dtype))


@triton.jit
def matmul_block_scaled_pointer_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    scale_a_ptr,
    scale_b_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    stride_sam,
    stride_sak,
    stride_sbk,
    stride_sbn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """As `matmul_block_scaled_kernel`, of any strides; a program for each tile."""
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first_pid_m = (tl.program_id(0) // num_pid_in_group) * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = tl.program_id(0) % num_pid_in_group
    start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
    start_n = (pid_in_group // group_size_m) * BLOCK_N
    offs_m = (start_m + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (start_n + tl.arange(0, BLOCK_N)).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
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
        scales = load_scales(
            scale_a_ptr, scale_b_ptr, k, start_m, start_n, M,
            stride_sam, stride_sak, stride_sbk, stride_sbn, BLOCK_M,
        )  # fmt: skip
        acc = tl.fma(tl.dot(a, b), scales[:, None], acc)

    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def matmul_block_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """c = (a * scales of a) @ (b * scales of b), rounded once to out_dtype (bf16, fp16 or fp32).

    a (M, K), b (K, N): both of one fp8 format. scale_a (M, cdiv(K, 128)): a fp32 scale for 128
    elements of a row; scale_b (cdiv(K, 128), cdiv(N, 128)): one for a block of 128 x 128. The last
    blocks may be cut off.

    Each block of 128 along K is summed from zero, and added in fp32 times its two scales.

    Descriptors and warnings as in `matmul_scaled`.
    """
    where = "matmul_block_scaled"
    check_operands(where, a, b, FP8)
    (M, K), N = a.shape, b.shape[1]
    k_blocks, n_blocks = triton.cdiv(K, BLOCK_K), triton.cdiv(N, GROUP_N.value)
    scale_a = check_vector(where, "scale_a", scale_a, ((M, k_blocks),), a.device)
    scale_b = check_vector(where, "scale_b", scale_b, ((k_blocks, n_blocks),), a.device)
    c = make_result(where, out, out_dtype, a, b, scale_a=scale_a, scale_b=scale_b)
    if c.numel() == 0:
        return c
    strides = (*scale_a.stride(), *scale_b.stride())
    fits = find_layouts(a)[0] & find_layouts(b)[1] & find_layouts(c, is_stored=True)[0]
    if has_engine(a.device) and fits & (K > 0):
        _launch(a, b, c, scale_a, scale_b, strides)
        return c
    if K > 0:
        warnings.warn(f"{where}: {explain_pointers(a, b, c)}; pointers are used", stacklevel=2)
    tiles = triton.cdiv(M, POINTER_TILE["BLOCK_M"]) * triton.cdiv(N, POINTER_TILE["BLOCK_N"])
    with torch.cuda.device_of(c):
        matmul_block_scaled_pointer_kernel[(tiles,)](
            a, b, c, scale_a, scale_b, M, N, K,
            *a.stride(), *b.stride(), *c.stride(), *strides,
            **POINTER_TILE, num_warps=4, num_stages=3,
        )  # fmt: skip
    return c


def _launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale_a: torch.Tensor,
    scale_b: torch.Tensor, strides: tuple[int, ...],
) -> None:  # fmt: skip
    sms = num_sms(a.device)

    def programs(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(c.shape[0], meta["BLOCK_M"]) * triton.cdiv(c.shape[1], meta["BLOCK_N"])
        return (min(sms, tiles),)

    with torch.cuda.device_of(c):
        matmul_block_scaled_kernel[programs](
            describe(a, False), describe(b, True), describe(c, False), scale_a, scale_b,
            *c.shape, a.shape[1], *strides, C_BYTES=c.element_size(), NUM_SMS=sms,
        )  # fmt: skip
