"""Kernels with hints to the compiler, which hold wherever it matters or do not."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, store


@triton.jit
def carried_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, HINT: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    begin = 0
    for _ in range(0, K, BLOCK):
        offs_k = tl.multiple_of(begin, HINT) + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        begin += BLOCK
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


carried = partial(launch, carried_kernel, HINT=16)
# true of the first trip alone
carried_but_not_held = partial(launch, carried_kernel, HINT=32)


@triton.jit
def rows_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, WAY: tl.constexpr, BLOCK: tl.constexpr):
    """Rows that are held within M, with hints that are false of lanes beyond them, or of more."""
    lanes = tl.arange(0, BLOCK)
    offs_m = tl.program_id(0) * BLOCK + lanes
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + lanes
    inside = offs_m < M
    rows = tl.where(inside, offs_m, 0)
    if WAY == "rotated":
        offs_m = (offs_m + 1) % M
        rows = tl.max_contiguous(offs_m, BLOCK)
    elif WAY == "begun before":
        offs_m = tl.program_id(0) * (BLOCK - 1) + lanes - 1
        inside = (lanes > 0) & (offs_m < M)
        rows = tl.multiple_of(offs_m + 0 * M, BLOCK)
    elif WAY == "wider":
        rows = tl.max_contiguous(tl.multiple_of(rows, 2 * BLOCK), BLOCK)
    elif WAY == "in a branch":
        if K > BLOCK:
            rows = tl.max_contiguous(tl.multiple_of(rows, 2 * BLOCK), BLOCK)
        else:
            rows = offs_m % M
    elif WAY == "in the mask":
        rows = tl.max_contiguous(tl.multiple_of(rows, BLOCK), BLOCK)
        inside = inside & (rows < M)
    elif WAY == "as numbers":
        rows = tl.max_contiguous(tl.multiple_of(rows, BLOCK), BLOCK)
    elif WAY == "wrapped":
        rows = tl.max_contiguous(tl.multiple_of(offs_m % M, BLOCK), BLOCK)
    else:
        rows = tl.max_contiguous(tl.multiple_of(rows, BLOCK), BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    if WAY == "as numbers":
        acc += (rows * 0).to(tl.float32)[:, None]
    wide = rows.to(tl.int64)
    a_ptrs = a_ptr + wide[:, None] * sa[0] + lanes.to(tl.int64)[None, :] * sa[1]
    for k in range(0, K, BLOCK):
        offs_k = k + lanes.to(tl.int64)
        a_mask = offs_k[None, :] < K
        if (WAY == "rotated") | (WAY == "begun before"):
            a_mask &= inside[:, None]
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptrs, a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK * tl.cast(sa[1], tl.int64)
    c_ptrs = c_ptr + offs_m.to(tl.int64)[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = inside[:, None] & (offs_n[None, :] < N)
    if WAY == "last row of a ragged tile left out":
        mask &= (offs_m < M - tl.cast(M % BLOCK > 2, tl.int32))[:, None]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _in_tiles_of_15(a, b):
    grid = (triton.cdiv(a.shape[0], 15), triton.cdiv(b.shape[1], 16))
    return launch(rows_kernel, a, b, grid=grid, WAY="begun before")


clamped = partial(launch, rows_kernel, WAY="clamped")
wrapped = partial(launch, rows_kernel, WAY="wrapped")
# the last row comes first
rotated = partial(launch, rows_kernel, WAY="rotated")
# a lane that is not stored begins the run of those that are
begun_before = _in_tiles_of_15
wider = partial(launch, rows_kernel, WAY="wider")
wider_in_a_branch = partial(launch, rows_kernel, WAY="in a branch")
last_row_left_out = partial(launch, rows_kernel, WAY="last row of a ragged tile left out")
in_the_mask = partial(launch, rows_kernel, WAY="in the mask")
as_numbers = partial(launch, rows_kernel, WAY="as numbers")


@triton.jit
def copy_kernel(x_ptr, c_ptr, M, N, sx, sc, BLOCK: tl.constexpr):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    columns = (tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[None, :]
    mask = (rows < M) & (columns < N)
    x = tl.load(x_ptr + rows * sx[0] + columns * sx[1], mask=mask)
    tl.store(c_ptr + rows * sc[0] + columns * sc[1], x, mask=mask)


def wider_before_a_copy(a, b):
    x = wider(a, b)
    c = torch.empty_like(x)
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 16))
    copy_kernel[grid](x, c, *x.shape, x.stride(), c.stride(), BLOCK=16)
    return c


@triton.jit
def step_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """What pointers are moved by is said to be a multiple that it is not."""
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + lanes
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + lanes[None, :] * sa[1]
    step = tl.multiple_of(BLOCK * tl.cast(sa[1], tl.int64) + 0 * M, 2 * BLOCK)
    for k in range(0, K, BLOCK):
        offs_k = k + lanes
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptrs, a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += step
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


step_of_pointers = partial(launch, step_kernel)
