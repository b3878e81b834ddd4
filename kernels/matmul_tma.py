"""Persistent programs that fetch and store whole tiles through Hopper's copy engine."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .arguments import FP8, Arguments, num_sms, prepare, time_config
from .descriptors import SHARED_MEMORY, describe, find_product_or_warn
from .matmul_persistent import launch_persistent

#: Bytes of a tile's rows along K: the widest swizzle of shared memory.
ROW_BYTES = 128
# (BLOCK_M, BLOCK_N, num_warps, num_stages, GROUP_M, SUBTILES) by the bytes of an element: what fits
# the 227 KB of an SM. A tile of c in halves leaves room for a fourth stage of the widest tiles;
# operands of 8 bits have results of 32.
TILES = {
    2: (
        (128, 256, 8, 4, 2, 2),
        (256, 128, 8, 4, 2, 2),
        (128, 128, 4, 5, 8, 1),
        (64, 128, 4, 6, 8, 1),
        (64, 64, 4, 8, 8, 1),
    ),
    1: ((128, 256, 8, 3, 2, 2), (128, 128, 8, 4, 8, 2), (64, 128, 4, 6, 8, 1)),
    4: ((128, 256, 8, 3, 2, 2), (128, 128, 8, 4, 8, 2), (64, 128, 4, 6, 8, 1)),
}


def set_blocks(nargs: Arguments) -> None:
    """Give the descriptors the blocks of a configuration."""
    m, n, k = (nargs[f"BLOCK_{axis}"] for axis in "MNK")
    nargs["a_desc"].block_shape = [k, m] if nargs["A_IS_T"] else [m, k]
    nargs["b_desc"].block_shape = [n, k] if nargs["B_IS_T"] else [k, n]
    nargs["c_desc"].block_shape = [m, n // nargs["SUBTILES"]]


CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": ROW_BYTES // size, "GROUP_M": g, "SUBTILES": parts},
        num_warps=warps,
        num_stages=stages,
        pre_hook=set_blocks,
    )
    for size, tiles in TILES.items()
    for m, n, warps, stages, g, parts in tiles
]


def keep_fitting(
    configs: list[triton.Config], nargs: Arguments, **options: Any
) -> list[triton.Config]:
    """The configurations of the operands' format that fit an SM with results of C_BYTES.

    Their rows along K have ROW_BYTES. Promotion has a second accumulator, for which the registers
    do not suffice in the widest tiles.
    """
    given = {**nargs, **options}
    size = given["a_desc"].base.element_size()
    kept = []
    for config in configs:
        m, n, k, parts = (
            config.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SUBTILES")
        )
        shared = config.num_stages * (m + n) * ROW_BYTES + m * n // parts * given["C_BYTES"]
        fits = shared < SHARED_MEMORY and (n <= 128 or not given["PROMOTE"])
        if k * size == ROW_BYTES and fits:
            kept.append(config)
    return kept


@triton.autotune(
    configs=CONFIGS,
    # the formats too, which Triton does not see in descriptors
    key=[
        *("M", "N", "K", "A_IS_T", "B_IS_T", "C_BYTES"),
        *("ACC_DTYPE", "INPUT_PRECISION", "PROMOTE", "NUM_SMS"),
    ],
    prune_configs_by={"early_config_prune": keep_fitting},
    do_bench=time_config,
)
@triton.jit
def matmul_tma_kernel(
    a_desc,
    b_desc,
    c_desc,
    M,
    N,
    K,
    A_IS_T: tl.constexpr,
    B_IS_T: tl.constexpr,
    C_BYTES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SUBTILES: tl.constexpr,
    NUM_SMS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B; program p takes tiles p + i NUM_SMS, in the order of `matmul_persistent`.

    A_IS_T, B_IS_T: the descriptor is of the transpose. C_BYTES is read by the tuner alone. What
    lies outside of a matrix is fetched as 0 and not stored, which the copy engine sees to.
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

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
        for k in range(0, k_tiles):
            start_k = k * BLOCK_K
            a = a_desc.load([start_k, start_m]).T if A_IS_T else a_desc.load([start_m, start_k])
            b = b_desc.load([start_n, start_k]).T if B_IS_T else b_desc.load([start_k, start_n])
            if PROMOTE:
                # Hopper's fp8 units keep 13 fraction bits of a running sum: each block is summed
                # from zero and added in fp32. The limit keeps the compiler from fusing.
                acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
            else:
                acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

        if SUBTILES == 2:
            halves = tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2))
            left, right = tl.split(tl.permute(halves, (0, 2, 1)))
            c_desc.store([start_m, start_n], left.to(c_desc.dtype))
            c_desc.store([start_m, start_n + BLOCK_N // 2], right.to(c_desc.dtype))
        else:
            c_desc.store([start_m, start_n], acc.to(c_desc.dtype))


def matmul_tma(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul`: the same arguments, formats, result and errors.

    Where the copy engine cannot address a, b or c, a warning says why in one line, and pointers are
    used as in `matmul_persistent`; so they are for an empty K and for fp32 in full precision, which
    no tensor core takes.
    """
    a, b, c = prepare("matmul_tma", a, b, out_dtype, out, input_precision)
    launch_tma(a, b, c, input_precision)
    return c


def launch_tma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Launch the kernel for operands and a result that were checked."""
    if c.numel() == 0:
        return
    product = find_product_or_warn("matmul_tma", a, b, c, input_precision)
    if product is None:
        launch_persistent(a, b, c, input_precision)
    else:
        launch_described(*product, input_precision)


def launch_described(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, a_is_t: bool, b_is_t: bool,
    input_precision: str,
) -> None:  # fmt: skip
    """Launch the kernel on the result of `find_product`."""
    sms = num_sms(a.device)

    def programs(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(c.shape[0], meta["BLOCK_M"]) * triton.cdiv(c.shape[1], meta["BLOCK_N"])
        return (min(sms, tiles),)

    with torch.cuda.device_of(c):
        matmul_tma_kernel[programs](
            describe(a, a_is_t), describe(b, b_is_t), describe(c, False),
            *c.shape, a.shape[1], a_is_t, b_is_t, c.element_size(),
            NUM_SMS=sms,
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
        )  # fmt: skip
