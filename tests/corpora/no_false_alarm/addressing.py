"""Right kernels whose addresses or masks look wrong."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store


@triton.jit
def wrapped_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    a_ptrs = a_ptr + (offs_m % M)[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + (offs_n % N)[None, :] * sb[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BLOCK * tl.cast(sa[1], tl.int64)
        b_ptrs += BLOCK * tl.cast(sb[0], tl.int64)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


# lanes beyond M and N read the first rows and columns again; the store drops them
rows_and_columns_wrapped = partial(launch, wrapped_kernel)


@triton.jit
def clamped_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    start_m, start_n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    offs_m, offs_n = start_m + tl.arange(0, BLOCK), start_n + tl.arange(0, BLOCK)
    rows, columns = tl.where(offs_m < M, offs_m, 0), tl.where(offs_n < N, offs_n, 0)
    rows = tl.max_contiguous(tl.multiple_of(rows, BLOCK), BLOCK).to(tl.int64)
    columns = tl.max_contiguous(tl.multiple_of(columns, BLOCK), BLOCK).to(tl.int64)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for ki in range(tl.cdiv(K, BLOCK)):
        offs_k = ki * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * sa[0] + offs_k[None, :] * sa[1]
        b_ptrs = b_ptr + offs_k[:, None] * sb[0] + columns[None, :] * sb[1]
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m.to(tl.int64), offs_n.to(tl.int64), M, N, sc)


# the hints on clamped offsets fail only in lanes that are never stored
rows_and_columns_clamped_to_zero = partial(launch, clamped_kernel)


@triton.jit
def one_mask_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows, columns = tl.minimum(offs_m, M - 1), tl.minimum(offs_n, N - 1)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        inside = offs_k < K
        held = tl.minimum(offs_k, K - 1)
        a = tl.load(a_ptr + rows[:, None] * sa[0] + held[None, :] * sa[1])
        a = tl.where(inside[None, :], a, 0.0)
        b_ptrs = b_ptr + held[:, None] * sb[0] + columns[None, :] * sb[1]
        acc = tl.dot(a, tl.load(b_ptrs, mask=inside[:, None], other=0.0), acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


addresses_clamped_and_one_load_unmasked = partial(launch, one_mask_kernel)


@triton.jit
def no_other_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], mask=a_mask)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], mask=b_mask)
        # lanes beyond K become zero; those beyond M and N stay undefined and are never stored
        a = tl.where(offs_k[None, :] < K, a, 0.0)
        b = tl.where(offs_k[:, None] < K, b, 0.0)
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


undefined_rows_never_stored = partial(launch, no_other_kernel)


@triton.jit
def reverse_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    last = (tl.cdiv(K, BLOCK) - 1) * BLOCK
    offs_k = last + tl.arange(0, BLOCK).to(tl.int64)
    # with K = 0 these begin before the operand, and are not loaded
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK) - 1, -1, -1):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs -= BLOCK * tl.cast(sa[1], tl.int64)
        b_ptrs -= BLOCK * tl.cast(sb[0], tl.int64)
        offs_k -= BLOCK
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


k_walked_backwards = partial(launch, reverse_kernel)


@triton.jit
def two_level_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, OUTER: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for outer in range(0, K, OUTER * BLOCK):
        part = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for inner in tl.static_range(OUTER):
            offs_k = outer + inner * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
            a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
            b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
            a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
            b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
            part = tl.dot(a, b, part)
        acc += part
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


# the inner tiles of the last outer step may lie wholly beyond K
two_loops_over_k = partial(launch, two_level_kernel, OUTER=3)


@triton.jit
def prefetch_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    rows, columns = offs_m[:, None] < M, offs_n[None, :] < N
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
    a = tl.load(a_ptrs, mask=rows & (offs_k[None, :] < K), other=0.0)
    b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & columns, other=0.0)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(BLOCK, K + BLOCK, BLOCK):
        # the pointers and the masks run one tile past the end
        a_ptrs += BLOCK * tl.cast(sa[1], tl.int64)
        b_ptrs += BLOCK * tl.cast(sb[0], tl.int64)
        next_a = tl.load(a_ptrs, mask=rows & (offs_k[None, :] < K - k), other=0.0)
        next_b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & columns, other=0.0)
        acc = tl.dot(a, b, acc)
        a, b = next_a, next_b
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


next_tile_loaded_past_the_end = partial(launch, prefetch_kernel)


@triton.jit
def even_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, EVEN_K: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows, columns = offs_m % M, offs_n % N
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * sa[0] + offs_k[None, :] * sa[1]
        b_ptrs = b_ptr + offs_k[:, None] * sb[0] + columns[None, :] * sb[1]
        if EVEN_K:
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=offs_k[None, :] < K, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def no_masks_at_all_where_k_is_whole_tiles(a, b):
    return launch(even_k_kernel, a, b, EVEN_K=a.shape[1] % 16 == 0)


@triton.jit
def gathered_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, order_ptr, BLOCK: tl.constexpr
):  # fmt: skip
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_m = tl.load(order_ptr + lane, mask=lane < M, other=M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def rows_in_an_order_read_from_memory(a, b):
    """As mixtures of experts do: the row numbers of a tile are loaded."""
    order = torch.arange(a.shape[0] - 1, -1, -1, dtype=torch.int64, device=a.device)
    return launch(gathered_kernel, a, b, order)
