"""Whole tiles while every multiprocessor gets one; the tiles left are shared out step by step."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .arguments import FP8, num_sms, prepare
from .descriptors import describe, find_product_or_warn
from .matmul_persistent import launch_persistent

BLOCK_M, BLOCK_N, GROUP_M = 128, 128, 8
#: Bytes of a tile's rows along K: the widest swizzle of shared memory.
ROW_BYTES = 128
NUM_STAGES = 5
#: Rows of a tile that a program of the second kernel adds up.
ROWS = 8


@triton.jit
def find_start(tile_id, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """The first row and column of a tile, in the order of `matmul_grouped`."""
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first_pid_m = (tile_id // num_pid_in_group) * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = tile_id % num_pid_in_group
    start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
    return start_m, (pid_in_group // group_size_m) * BLOCK_N


@triton.jit
def multiply(
    acc,
    a_desc,
    b_desc,
    start_m,
    start_n,
    start_k,
    A_IS_T: tl.constexpr,
    B_IS_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """One step along K."""
    a = a_desc.load([start_k, start_m]).T if A_IS_T else a_desc.load([start_m, start_k])
    b = b_desc.load([start_n, start_k]).T if B_IS_T else b_desc.load([start_k, start_n])
    if PROMOTE:
        # Hopper's fp8 units keep 13 fraction bits of a running sum: each block is summed from zero
        # and added in fp32. The limit keeps the compiler from fusing.
        acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
    else:
        acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)
    return acc


@triton.jit
def matmul_streamk_kernel(
    a_desc,
    b_desc,
    c_desc,
    w_ptr,
    M,
    N,
    K,
    whole,
    shared_steps,
    SHARE,
    A_IS_T: tl.constexpr,
    B_IS_T: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B in the first `whole` tiles; then, of the steps of the tiles left, one share each.

    Program p takes steps p SHARE and on, of one tile or the end of one and the start of the next:
    SHARE is no more than the steps of a tile. Their sums go to W (NUM_SMS, 2, BLOCK_M, BLOCK_N).
    """
    pid = tl.program_id(0)
    k_tiles = tl.cdiv(K, BLOCK_K)
    for tile_id in tl.range(pid, whole, NUM_SMS, flatten=True):
        start_m, start_n = find_start(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
        for k in range(0, k_tiles):
            acc = multiply(
                acc, a_desc, b_desc, start_m, start_n, k * BLOCK_K,
                A_IS_T, B_IS_T, BLOCK_K, ACC_DTYPE, INPUT_PRECISION, PROMOTE,
            )  # fmt: skip
        c_desc.store([start_m, start_n], acc.to(c_desc.dtype))

    begin = pid * SHARE
    end = tl.minimum(begin + SHARE, shared_steps)
    first = begin // k_tiles
    offs = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for tile in tl.range(first, tl.cdiv(end, k_tiles)):
        start_m, start_n = find_start(whole + tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        low = tl.maximum(begin - tile * k_tiles, 0)
        high = tl.minimum(end - tile * k_tiles, k_tiles)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
        for k in range(low, high):
            acc = multiply(
                acc, a_desc, b_desc, start_m, start_n, k * BLOCK_K,
                A_IS_T, B_IS_T, BLOCK_K, ACC_DTYPE, INPUT_PRECISION, PROMOTE,
            )  # fmt: skip
        tl.store(w_ptr + (2 * pid + tile - first) * (BLOCK_M * BLOCK_N) + offs, acc)


@triton.jit
def add_steps_kernel(
    w_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_cm,
    stride_cn,
    whole,
    SHARE,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    ROWS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
):
    """ROWS rows of a shared tile: its sums in the order of K, so that its bits are always the same.

    Program (i, j) has the rows from j ROWS on of tile whole + i.
    """
    tile = tl.program_id(0)
    k_tiles = tl.cdiv(K, BLOCK_K)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_N)
    offs = rows[:, None] * BLOCK_N + columns[None, :]
    total = tl.zeros((ROWS, BLOCK_N), dtype=ACC_DTYPE)
    for share in tl.range(tile * k_tiles // SHARE, tl.cdiv((tile + 1) * k_tiles, SHARE)):
        slot = 2 * share + tile - share * SHARE // k_tiles
        total += tl.load(w_ptr + slot * (BLOCK_M * BLOCK_N) + offs)

    start_m, start_n = find_start(whole + tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = (start_m + rows).to(tl.int64)
    offs_n = (start_n + columns).to(tl.int64)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        total.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def matmul_streamk(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul_tma`: the same arguments, formats, result, errors and warning.

    The shares depend on the sizes and on the number of multiprocessors; for the same ones the
    result has the same bits in every run.
    """
    a, b, c = prepare("matmul_streamk", a, b, out_dtype, out, input_precision)
    launch_streamk(a, b, c, input_precision)
    return c


def launch_streamk(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Launch the kernel for operands and a result that were checked."""
    if c.numel() == 0:
        return
    product = find_product_or_warn("matmul_streamk", a, b, c, input_precision)
    if product is None:
        launch_persistent(a, b, c, input_precision)
    else:
        _launch(*product, input_precision)


def _launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, a_is_t: bool, b_is_t: bool,
    input_precision: str,
) -> None:  # fmt: skip
    (M, N), K, sms = c.shape, a.shape[1], num_sms(a.device)
    BLOCK_K = ROW_BYTES // a.element_size()
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    left = tiles % sms
    steps = left * triton.cdiv(K, BLOCK_K)
    share = max(1, triton.cdiv(steps, sms))
    integers = a.dtype == torch.int8
    acc = torch.int32 if integers else torch.float32
    w = torch.empty((sms if left else 0, 2, BLOCK_M, BLOCK_N), dtype=acc, device=a.device)
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP_M": GROUP_M}
    blocks["ACC_DTYPE"] = tl.int32 if integers else tl.float32
    a_block = [BLOCK_K, BLOCK_M] if a_is_t else [BLOCK_M, BLOCK_K]
    b_block = [BLOCK_N, BLOCK_K] if b_is_t else [BLOCK_K, BLOCK_N]
    with torch.cuda.device_of(c):
        matmul_streamk_kernel[(sms,)](
            describe(a, a_is_t, a_block), describe(b, b_is_t, b_block),
            describe(c, False, [BLOCK_M, BLOCK_N]), w,
            M, N, K, tiles - left, steps, share, a_is_t, b_is_t,
            **blocks,
            NUM_SMS=sms,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
            num_warps=8 if a.dtype in FP8 else 4,  # promotion has a second accumulator
            num_stages=count_stages(a.element_size(), a_is_t, b_is_t),
        )  # fmt: skip
        if left:
            add_steps_kernel[(left, BLOCK_M // ROWS)](
                w, c, M, N, K, *c.stride(), tiles - left, share, **blocks, ROWS=ROWS
            )


def count_stages(size: int, a_is_t: bool, b_is_t: bool) -> int:
    """The stages that an SM has room for.

    Units take tf32 k by k: what lies otherwise is put so on Blackwell in shared memory.
    """
    return NUM_STAGES - 2 if size == 4 and (a_is_t or not b_is_t) else NUM_STAGES
