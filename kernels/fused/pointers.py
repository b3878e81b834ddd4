"""matmul_fused where the copy engine cannot address an operand: by pointers, a tile a program."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..arguments import make_configs, time_config
from .epilogues import Epilogue, count_tiles, finish, launch_epilogue

CONFIGS = make_configs((128, 128, 64, 8, 3), (64, 64, 32, 4, 4), (32, 64, 64, 4, 4), GROUP_M=8)
#: Without timing: where no loads vectorise, and in fp32, the registers hold no wider tile.
NARROW = CONFIGS[1:]
#: Strides decide which loads vectorise, absent operands how much else a program does.
KEY = [
    *("M", "N", "K", "INPUT_PRECISION", "ACTIVATION"),
    *("BIAS_BYTES", "C_BYTES", "RESIDUAL_BYTES", "OUT_BYTES"),
    *("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_bias"),
    *("stride_cm", "stride_cn", "stride_rm", "stride_rn", "stride_om", "stride_on"),
]


@triton.autotune(configs=CONFIGS, key=KEY, do_bench=time_config)
@triton.jit
def matmul_fused_pointers_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    residual_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_bias,
    stride_cm,
    stride_cn,
    stride_rm,
    stride_rn,
    stride_om,
    stride_on,
    alpha,
    beta,
    BIAS_BYTES: tl.constexpr,
    C_BYTES: tl.constexpr,
    RESIDUAL_BYTES: tl.constexpr,
    OUT_BYTES: tl.constexpr,
    ACTIVATION: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """`finish` of A B for operands of any strides; bias, c and residual are None where absent.

    The BYTES are read by the tuner alone. Tiles are in the order of `matmul_persistent`.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    tile_id = tl.program_id(0)
    first_pid_m = (tile_id // num_pid_in_group) * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = tile_id % num_pid_in_group
    pid_m = first_pid_m + pid_in_group % group_size_m
    pid_n = pid_in_group // group_size_m
    # 64 bits because an index times a stride can pass 2**31
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)

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
        acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION)

    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    bias, c, residual = None, None, None
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + offs_n * stride_bias, mask=offs_n < N, other=0.0)[None, :]
    if c_ptr is not None:
        c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
        c = tl.load(c_ptrs, mask=mask, other=0.0)
    if residual_ptr is not None:
        r_ptrs = residual_ptr + offs_m[:, None] * stride_rm + offs_n[None, :] * stride_rn
        residual = tl.load(r_ptrs, mask=mask, other=0.0)
    out = finish(acc, bias, c, residual, alpha, beta, ACTIVATION)
    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)


def launch_pointers(
    a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue, input_precision: str
) -> None:
    """Launch the kernel for operands that were checked."""
    bias, c, residual, out = epilogue.bias, epilogue.c, epilogue.residual, epilogue.out
    M, N = out.shape
    matrices = {"a": a, "b": b, "c": c, "residual": residual, "out": out}
    names = ("am", "ak", "bk", "bn", "cm", "cn", "rm", "rn", "om", "on")
    strides = [s for x in matrices.values() for s in ((0, 0) if x is None else x.stride())]
    given = {
        **{f"{name}_ptr": x for name, x in matrices.items()},
        "bias_ptr": bias,
        "M": M,
        "N": N,
        "K": a.shape[1],
        **{f"stride_{name}": s for name, s in zip(names, strides, strict=True)},
        "stride_bias": 0 if bias is None else bias.stride(0),
        "INPUT_PRECISION": input_precision,
    }

    def programs(meta: dict[str, int]) -> tuple[int]:
        return (count_tiles(out, meta),)

    launch_epilogue(matmul_fused_pointers_kernel, NARROW, programs, epilogue, given)
