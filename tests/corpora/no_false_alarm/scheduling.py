"""Right kernels whose programs take their tiles in an order that looks wrong."""

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import compute, launch

B = 16


def _tiles(a, b):
    return triton.cdiv(a.shape[0], B) * triton.cdiv(b.shape[1], B)


@triton.jit
def rotation_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, GROUP_M: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    width = GROUP_M * num_pid_n
    group = pid // width
    group_size = min(num_pid_m - group * GROUP_M, GROUP_M)
    pid_m = group * GROUP_M + pid % group_size
    pid_n = pid % width // group_size
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def rotation_by_the_global_pid(a, b):
    """`pid`, not `pid % width`, picks the row of the group: rotated, and still one to one."""
    return launch(rotation_kernel, a, b, grid=(_tiles(a, b),), GROUP_M=3)


@triton.jit
def swizzle_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, GROUP_M: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.swizzle2d(
        tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), GROUP_M
    )
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def swizzle2d_over_the_grid(a, b):
    grid = (triton.cdiv(a.shape[0], B), triton.cdiv(b.shape[1], B))
    return launch(swizzle_kernel, a, b, grid=grid, GROUP_M=2)


@triton.jit
def leaving_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    num_pid_n = tl.cdiv(N, BLOCK)
    if pid >= tl.cdiv(M, BLOCK) * num_pid_n:
        return
    # serpentine: every other row of tiles from right to left
    pid_m, pid_n = pid // num_pid_n, pid % num_pid_n
    pid_n = tl.where(pid_m % 2 == 0, pid_n, num_pid_n - 1 - pid_n)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def more_programs_than_tiles(a, b):
    return launch(leaving_kernel, a, b, grid=(triton.cdiv(_tiles(a, b), 8) * 8 + 8,))


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, NUM_SMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    num_pid_m = tl.cdiv(M, BLOCK)
    tiles = num_pid_m * tl.cdiv(N, BLOCK)
    tile = tl.program_id(0)
    while tile < tiles:
        pid_m, pid_n = tile % num_pid_m, tile // num_pid_m
        compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)
        tile += NUM_SMS


def persistent_while_loop(a, b):
    sms = torch.cuda.get_device_properties("cuda").multi_processor_count
    return launch(persistent_kernel, a, b, grid=(sms,), NUM_SMS=sms)


@triton.jit
def flat_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, NUM_SMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One loop over the k steps of all of a program's tiles, as pipelines like it."""
    num_pid_n, steps = tl.cdiv(N, BLOCK), tl.cdiv(K, BLOCK)
    tiles = tl.cdiv(M, BLOCK) * num_pid_n
    steps = tl.maximum(steps, 1)
    mine = tl.cdiv(tl.maximum(tiles - tl.program_id(0), 0), NUM_SMS)
    tile, ki = tl.program_id(0) - NUM_SMS, -1
    lane = tl.arange(0, BLOCK).to(tl.int64)
    offs_m, offs_n = lane, lane
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(mine * steps):
        ki = tl.where(ki == steps - 1, 0, ki + 1)
        if tile < 0 or ki == 0:
            tile += NUM_SMS
            ki = 0
            offs_m = (tile // num_pid_n).to(tl.int64) * BLOCK + lane
            offs_n = (tile % num_pid_n).to(tl.int64) * BLOCK + lane
        offs_k = ki * BLOCK + lane
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        if ki == steps - 1:
            c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
            mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
            acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)


def tiles_and_k_in_one_loop(a, b):
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    return launch(flat_kernel, a, b, grid=(sms,), NUM_SMS=sms)


@triton.jit
def tabled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, order_ptr, BLOCK: tl.constexpr,
):  # fmt: skip
    tile = tl.load(order_ptr + tl.program_id(0))
    num_pid_n = tl.cdiv(N, BLOCK)
    pid_m, pid_n = tile // num_pid_n, tile % num_pid_n
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def tile_order_from_a_table(a, b):
    tiles = _tiles(a, b)
    order = torch.arange(tiles, dtype=torch.int32).flip(0).to(a.device)
    return launch(tabled_kernel, a, b, order, grid=(tiles,))


@triton.jit
def taking_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, next_ptr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Programs take the next tile from a counter until there is none left."""
    num_pid_n = tl.cdiv(N, BLOCK)
    tiles = tl.cdiv(M, BLOCK) * num_pid_n
    tile = tl.atomic_add(next_ptr, 1)
    while tile < tiles:
        pid_m, pid_n = tile // num_pid_n, tile % num_pid_n
        compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)
        tile = tl.atomic_add(next_ptr, 1)


def tiles_taken_from_a_counter(a, b):
    counter = torch.zeros(1, dtype=torch.int32, device=a.device)
    return launch(taking_kernel, a, b, counter, grid=(4,))
