"""Kernels that fetch ahead, read back, reduce and add up: right and wrong ones."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.product_wrappers import make_slices, slice_kernel
from tests.corpora.tiled import launch, plain, product, store


@triton.jit
def ahead_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    AHEAD_A: tl.constexpr, AHEAD_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The tiles of the next trip are fetched before those of this one are multiplied."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    rows, columns = offs_m[:, None] < M, offs_n[None, :] < N
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
    a = tl.load(a_ptrs, mask=rows & (offs_k[None, :] < K), other=0.0)
    b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & columns, other=0.0)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        left = k + offs_k + AHEAD_A * BLOCK
        above = k + offs_k + AHEAD_B * BLOCK
        next_a = tl.load(
            a_ptr + offs_m[:, None] * sa[0] + left[None, :] * sa[1],
            mask=rows & (left[None, :] < K), other=0.0,
        )  # fmt: skip
        next_b = tl.load(
            b_ptr + above[:, None] * sb[0] + offs_n[None, :] * sb[1],
            mask=(above[:, None] < K) & columns, other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc)
        a, b = next_a, next_b
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


fetched_ahead = partial(launch, ahead_kernel, AHEAD_A=1, AHEAD_B=1)
first_tile_twice = partial(launch, ahead_kernel, AHEAD_A=0, AHEAD_B=0)
two_tiles_ahead = partial(launch, ahead_kernel, AHEAD_A=2, AHEAD_B=2)
one_operand_ahead = partial(launch, ahead_kernel, AHEAD_A=1, AHEAD_B=0)


@triton.jit
def last_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The last tiles that were fetched are multiplied behind the loop."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    rows, columns = offs_m[:, None] < M, offs_n[None, :] < N
    a_rows, b_columns = a_ptr + offs_m[:, None] * sa[0], b_ptr + offs_n[None, :] * sb[1]
    a = tl.load(a_rows + offs_k[None, :] * sa[1], rows & (offs_k[None, :] < K), 0.0)
    b = tl.load(b_columns + offs_k[:, None] * sb[0], (offs_k[:, None] < K) & columns, 0.0)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(BLOCK, K, BLOCK):
        at = k + offs_k
        next_a = tl.load(a_rows + at[None, :] * sa[1], rows & (at[None, :] < K), 0.0)
        next_b = tl.load(b_columns + at[:, None] * sb[0], (at[:, None] < K) & columns, 0.0)
        acc = tl.dot(a, b, acc)
        a, b = next_a, next_b
    for _ in tl.static_range(ADDED):
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


last_tile_behind_the_loop = partial(launch, last_kernel, ADDED=1)
last_tile_left_out = partial(launch, last_kernel, ADDED=0)
last_tile_twice = partial(launch, last_kernel, ADDED=2)


@triton.jit
def swap_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """Two fetched tiles take turns, and the second is never defined beyond K."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    rows = offs_m[:, None] < M
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    x = tl.load(a_ptrs, rows & (offs_k[None, :] < K), 0.0)
    y = tl.load(a_ptrs + BLOCK * sa[1], rows & (offs_k[None, :] + BLOCK < K))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        at = k + offs_k
        b_mask = (at[:, None] < K) & (offs_n[None, :] < N)
        b = tl.load(b_ptr + at[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(x, b, acc)
        x, y = y, x
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


tiles_that_take_turns = partial(launch, swap_kernel)


# -- what a kernel stored is read back -----------------------------------------------------------
@triton.jit
def copy_kernel(
    x_ptr, y_ptr, rows, columns, sx, sy, DOWN: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr
):
    offs_0 = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_1 = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = (offs_0[:, None] < rows) & (offs_1[None, :] < columns)
    x_ptrs = x_ptr + (offs_0 + DOWN)[:, None] * sx[0] + offs_1[None, :] * sx[1]
    x = tl.load(x_ptrs, inside & ((offs_0 + DOWN)[:, None] < rows), PAD)
    tl.store(y_ptr + offs_0[:, None] * sy[0] + offs_1[None, :] * sy[1], x, inside)


def copied_by_a_kernel(a, b, down=0, rows=None):
    """Right by default: a copy of a, by a kernel."""
    M, K = a.shape
    same = a.new_zeros(M, K) if rows else a.new_empty(M, K)
    grid = (triton.cdiv(rows(M) if rows else M, 16), triton.cdiv(K, 16))
    copy_kernel[grid](a, same, M, K, a.stride(), same.stride(), DOWN=down, PAD=0.0, BLOCK=16)
    return plain(same, b)


copied_from_one_row_down = partial(copied_by_a_kernel, down=1)
half_of_it_copied_by_a_kernel = partial(copied_by_a_kernel, rows=lambda rows: rows // 2)


@triton.jit
def sum_kernel(
    w_ptr, c_ptr, M, N, sw, sc, PARTS: tl.constexpr, FIRST: tl.constexpr, TIMES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for part in range(FIRST, PARTS):
        w_ptrs = w_ptr + part.to(tl.int64) * sw[0]
        w_ptrs += offs_m[:, None] * sw[1] + offs_n[None, :] * sw[2]
        acc += tl.load(w_ptrs, mask=mask, other=0.0) * TIMES
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def slices_summed_by_a_kernel(a, b, parts=3, first=0, times=1.0, **options):
    """Right by default: the slices of a workspace, added up by a kernel."""
    (M, _), N = a.shape, b.shape[1]
    w = make_slices(a, b, **options)
    c = a.new_empty(M, N)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    sum_kernel[grid](
        w, c, M, N, w.stride(), c.stride(), PARTS=parts, FIRST=first, TIMES=times, BLOCK=16
    )
    return c


def slices_stored_over_each_other(a, b):
    """One slice for all: the program that comes last leaves its own."""
    (M, _), N = a.shape, b.shape[1]
    w = torch.empty((1, M, N), device=a.device, dtype=torch.float32)
    strides = (0, *w.stride()[1:])
    launch(slice_kernel, a, b, c=w, sc=strides, depth=3, SLICES=3, FIRST=0)
    c, grid = a.new_empty(M, N), (triton.cdiv(M, 16), triton.cdiv(N, 16))
    sum_kernel[grid](w, c, M, N, strides, c.stride(), PARTS=1, FIRST=0, TIMES=1.0, BLOCK=16)
    return c


@triton.jit
def leaky_kernel(x_ptr, y_ptr, rows, columns, sx, sy, BLOCK: tl.constexpr):
    """A copy whose last column is never loaded, and stored as it happens to be."""
    offs_0 = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_1 = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = (offs_0[:, None] < rows) & (offs_1[None, :] < columns)
    x_ptrs = x_ptr + offs_0[:, None] * sx[0] + offs_1[None, :] * sx[1]
    x = tl.load(x_ptrs, inside & (offs_1[None, :] < columns - 1))
    tl.store(y_ptr + offs_0[:, None] * sy[0] + offs_1[None, :] * sy[1], x, inside)


def undefined_column_read_back(a, b):
    M, K = a.shape
    same = a.new_empty(M, K)
    grid = (triton.cdiv(M, 16), triton.cdiv(K, 16))
    leaky_kernel[grid](a, same, M, K, a.stride(), same.stride(), BLOCK=16)
    return plain(same, b)


def undefined_column_read_back_from_a_copy(a, b):
    M, K = a.shape
    same = a.new_empty(M, K)
    grid = (triton.cdiv(M, 16), triton.cdiv(K, 16))
    leaky_kernel[grid](a, same, M, K, a.stride(), same.stride(), BLOCK=16)
    return plain(same.clone(), b)


last_slice_dropped = partial(slices_summed_by_a_kernel, parts=2)
first_slice_dropped = partial(slices_summed_by_a_kernel, first=1)
slices_doubled = partial(slices_summed_by_a_kernel, times=2.0)
slices_overlap = partial(slices_summed_by_a_kernel, slices=2)
slices_leave_tiles_out = partial(slices_summed_by_a_kernel, slices=4)
slices_kept_in_half = partial(slices_summed_by_a_kernel, dtype=torch.float16)


# -- reductions, products with numbers, addends --------------------------------------------------
@triton.jit
def _first_twice(x, y):
    return x + x


@triton.jit
def reducing_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, COMBINE: tl.constexpr, BLOCK: tl.constexpr
):
    """A program for a tile of rows and one column; products summed along k by a reduction."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k * sb[0] + column * sb[1], offs_k < K, 0.0)
        products = a.to(tl.float32) * b.to(tl.float32)[None, :]
        if COMBINE == "sum":
            acc += tl.sum(products, axis=1)
        elif COMBINE == "max":
            acc += tl.max(products, axis=1)
        else:
            acc += tl.reduce(products, 1, _first_twice)
    c_ptrs = c_ptr + offs_m * sc[0] + column * sc[1]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs_m < M)


def reduced(a, b, combine="sum"):
    grid = (triton.cdiv(a.shape[0], 16), b.shape[1])
    return launch(reducing_kernel, a, b, grid=grid, COMBINE=combine)


largest_products = partial(reduced, combine="max")
first_products_twice = partial(reduced, combine="first")


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, bias_ptr, TIMES: tl.constexpr, PLUS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    acc = acc * TIMES + PLUS
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def scaled(a, b, times=1.0, plus=0.0, bias=None):
    bias = None if bias is None else bias(b.shape[1], device=a.device)
    return launch(scaled_kernel, a, b, bias, TIMES=times, PLUS=plus)


times_two = partial(scaled, times=2.0)
plus_one = partial(scaled, plus=1.0)
bias_of_zeros_by_torch = partial(scaled, bias=torch.zeros)
bias_of_ones = partial(scaled, bias=torch.ones)
bias_of_anything = partial(scaled, bias=torch.empty)
