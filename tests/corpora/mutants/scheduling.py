"""Class H: kernels whose programs do not share out the tiles one to one."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import compute, launch


@triton.jit
def grouped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    if FLAW == "not_clamped":
        group_size_m = GROUP_M
    pid_m = first_pid_m + pid % num_pid_in_group % group_size_m
    pid_n = pid % num_pid_in_group // group_size_m
    if FLAW == "wrong_divisor":
        pid_n = pid % num_pid_in_group // GROUP_M
    if FLAW == "rows_for_columns":
        pid_n = pid % num_pid_m
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK_M, BLOCK_N, BLOCK_K)


def launch_grouped(a, b, flaw=""):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 16)
    return launch(
        grouped_kernel, a, b, grid=(tiles,), FLAW=flaw,
        GROUP_M=2, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
    )  # fmt: skip


last_group_not_clamped = partial(launch_grouped, flaw="not_clamped")
columns_divided_by_the_full_group = partial(launch_grouped, flaw="wrong_divisor")
column_taken_from_the_rows = partial(launch_grouped, flaw="rows_for_columns")


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, NUM_SMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_tiles = tl.cdiv(M, BLOCK_M) * num_pid_n
    last, step = num_tiles, NUM_SMS
    if FLAW == "last_dropped":
        last = num_tiles - 1
    if FLAW == "rounded_down":
        last = num_tiles // NUM_SMS * NUM_SMS
    if FLAW == "steps_overlap":
        step = NUM_SMS - 1 if NUM_SMS > 1 else 1
    if FLAW == "steps_apart":
        step = NUM_SMS + 1
    for tile in tl.range(tl.program_id(0), last, step):
        pid_m, pid_n = tile // num_pid_n, tile % num_pid_n
        compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK_M, BLOCK_N, BLOCK_K)


def launch_persistent(a, b, flaw=""):
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    return launch(
        persistent_kernel, a, b, grid=(sms,), FLAW=flaw,
        NUM_SMS=sms, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16,
    )  # fmt: skip


last_tile_dropped = partial(launch_persistent, flaw="last_dropped")
tail_wave_dropped = partial(launch_persistent, flaw="rounded_down")
persistent_steps_overlap = partial(launch_persistent, flaw="steps_overlap")


@triton.jit
def reversed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The grid is rounded up to a multiple of 8; programs without a tile should leave."""
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_tiles = num_pid_m * tl.cdiv(N, BLOCK_N)
    if pid > num_tiles:
        return
    tile = (num_tiles + pid) % num_tiles
    pid_m, pid_n = tile % num_pid_m, tile // num_pid_m
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK_M, BLOCK_N, BLOCK_K)


def early_exit_one_too_late(a, b):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 16)
    if tiles == 0:
        return a.new_empty(a.shape[0], b.shape[1])
    grid = (triton.cdiv(tiles, 8) * 8,)
    return launch(reversed_kernel, a, b, grid=grid, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
