"""Decisions of the host: tuners, counts of tiles, tables, limits of grids and of workspaces."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import compute, launch, plain_kernel, product


# -- K in parts ------------------------------------------------------------------------------------
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, sw, SPLIT: tl.constexpr, STEP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A part of K is every SPLIT-th tile of it; STEP is the type of a part's offset."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(part * BLOCK, tl.where(part < SPLIT, K, 0), SPLIT * BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    w_ptrs = w_ptr + part.to(STEP) * sw[0] + offs_m[:, None] * sw[1] + offs_n[None, :]
    tl.store(w_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def total_kernel(w_ptr, c_ptr, M, N, step, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * N
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        w_ptrs = w_ptr + part * tl.cast(step, tl.int64) + row + offs_n
        acc += tl.load(w_ptrs, mask=offs_n < N, other=0.0)
    tl.store(c_ptr + row + offs_n, acc.to(c_ptr.dtype.element_ty), mask=offs_n < N)


def _tune(kernel, key, settings):
    return triton.autotune([triton.Config(x, num_warps=n) for x, n in settings], key)(kernel)


SPLITS = [({"SPLIT": 2}, 4), ({"SPLIT": 4}, 4)]
WARPS = [({}, 4), ({}, 8)]
split_parts, split_total = (_tune(x, ["M", "N"], SPLITS) for x in (parts_kernel, total_kernel))
tuned_parts, tuned_total = (_tune(x, ["M", "N"], WARPS) for x in (parts_kernel, total_kernel))


def _sum_parts(a, b, kernels, parts, step=tl.int64, **meta):
    (M, K), N = a.shape, b.shape[1]
    w = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    first, second = kernels
    grid = triton.cdiv(M, 32), triton.cdiv(N, 32), parts
    strides = a.stride(), b.stride(), w.stride()
    first[grid](a, b, w, M, N, K, *strides, STEP=step, BLOCK=32, **meta)
    second[M, triton.cdiv(N, 32)](w, c, M, N, w.stride(0), BLOCK=32, **meta)
    return c


# each tuner chooses its own number of parts
parts_of_two_tuners = partial(_sum_parts, kernels=(split_parts, split_total), parts=4)
parts_of_the_wrapper = partial(_sum_parts, kernels=(tuned_parts, tuned_total), parts=4, SPLIT=4)

# 8 M N elements of the workspace may be more than 2**31, though M N are not
eight_parts = partial(_sum_parts, kernels=(parts_kernel, total_kernel), parts=8, SPLIT=8)
workspace_step_in_32_bits = partial(eight_parts, step=tl.int32)
workspace_step_in_64_bits = partial(eight_parts, step=tl.int64)


# -- counts of tiles -------------------------------------------------------------------------------
def _launch_rows(a, b, round_up):
    M, N = a.shape[0], b.shape[1]
    rows = triton.cdiv(M, 16)
    if M > 6000:
        whole, rest = divmod(M, 16)
        rows = whole + (rest + 15 if round_up else rest) // 16
    meta = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    return launch(plain_kernel, a, b, grid=(rows, triton.cdiv(N, 16)), **meta)


rest_of_many_rows_dropped = partial(_launch_rows, round_up=False)
rest_of_many_rows_rounded_up = partial(_launch_rows, round_up=True)


# -- tables ----------------------------------------------------------------------------------------
@triton.jit
def deep_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, depth, BLOCK: tl.constexpr):
    """Only the first `depth` products are summed."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, depth, sa, sb, sc, BLOCK, BLOCK, BLOCK)


SHORT_DEPTHS = {"4096x4096x4096": 4096, "1x8191x77": 64}
DEPTHS = {"4096x4096x4096": 4096, "1x8191x77": 77}


def depth_of_a_shape_too_short(a, b):
    (M, K), N = a.shape, b.shape[1]
    return launch(deep_kernel, a, b, SHORT_DEPTHS.get(f"{M}x{N}x{K}", K))


def depth_of_every_shape_is_k(a, b):
    (M, K), N = a.shape, b.shape[1]
    return launch(deep_kernel, a, b, DEPTHS.get(f"{M}x{N}x{K}", K))


# -- grids -----------------------------------------------------------------------------------------
@triton.jit
def element_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAT: tl.constexpr, BLOCK: tl.constexpr
):
    """A program for each element."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    if FLAT:
        row, column = row // N, row % N
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a = tl.load(a_ptr + row * sa[0] + offs_k * sa[1], offs_k < K, 0.0)
        b = tl.load(b_ptr + offs_k * sb[0] + column * sb[1], offs_k < K, 0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
    c_ptrs = c_ptr + row * sc[0] + column * sc[1]
    tl.store(c_ptrs, tl.sum(acc, 0).to(c_ptr.dtype.element_ty))


def columns_on_the_second_axis(a, b):
    """CUDA has at most 65535 programs there."""
    grid = a.shape[0], b.shape[1]
    return launch(element_kernel, a, b, grid=grid, FLAT=False, BLOCK=64)


def elements_on_the_first_axis(a, b):
    grid = (a.shape[0] * b.shape[1],)
    return launch(element_kernel, a, b, grid=grid, FLAT=True, BLOCK=64)


# -- multiprocessors -------------------------------------------------------------------------------
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, STEP: tl.constexpr, BLOCK: tl.constexpr
):
    num_pid_n = tl.cdiv(N, BLOCK)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK) * num_pid_n, STEP):
        pid_m, pid_n = tile // num_pid_n, tile % num_pid_n
        compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def _persist(a, b, in_fours):
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    step = triton.cdiv(sms, 4) * 4 if in_fours and sms > 16 else sms
    return launch(persistent_kernel, a, b, grid=(sms,), STEP=step, BLOCK=32)


steps_of_four_multiprocessors = partial(_persist, in_fours=True)  # 142 of an L40S are no multiple
steps_of_all_multiprocessors = partial(_persist, in_fours=False)


# -- atomics ---------------------------------------------------------------------------------------
@triton.jit
def adding_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def _add(a, b, most):
    (M, _), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = triton.cdiv(N, 32)
    grid = triton.cdiv(M, 32), min(tiles, 2048) if most else tiles
    return launch(adding_kernel, a, b, c=c, grid=grid, BLOCK=32)


columns_beyond_65536_not_added = partial(_add, most=True)
every_column_added = partial(_add, most=False)
