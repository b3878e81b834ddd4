"""Products of fp8 or int8 operands, scaled by the tensor or by the row, through the copy engine."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import warnings
from typing import Any

import torch
import triton
import triton.language as tl

from ..arguments import FP8, Arguments, check_operands, num_sms
from ..descriptors import SHARED_MEMORY, describe, find_layouts, has_engine
from .scaled_pointers import launch_by_pointers
from .scales import (
    BIAS_DTYPES,
    BLOCK_K,
    as_matrix,
    check_vector,
    explain_pointers,
    make_result,
    scale_tile,
)

# (BLOCK_M, BLOCK_N, num_warps, num_stages, GROUP_M, SUBTILES). Results of 32 bits leave no room
# for the fourth stage of the widest tile. Halves of the others would be of 64 columns, for which
# wgmma reads as many bytes of a as of b.
TILES = (
    (128, 256, 8, 4, 2, 2),
    (128, 256, 8, 3, 2, 2),
    (128, 128, 8, 4, 8, 1),
    (64, 128, 4, 4, 8, 1),
)


def set_blocks(nargs: Arguments) -> None:
    """Give the descriptors the blocks of a configuration."""
    m, n, k = (nargs[f"BLOCK_{axis}"] for axis in "MNK")
    parts = nargs["SUBTILES"]
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [n // parts if nargs["PROMOTE"] else n, k]
    nargs["c_desc"].block_shape = [m, n // parts]


CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": BLOCK_K, "GROUP_M": g, "SUBTILES": parts},
        num_warps=warps,
        num_stages=stages,
        pre_hook=set_blocks,
    )
    for m, n, warps, stages, g, parts in TILES
]


def keep_fitting(
    configs: list[triton.Config], nargs: Arguments, **options: Any
) -> list[triton.Config]:
    """The configurations that fit an SM with results of C_BYTES."""
    c_bytes = {**nargs, **options}["C_BYTES"]
    kept = []
    for config in configs:
        m, n, parts = (config.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "SUBTILES"))
        if config.num_stages * (m + n) * BLOCK_K + m * n // parts * c_bytes < SHARED_MEMORY:
            kept.append(config)
    return kept


@triton.autotune(
    configs=CONFIGS,
    key=[
        *("M", "N", "K", "C_BYTES", "A_PER_ROW", "B_PER_COLUMN"),
        *("ACC_DTYPE", "PROMOTE", "NUM_SMS"),
    ],
    prune_configs_by={"early_config_prune": keep_fitting},
)
@triton.jit
def matmul_scaled_kernel(
    a_desc,
    b_desc,
    c_desc,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    M,
    N,
    K,
    stride_sa,
    stride_sb,
    stride_bias,
    C_BYTES: tl.constexpr,
    A_PER_ROW: tl.constexpr,
    B_PER_COLUMN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SUBTILES: tl.constexpr,
    NUM_SMS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B of scales and a bias; program p takes tiles p + i NUM_SMS, as in `matmul_tma`.

    b_desc is of the transpose. C_BYTES is read by the tuner alone.
    """
    HALF: tl.constexpr = BLOCK_N // 2
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

        # Hopper's fp8 units keep 13 fraction bits of a running sum. Promotion sums each block from
        # zero and adds it in fp32; the limit keeps the compiler from fusing. The second
        # accumulator that it takes has room in the registers for one half of the tile at a time.
        if PROMOTE and SUBTILES == 2:
            left = tl.zeros((BLOCK_M, HALF), dtype=ACC_DTYPE)
            right = tl.zeros((BLOCK_M, HALF), dtype=ACC_DTYPE)
            for k in range(0, k_tiles):
                a = a_desc.load([start_m, k * BLOCK_K])
                b_left = b_desc.load([start_n, k * BLOCK_K]).T
                left += tl.dot(a, b_left, max_num_imprecise_acc=BLOCK_K)
                b_right = b_desc.load([start_n + HALF, k * BLOCK_K]).T
                right += tl.dot(a, b_right, max_num_imprecise_acc=BLOCK_K)
        else:
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
            for k in range(0, k_tiles):
                a = a_desc.load([start_m, k * BLOCK_K])
                b = b_desc.load([start_n, k * BLOCK_K]).T
                if PROMOTE:
                    acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
                else:
                    acc = tl.dot(a, b, acc, out_dtype=ACC_DTYPE)
            if SUBTILES == 2:
                halves = tl.reshape(acc, (BLOCK_M, 2, HALF))
                left, right = tl.split(tl.permute(halves, (0, 2, 1)))

        if SUBTILES == 2:
            c = scale_tile(
                left, start_m, start_n, M, N, scale_a_ptr, scale_b_ptr, bias_ptr,
                stride_sa, stride_sb, stride_bias, A_PER_ROW, B_PER_COLUMN,
            )  # fmt: skip
            c_desc.store([start_m, start_n], c.to(c_desc.dtype))
            c = scale_tile(
                right, start_m, start_n + HALF, M, N, scale_a_ptr, scale_b_ptr, bias_ptr,
                stride_sa, stride_sb, stride_bias, A_PER_ROW, B_PER_COLUMN,
            )  # fmt: skip
            c_desc.store([start_m, start_n + HALF], c.to(c_desc.dtype))
        else:
            c = scale_tile(
                acc, start_m, start_n, M, N, scale_a_ptr, scale_b_ptr, bias_ptr,
                stride_sa, stride_sb, stride_bias, A_PER_ROW, B_PER_COLUMN,
            )  # fmt: skip
            c_desc.store([start_m, start_n], c.to(c_desc.dtype))


def matmul_scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    out: torch.Tensor | None = None,
    fast_accum: bool = False,
) -> torch.Tensor:
    """c = (a @ b) * scale_a * scale_b + bias, rounded once to out_dtype (bf16, fp16 or fp32).

    a (M, K), b (K, N): both of one fp8 format, or int8. The scales are fp32 and each for the whole
    tensor, (), (1,) or (1, 1), or for its rows or columns: scale_a (M,) or (M, 1), scale_b (N,) or
    (1, N). bias (N,): bf16, fp16 or fp32.

    fp8 is summed in fp32, of blocks of 128 along K that Hopper's tensor core sums with 13 fraction
    bits; with fast_accum the whole sum keeps these alone. int8 is summed exactly in int32, which
    is rounded to fp32 before it is scaled.

    Rows of a, columns of b and rows of c that are dense, and begin every so many times 16 bytes,
    are fetched and stored by the copy engine. For others a warning says why in one line, and
    pointers are used.
    """
    where = "matmul_scaled"
    check_operands(where, a, b, (*FP8, torch.int8))
    (M, K), N = a.shape, b.shape[1]
    if fast_accum and a.dtype == torch.int8:
        raise TypeError(f"{where}: got fast_accum=True for torch.int8, expected it for fp8 only")
    whole = ((), (1,), (1, 1))
    scale_a = check_vector(where, "scale_a", scale_a, ((M,), (M, 1), *whole), a.device)
    scale_b = check_vector(where, "scale_b", scale_b, ((N,), (1, N), *whole), a.device)
    scale_a, scale_b = as_matrix(scale_a, -1), as_matrix(scale_b, 0)
    matrices = {"scale_a": scale_a, "scale_b": scale_b}
    if bias is not None:
        bias = check_vector(where, "bias", bias, ((N,),), a.device, BIAS_DTYPES)
        matrices["bias"] = bias[None, :]
    c = make_result(where, out, out_dtype, a, b, **matrices)
    if c.numel() == 0:
        return c
    fits = find_layouts(a)[0] & find_layouts(b)[1] & find_layouts(c, is_stored=True)[0]
    if has_engine(a.device) and fits & (K > 0):
        _launch(a, b, c, scale_a, scale_b, bias, fast_accum)
        return c
    if K > 0:
        warnings.warn(f"{where}: {explain_pointers(a, b, c)}; pointers are used", stacklevel=2)
    launch_by_pointers(a, b, c, scale_a, scale_b, bias, fast_accum)
    return c


def _launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, scale_a: torch.Tensor,
    scale_b: torch.Tensor, bias: torch.Tensor | None, fast_accum: bool,
) -> None:  # fmt: skip
    sms = num_sms(a.device)

    def programs(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(c.shape[0], meta["BLOCK_M"]) * triton.cdiv(c.shape[1], meta["BLOCK_N"])
        return (min(sms, tiles),)

    with torch.cuda.device_of(c):
        matmul_scaled_kernel[programs](
            describe(a, False), describe(b, True), describe(c, False),
            scale_a, scale_b, bias, *c.shape, a.shape[1],
            scale_a.stride(0), scale_b.stride(1), 0 if bias is None else bias.stride(0),
            C_BYTES=c.element_size(),
            A_PER_ROW=scale_a.shape[0] > 1,
            B_PER_COLUMN=scale_b.shape[1] > 1,
            NUM_SMS=sms,
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            PROMOTE=a.dtype in FP8 and not fast_accum,
        )  # fmt: skip
