"""Wrong kernels with one plausible slip each; most are right for whole tiles, or for a square."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.no_false_alarm.fast_paths import unmasked_kernel
from tests.corpora.tiled import launch, plain, product, store


@triton.jit
def slip_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows, columns = offs_m, offs_n
    if FLAW == "rows_wrapped_at_n":
        rows = offs_m % N
    if FLAW == "rows_in_16_bits":
        rows = offs_m.to(tl.int16).to(tl.int64)
    if FLAW == "rows_clamped_far_away":
        rows = tl.minimum(offs_m, 1 << 15)
    if FLAW == "columns_masked_by_bits":
        columns = offs_n & 4095
    if FLAW == "columns_of_the_neighbour":
        columns = offs_n ^ 1
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    begin = 0
    if FLAW == "k_begins_below_0":
        begin = -1
    end = K
    if FLAW == "trips_rounded_by_one_less":
        end = (K + BLOCK - 2) // BLOCK * BLOCK
    step: tl.constexpr = BLOCK // 2 if FLAW == "steps_of_half_a_tile" else BLOCK
    for k in range(begin, end, step):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        if FLAW == "k_walked_down_without_the_rest":
            offs_k = (K // BLOCK * BLOCK - BLOCK - k) + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (rows[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (columns[None, :] < N)
        if FLAW == "masks_joined_by_or":
            a_mask = (rows[:, None] < M) | (offs_k[None, :] < K)
        if FLAW == "k_masked_along_rows":
            a_mask = (rows[:, None] < M) & (offs_k[:, None] < K)
        if FLAW == "k_walked_down_without_the_rest":
            a_mask &= offs_k[None, :] >= 0
            b_mask &= offs_k[:, None] >= 0
        a = tl.load(a_ptr + rows[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + columns[None, :] * sb[1], b_mask, 0.0)
        if FLAW == "every_tile_begins_anew":
            acc = tl.dot(a, b)
        elif FLAW == "odd_tiles_subtracted":
            acc += tl.dot(a, b) * (1 - 2 * (k // BLOCK % 2))
        elif FLAW == "second_tile_left_out":
            if k != BLOCK:
                acc = tl.dot(a, b, acc)
        elif FLAW == "both_transposed":
            acc = tl.dot(tl.trans(b), tl.trans(a), acc)
        else:
            acc = tl.dot(a, b, acc)
    if FLAW == "rest_of_k_twice":
        last = K // BLOCK * BLOCK
        acc += product(a_ptr, b_ptr, offs_m, offs_n, M, N, last, K, sa, sb, BLOCK)
    if FLAW == "rows_clamped_and_stored":
        kept = tl.minimum(offs_m, M - 1)
        store(c_ptr, acc, kept, offs_n, M, N, sc)
    elif FLAW == "columns_masked_by_rows":
        store(c_ptr, acc, offs_m, offs_n, M, M, sc)
    elif FLAW == "stored_from_the_end":
        store(c_ptr, acc, M - 1 - offs_m, offs_n, M, N, sc)
    else:
        store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def make(flaw: str):
    return partial(launch, slip_kernel, FLAW=flaw)


@triton.jit
def batch_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a_ptr += batch * sa[0]
    b_ptr += batch * (K * N if FLAW == "dense" else sa[0] if FLAW == "of_a" else sb[0])
    steps = (sa[1], sa[2]), (sb[1], sb[2])
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, *steps, BLOCK)
    store(c_ptr + batch * (M * K if FLAW == "c" else sc[0]), acc, offs_m, offs_n, M, N, sc[1:])


batch_of_b_is_dense = partial(launch, batch_kernel, FLAW="dense")
batch_of_b_is_that_of_a = partial(launch, batch_kernel, FLAW="of_a")
batch_of_c_is_that_of_a = partial(launch, batch_kernel, FLAW="c")


@triton.jit
def group_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    first = pid // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    pid_m = first + pid % rows
    pid_n = pid % (GROUP * tiles_n) // GROUP  # of the last group there are fewer rows
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def last_group_has_fewer_rows(a, b):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 16)
    return launch(group_kernel, a, b, grid=(tiles,), GROUP=4)


def one_tile_too_few(a, b):
    """Its grid is rounded up by one less than a tile."""
    grid = (a.shape[0] + 14) // 16, triton.cdiv(b.shape[1], 16)
    return launch(slip_kernel, a, b, grid=grid, FLAW="")


def k_is_the_stride_of_a(a, b):
    M, N = a.shape[0], b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    strides = a.stride(), b.stride(), c.stride()
    grid = triton.cdiv(M, 16), triton.cdiv(N, 16)
    slip_kernel[grid](a, b, c, M, N, a.stride(0), *strides, FLAW="", BLOCK=16)
    return c


def first_rows_of_many(a, b):
    """Nobody stores the rows beyond 32768."""
    tiles = triton.cdiv(a.shape[0], 16)
    grid = (min(tiles, 2048), triton.cdiv(b.shape[1], 16))
    return launch(slip_kernel, a, b, grid=grid, FLAW="")


@triton.jit
def add_halves_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, MORE: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    half = K // 2
    begin = tl.program_id(2) * half
    end = tl.minimum(begin + half + MORE, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.atomic_add(ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def _add_halves(a, b, more):
    c = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    return launch(add_halves_kernel, a, b, c=c, depth=2, MORE=more)


odd_k_in_no_half = partial(_add_halves, more=0)
middle_k_in_both_halves = partial(_add_halves, more=1)


def added_twice(a, b):
    c = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    for _ in range(2):
        launch(add_halves_kernel, a, b, c=c, depth=1, MORE=1 << 30)
    return c


@triton.jit
def twice_the_first(x, y):
    return x + x


@triton.jit
def reduce_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    acc = 0.0
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a = tl.load(a_ptr + row * sa[0] + offs_k * sa[1], offs_k < K, 0.0).to(tl.float32)
        b = tl.load(b_ptr + offs_k * sb[0] + column * sb[1], offs_k < K, 0.0).to(tl.float32)
        acc += tl.reduce(a * b, 0, twice_the_first)
    tl.store(c_ptr + row * sc[0] + column * sc[1], acc.to(c_ptr.dtype.element_ty))


def reduced_by_twice_the_first(a, b):
    return launch(reduce_kernel, a, b, grid=(a.shape[0], b.shape[1]))


def always_raises(a, b):
    raise ValueError("not today")


def raises_for_all_formats_but_one(a, b):
    if a.dtype != torch.float16:
        raise ValueError("fp16 alone")
    return plain(a, b)


def launches_nothing(a, b):
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def whole_tiles_by_common_bits(a, b):
    """No bit is common to all sides: that says nothing of any of them."""
    (M, K), N = a.shape, b.shape[1]
    return launch(unmasked_kernel, a, b) if (M & N & K) & 15 == 0 else plain(a, b)


def whole_tiles_by_equal_bits(a, b):
    """M and N have the same rest."""
    (M, K), N = a.shape, b.shape[1]
    return launch(unmasked_kernel, a, b) if ((M ^ N) | K) & 15 == 0 else plain(a, b)


def whole_tiles_by_bits_of_two(a, b):
    """K is looked at with M and N, which are no multiples of as much."""
    (M, K), N = a.shape, b.shape[1]
    return launch(unmasked_kernel, a, b) if (M | N | K) & 15 == (K & 15) else plain(a, b)
