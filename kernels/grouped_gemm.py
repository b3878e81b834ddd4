"""Products of groups of rows, each with its own matrix, in one launch: mixture of experts."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import warnings
from typing import Any

import torch
import triton
import triton.language as tl

from .arguments import FP8, Arguments, make_configs, num_sms, prepare, time_config
from .bmm import find_tile, load_block
from .descriptors import ALIGNMENT, describe, explain, find_layouts, has_engine
from .matmul_tma import ROW_BYTES

FORMATS = (torch.float16, torch.bfloat16, *FP8)
#: Groups whose tiles a program counts in its registers.
MAX_GROUPS = 1024
# (BLOCK_M, BLOCK_N, num_warps, num_stages, GROUP_M) by the bytes of an element: what fits the
# 227 KB of an SM. fp8 has a second accumulator, for which registers do not suffice in wider tiles.
TILES = {
    2: ((128, 256, 8, 4, 4), (128, 128, 8, 4, 8), (64, 256, 4, 4, 8), (64, 128, 4, 5, 8)),
    1: ((128, 128, 8, 4, 8), (64, 128, 4, 5, 8)),
}


def set_blocks(nargs: Arguments) -> None:
    """Give the descriptors the blocks of a configuration; that of b is of a batch."""
    m, n, k = (nargs[f"BLOCK_{axis}"] for axis in "MNK")
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [1, n, k] if nargs["B_IS_T"] else [1, k, n]


CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": ROW_BYTES // size, "GROUP_M": g},
        num_warps=warps,
        num_stages=stages,
        pre_hook=set_blocks,
    )
    for size, tiles in TILES.items()
    for m, n, warps, stages, g in tiles
]
POINTER_CONFIGS = make_configs((128, 128, 32, 8, 3), (64, 64, 32, 8, 3), GROUP_M=8)
#: Of both tuners. ROWS stands for M, so that another number of rows is not always tuned again.
KEY = ["G", "N", "K", "ROWS", "PROMOTE", "NUM_SMS"]


def keep_fitting(
    configs: list[triton.Config], nargs: Arguments, **options: Any
) -> list[triton.Config]:
    """The configurations of the operands' format, whose rows along K have ROW_BYTES."""
    size = nargs["a_desc"].base.element_size()
    return [x for x in configs if x.kwargs["BLOCK_K"] * size == ROW_BYTES]


@triton.jit
def count_tiles(offsets_ptr, stride, G, BLOCK_M: tl.constexpr, BLOCK_G: tl.constexpr):
    """The tiles that the rows of each group fill, and the sum of them up to each."""
    # 64 bits because an index times a stride can pass 2**31.
    offs_g = tl.arange(0, BLOCK_G).to(tl.int64)
    begin = tl.load(offsets_ptr + offs_g * stride, mask=offs_g < G, other=0)
    end = tl.load(offsets_ptr + (offs_g + 1) * stride, mask=offs_g < G, other=0)
    tiles = tl.cdiv(end - begin, BLOCK_M)
    return tiles, tl.cumsum(tiles, 0)


@triton.jit
def find_tile_of_group(
    tile_id, tiles, ends, offsets_ptr, stride, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The group of a tile, its first row and column, and the row past the group's last.

    Groups follow each other, each in the order of `matmul_persistent`; an empty one has no tile.
    """
    num_pid_n = tl.cdiv(N, BLOCK_N)
    is_before = ends * num_pid_n <= tile_id
    group = tl.sum(is_before.to(tl.int32), 0)
    pid = tile_id - tl.sum(tl.where(is_before, tiles, 0), 0) * num_pid_n
    offset_ptr = offsets_ptr + group.to(tl.int64) * stride
    begin, end = tl.load(offset_ptr), tl.load(offset_ptr + stride)
    _, start_m, start_n = find_tile(pid, end - begin, N, BLOCK_M, BLOCK_N, GROUP_M)
    return group, begin + start_m, start_n, end


@triton.jit
def store_rows(
    acc, c_ptr, start_m, start_n, end, N, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Store what is above the row `end` and within the columns of C."""
    # 64 bits because an index times a stride can pass 2**31.
    offs_m = start_m.to(tl.int64) + tl.arange(0, BLOCK_M)
    # told anew, for the flattened loop does not carry it: else elements are stored one by one
    offs_n = tl.multiple_of(start_n, BLOCK_N).to(tl.int64) + tl.arange(0, BLOCK_N)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < end) & (offs_n[None, :] < N),
    )


@triton.autotune(
    configs=CONFIGS,
    key=[*KEY, "B_IS_T", "B_IS_SHARED"],
    prune_configs_by={"early_config_prune": keep_fitting},
    do_bench=time_config,
)
@triton.jit
def grouped_gemm_tma_kernel(
    a_desc, b_desc, c_ptr, offsets_ptr, G, N, K, stride_cm, stride_cn, stride_offsets,
    B_IS_T: tl.constexpr, B_IS_SHARED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_G: tl.constexpr, GROUP_M: tl.constexpr, ROWS: tl.constexpr,
    NUM_SMS: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """C[rows of g] = A[rows of g] B[g]; program p takes tiles p + i NUM_SMS of those of all groups.

    A tile of A that passes the end of its group has rows of the next, which are not stored.
    B_IS_T: the descriptor is of transposes. ROWS is read by the tuner alone.
    """
    tiles, ends = count_tiles(offsets_ptr, stride_offsets, G, BLOCK_M, BLOCK_G)
    num_tiles = tl.sum(tiles, 0) * tl.cdiv(N, BLOCK_N)
    k_tiles = tl.cdiv(K, BLOCK_K)

    for tile_id in tl.range(tl.program_id(0), num_tiles, NUM_SMS, flatten=True):
        group, start_m, start_n, end = find_tile_of_group(
            tile_id, tiles, ends, offsets_ptr, stride_offsets, N, BLOCK_M, BLOCK_N, GROUP_M
        )
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, k_tiles):
            start_k = k * BLOCK_K
            a = a_desc.load([start_m, start_k])
            b = load_block(b_desc, group, start_k, start_n, B_IS_T, B_IS_SHARED, BLOCK_K, BLOCK_N)
            if PROMOTE:
                # Hopper's fp8 units keep 13 fraction bits of a running sum: each block is summed
                # from zero and added in fp32. The limit keeps the compiler from fusing.
                acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
            else:
                acc = tl.dot(a, b, acc)
        store_rows(acc, c_ptr, start_m, start_n, end, N, stride_cm, stride_cn, BLOCK_M, BLOCK_N)


@triton.autotune(
    configs=POINTER_CONFIGS,
    key=[
        *KEY,
        *("stride_am", "stride_ak", "stride_bg", "stride_bk", "stride_bn"),
        *("stride_cm", "stride_cn"),
    ],
    do_bench=time_config,
)
@triton.jit
def grouped_gemm_kernel(
    a_ptr, b_ptr, c_ptr, offsets_ptr, G, N, K,
    stride_am, stride_ak, stride_bg, stride_bk, stride_bn, stride_cm, stride_cn, stride_offsets,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_G: tl.constexpr, GROUP_M: tl.constexpr, ROWS: tl.constexpr,
    NUM_SMS: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """As `grouped_gemm_tma_kernel`, for A (M, K), B (G, K, N), C (M, N) of any strides."""
    tiles, ends = count_tiles(offsets_ptr, stride_offsets, G, BLOCK_M, BLOCK_G)
    num_tiles = tl.sum(tiles, 0) * tl.cdiv(N, BLOCK_N)

    for tile_id in tl.range(tl.program_id(0), num_tiles, NUM_SMS):
        group, start_m, start_n, end = find_tile_of_group(
            tile_id, tiles, ends, offsets_ptr, stride_offsets, N, BLOCK_M, BLOCK_N, GROUP_M
        )
        b_of_group = b_ptr + group.to(tl.int64) * stride_bg
        offs_m = start_m.to(tl.int64) + tl.arange(0, BLOCK_M)
        offs_n = start_n.to(tl.int64) + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
            a = tl.load(
                a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
                mask=(offs_m[:, None] < end) & (offs_k[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_of_group + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
                mask=(offs_k[:, None] < K) & (offs_n[None, :] < N),
                other=0.0,
            )
            if PROMOTE:
                acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)  # as above
            else:
                acc = tl.dot(a, b, acc)
        store_rows(acc, c_ptr, start_m, start_n, end, N, stride_cm, stride_cn, BLOCK_M, BLOCK_N)


def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rows offsets[g] to offsets[g + 1] - 1 of a (M, K), times b[g] of b (G, K, N), as rows of c.

    offsets (G + 1,) is int32 and begins with 0, does not decrease and ends with M, so groups may be
    empty; the host does not read it. Strides may be any. fp16, bf16 and fp8 (e4m3fn, e5m2) of one
    format accumulate in fp32 and are rounded once to `out_dtype`, by default the operands' own, for
    fp8 fp32. `out` and errors are as of `matmul`. Where the copy engine cannot address a or b, a
    warning says why in one line, and pointers are used.
    """
    a, b, c = prepare("grouped_gemm", a, b, out_dtype, out, "ieee", ("M K", "G K N"))
    if a.dtype not in FORMATS:
        raise TypeError(f"grouped_gemm: got a of {a.dtype}, expected 16-bit floats or fp8")
    _check_offsets(offsets, a, b)
    if c.numel() == 0:
        return c
    a_rows, (b_rows, b_columns) = find_layouts(a)[0], find_layouts(b)
    # a group begins at any row, which no block of dense columns may
    fits = a_rows & (b_columns if a.element_size() == 1 else b_rows | b_columns)
    sms = num_sms(a.device)
    (M, N), (G, K, _) = c.shape, b.shape

    def programs(meta: dict[str, int]) -> tuple[int]:
        # a group has one tile of rows that it does not fill
        tiles = (M // meta["BLOCK_M"] + G) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(sms, tiles),)

    constants = {
        "BLOCK_G": triton.next_power_of_2(G),
        "ROWS": triton.next_power_of_2(min(triton.cdiv(M, G), 1024)),
        "NUM_SMS": sms,
        "PROMOTE": a.dtype in FP8,
    }
    with torch.cuda.device_of(c):
        if has_engine(a.device) and fits & (K > 0):
            grouped_gemm_tma_kernel[programs](
                describe(a, False), describe(b, not b_rows), c, offsets,
                G, N, K, *c.stride(), offsets.stride(0), not b_rows, b.stride(0) == 0,
                **constants,
            )  # fmt: skip
        else:
            of_b = "columns" if a.element_size() == 1 else "rows or columns"
            layout = f"dense rows of a and {of_b} of b, each after a multiple of {ALIGNMENT} bytes"
            reason = explain(a, layout, b=b)
            warnings.warn(f"grouped_gemm: {reason}; pointers are used", stacklevel=2)
            grouped_gemm_kernel[programs](
                a, b, c, offsets, G, N, K, *a.stride(), *b.stride(), *c.stride(),
                offsets.stride(0), **constants,
            )  # fmt: skip
    return c


def _check_offsets(offsets: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Check the offsets as far as possible without reading them."""
    if not isinstance(offsets, torch.Tensor) or offsets.dtype != torch.int32:
        got = getattr(offsets, "dtype", type(offsets).__name__)
        raise TypeError(f"grouped_gemm: got offsets of {got}, expected torch.int32")
    if offsets.device != a.device:
        raise TypeError(f"grouped_gemm: got offsets on {offsets.device}, expected {a.device}")
    M, G = a.shape[0], b.shape[0]
    if tuple(offsets.shape) != (G + 1,):
        raise ValueError(
            f"grouped_gemm: got offsets of shape {tuple(offsets.shape)}, expected {(G + 1,)}"
        )
    if not min(M, 1) <= G <= MAX_GROUPS:
        raise ValueError(
            f"grouped_gemm: got {G} groups for {M} rows, expected {int(M > 0)} to {MAX_GROUPS}"
        )
