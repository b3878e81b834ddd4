"""Integers that leave their type, a quotient that is rounded by Python, and sums beyond 2**24."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store


# -- 64 bits ---------------------------------------------------------------------------------------
@triton.jit
def packed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """The row and the column of an element are one number, the row in its upper bits."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    packed = offs_m[:, None] * (1 << BITS) + offs_n[None, :]
    c_ptrs = c_ptr + packed // (1 << BITS) * sc[0] + packed % (1 << BITS) * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


row_above_48_bits = partial(launch, packed_kernel, BITS=48)  # from row 2**15 on it is negative
row_above_32_bits = partial(launch, packed_kernel, BITS=32)


# -- a value that a loop carries -------------------------------------------------------------------
@triton.jit
def fixed_point_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, begin, CURSOR: tl.constexpr, BLOCK: tl.constexpr
):
    """The first k of a tile has 16 bits behind the point."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    cursor = begin.to(CURSOR)
    for _ in range(0, K, BLOCK):
        offs_k = (cursor >> 16) + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        cursor += BLOCK << 16
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def cursor_in_32_bits(a, b):
    """Its argument is 0, which the loop changes."""
    return launch(fixed_point_kernel, a, b, 0, CURSOR=tl.int32, BLOCK=32)


def cursor_in_64_bits(a, b):
    return launch(fixed_point_kernel, a, b, 0, CURSOR=tl.int64, BLOCK=32)


# -- the counter of a loop -------------------------------------------------------------------------
@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, COUNTER: tl.constexpr, BLOCK: tl.constexpr
):
    """The loop counts in parts of k, 2**15 to each."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for part in range(0, tl.cast(K, COUNTER) << 15, BLOCK << 15):
        offs_k = (part >> 15) + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


last_step_wraps = partial(launch, scaled_kernel, COUNTER=tl.int32)
last_step_fits = partial(launch, scaled_kernel, COUNTER=tl.int64)


# -- a quotient of arguments -----------------------------------------------------------------------
@triton.jit
def late_begin_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, chunks, BELOW: tl.constexpr, BLOCK: tl.constexpr
):
    """Its first tile is 0, if the quotient of a negative number is rounded towards zero."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = tl.minimum((chunks - BELOW) // 4, 0) * -BLOCK
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, first, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def quotient_of_a_negative_constant(a, b):
    """An argument of 1 is a constant, and Python divides it: (1 - 2) // 4 is -1."""
    return launch(late_begin_kernel, a, b, a.shape[1] // 2048, BELOW=2)


def quotient_of_a_natural_constant(a, b):
    return launch(late_begin_kernel, a, b, a.shape[1] // 2048, BELOW=0)


# -- sums of integers ------------------------------------------------------------------------------
@triton.jit
def bytes_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, SUMS: tl.constexpr, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=SUMS)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0)
        if SUMS == tl.int32:
            acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        else:
            acc += tl.dot(a, b, out_dtype=tl.int32).to(SUMS)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


int8_sums_in_fp32 = partial(launch, bytes_kernel, dtype=torch.int32, SUMS=tl.float32, BLOCK=32)
int8_sums_in_int32 = partial(launch, bytes_kernel, dtype=torch.int32, SUMS=tl.int32, BLOCK=32)


def _sum_bytes(a, b, most):
    sums = tl.float32 if a.shape[1] <= most else tl.int32
    return launch(bytes_kernel, a, b, dtype=torch.int32, SUMS=sums, BLOCK=32)


sums_of_1025_bytes_in_fp32 = partial(_sum_bytes, most=1025)  # of -128 * -128: above 2**24
sums_of_1024_bytes_in_fp32 = partial(_sum_bytes, most=1024)
