"""Products of a batch: persistent programs walk the tiles of all of its matrices."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .arguments import FP8, KEY, MAX_SIZE, launch, make_configs, num_sms, prepare, time_config
from .descriptors import describe, find_product_or_warn
from .matmul_tma import CONFIGS as CONFIGS_OF_A_MATRIX
from .matmul_tma import keep_fitting
from .matmul_tma import set_blocks as set_blocks_of_a_matrix


def set_blocks(nargs: dict[str, Any]) -> None:
    """Give the descriptors the blocks of a configuration, each of one matrix."""
    set_blocks_of_a_matrix(nargs)
    for desc in (nargs["a_desc"], nargs["b_desc"], nargs["c_desc"]):
        desc.block_shape = [1, *desc.block_shape]


CONFIGS = [
    triton.Config(x.kwargs, num_warps=x.num_warps, num_stages=x.num_stages, pre_hook=set_blocks)
    for x in CONFIGS_OF_A_MATRIX
]
POINTER_CONFIGS = make_configs(
    (128, 128, 32, 8, 3),
    (64, 64, 32, 8, 3),
    (16, 64, 32, 4, 4),
    GROUP_M=8,
)
#: Sides of the smallest tiles, of which there may be as many as 32 bits count.
SMALLEST_M, SMALLEST_N = 16, 64


@triton.jit
def find_tile(tile_id, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """The matrix of a tile, and its first row and column.

    A matrix's tiles follow each other in the order of `matmul_persistent`.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    batch = tile_id // (num_pid_m * num_pid_n)
    pid = tile_id % (num_pid_m * num_pid_n)
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = pid % num_pid_in_group
    start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
    start_n = (pid_in_group // group_size_m) * BLOCK_N
    return batch, start_m, start_n


@triton.jit
def load_block(
    desc,
    batch,
    row,
    column,
    IS_T: tl.constexpr,
    IS_SHARED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A block (ROWS, COLUMNS) of a matrix of a batch, or of the one that they share.

    IS_T: the descriptor is of the transpose.
    """
    batch = 0 if IS_SHARED else batch
    if IS_T:
        block = tl.reshape(desc.load([batch, column, row]), (COLUMNS, ROWS)).T
    else:
        block = tl.reshape(desc.load([batch, row, column]), (ROWS, COLUMNS))
    return block


@triton.autotune(
    configs=CONFIGS,
    # the formats too, which Triton does not see in descriptors
    key=[
        *("batch", "M", "N", "K", "A_IS_T", "B_IS_T", "A_IS_SHARED", "B_IS_SHARED", "C_BYTES"),
        *("ACC_DTYPE", "INPUT_PRECISION", "PROMOTE", "NUM_SMS"),
    ],
    prune_configs_by={"early_config_prune": keep_fitting},
    do_bench=time_config,
)
@triton.jit
def bmm_tma_kernel(
    a_desc,
    b_desc,
    c_desc,
    batch,
    M,
    N,
    K,
    A_IS_T: tl.constexpr,
    B_IS_T: tl.constexpr,
    A_IS_SHARED: tl.constexpr,
    B_IS_SHARED: tl.constexpr,
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
    """C[i] = A[i] B[i]; program p takes tiles p + i NUM_SMS of all matrices, as `matmul_tma` does.

    A_IS_T, B_IS_T: the descriptor is of transposes. A_IS_SHARED, B_IS_SHARED: it is of one matrix.
    """
    k_tiles = tl.cdiv(K, BLOCK_K)
    num_tiles = batch * tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)

    for tile_id in tl.range(tl.program_id(0), num_tiles, NUM_SMS, flatten=True):
        i, start_m, start_n = find_tile(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
        for k in range(0, k_tiles):
            start_k = k * BLOCK_K
            a = load_block(a_desc, i, start_m, start_k, A_IS_T, A_IS_SHARED, BLOCK_M, BLOCK_K)
            b = load_block(b_desc, i, start_k, start_n, B_IS_T, B_IS_SHARED, BLOCK_K, BLOCK_N)
            if PROMOTE:
                # Hopper's fp8 units keep 13 fraction bits of a running sum: each block is summed
                # from zero and added in fp32. The limit keeps the compiler from fusing.
                acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
            else:
                acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

        if SUBTILES == 2:
            halves = tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2))
            left, right = tl.split(tl.permute(halves, (0, 2, 1)))
            left = tl.reshape(left.to(c_desc.dtype), (1, BLOCK_M, BLOCK_N // 2))
            c_desc.store([i, start_m, start_n], left)
            right = tl.reshape(right.to(c_desc.dtype), (1, BLOCK_M, BLOCK_N // 2))
            c_desc.store([i, start_m, start_n + BLOCK_N // 2], right)
        else:
            c = tl.reshape(acc.to(c_desc.dtype), (1, BLOCK_M, BLOCK_N))
            c_desc.store([i, start_m, start_n], c)


@triton.autotune(
    configs=POINTER_CONFIGS,
    key=[*KEY, "batch", "stride_ab", "stride_bb", "stride_cb", "NUM_SMS"],
    do_bench=time_config,
)
@triton.jit
def bmm_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    batch,
    M,
    N,
    K,
    stride_ab,
    stride_am,
    stride_ak,
    stride_bb,
    stride_bk,
    stride_bn,
    stride_cb,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C[i] = A[i] B[i] for A (batch, M, K), B (batch, K, N), C (batch, M, N) of any strides."""
    num_tiles = batch * tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)

    for tile_id in tl.range(tl.program_id(0), num_tiles, NUM_SMS):
        i, start_m, start_n = find_tile(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        # 64 bits because an index times a stride can pass 2**31.
        i = i.to(tl.int64)
        offs_m = start_m.to(tl.int64) + tl.arange(0, BLOCK_M)
        offs_n = start_n.to(tl.int64) + tl.arange(0, BLOCK_N)

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
        for k in range(0, K, BLOCK_K):
            offs_k = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
            a = tl.load(
                a_ptr + i * stride_ab + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
                mask=(offs_m[:, None] < M) & (offs_k[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_ptr + i * stride_bb + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
                mask=(offs_k[:, None] < K) & (offs_n[None, :] < N),
                other=0.0,
            )
            if PROMOTE:
                acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)  # as above
            else:
                acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

        tl.store(
            c_ptr + i * stride_cb + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
        )


def bmm(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """a @ b for a (batch, M, K) and b (batch, K, N): formats, result and errors as of `matmul`.

    Strides of the batch may be any, also 0: a matrix that the batch shares is not copied. Where the
    copy engine cannot address a, b or c, a warning says why in one line, and pointers are used; so
    they are for an empty K and for fp32 in full precision, which no tensor core takes.
    """
    axes = ("batch M K", "batch K N")
    a, b, c = prepare("bmm", a, b, out_dtype, out, input_precision, axes)
    if c.numel() == 0:
        return c
    batch, M, N = c.shape
    if batch * triton.cdiv(M, SMALLEST_M) * triton.cdiv(N, SMALLEST_N) > MAX_SIZE:
        raise ValueError(f"bmm: got c {tuple(c.shape)}, expected up to {MAX_SIZE} tiles of it")
    product = find_product_or_warn("bmm", a, b, c, input_precision, stacklevel=3)
    if product is None:
        _launch_pointers(a, b, c, input_precision)
    else:
        _launch(*product, input_precision)
    return c


def _launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, a_is_t: bool, b_is_t: bool,
    input_precision: str,
) -> None:  # fmt: skip
    sms = num_sms(a.device)
    batch, M, N = c.shape

    def programs(meta: dict[str, int]) -> tuple[int]:
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(sms, batch * tiles),)

    with torch.cuda.device_of(c):
        bmm_tma_kernel[programs](
            describe(a, a_is_t), describe(b, b_is_t), describe(c, False),
            batch, M, N, a.shape[2], a_is_t, b_is_t, a.stride(0) == 0, b.stride(0) == 0,
            c.element_size(),
            NUM_SMS=sms,
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
        )  # fmt: skip


def _launch_pointers(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str
) -> None:
    sms, batch = num_sms(a.device), c.shape[0]
    kernel = bmm_kernel
    launch(kernel, lambda m, n: (min(sms, batch * m * n),), a, b, c, input_precision, NUM_SMS=sms)
