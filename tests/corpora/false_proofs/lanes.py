"""Numbers that end in other lanes than their own, hints for some lanes only, and lost NaN."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store


@triton.jit
def transposed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, TWICE: tl.constexpr, BLOCK: tl.constexpr
):
    """The sums are transposed in every step; TWICE: and transposed back."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        if TWICE:
            acc = tl.trans(tl.dot(tl.trans(b), tl.trans(a), tl.trans(acc)))
        else:
            acc = tl.dot(a, b, tl.trans(acc))
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


sums_transposed_by_every_step = partial(launch, transposed_kernel, TWICE=False)
sums_transposed_and_back = partial(launch, transposed_kernel, TWICE=True)


@triton.jit
def moved_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, GATHER: tl.constexpr, TWICE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The columns of the sums are reversed in every step; TWICE: and reversed again."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    turned = tl.broadcast_to(BLOCK - 1 - tl.arange(0, BLOCK)[None, :], (BLOCK, BLOCK))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc += product(a_ptr, b_ptr, offs_m, offs_n, M, N, k, min(k + BLOCK, K), sa, sb, BLOCK)
        for _ in tl.static_range(1 + TWICE):
            acc = tl.gather(acc, turned, 1) if GATHER else tl.flip(acc, 1)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


sums_flipped_by_every_step = partial(launch, moved_kernel, GATHER=False, TWICE=False)
sums_flipped_and_back = partial(launch, moved_kernel, GATHER=False, TWICE=True)
sums_gathered_by_every_step = partial(launch, moved_kernel, GATHER=True, TWICE=False)
sums_gathered_and_back = partial(launch, moved_kernel, GATHER=True, TWICE=True)


@triton.jit
def flat_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, REORDER: tl.constexpr, BLOCK: tl.constexpr
):
    """A tile is stored by a block of one dimension."""
    first_m = tl.program_id(0).to(tl.int64) * BLOCK
    first_n = tl.program_id(1).to(tl.int64) * BLOCK
    offs_m, offs_n = first_m + tl.arange(0, BLOCK), first_n + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    flat = tl.reshape(acc, (BLOCK * BLOCK,), can_reorder=REORDER)
    lane = tl.arange(0, BLOCK * BLOCK)
    rows, columns = first_m + lane // BLOCK, first_n + lane % BLOCK
    c_ptrs = c_ptr + rows * sc[0] + columns * sc[1]
    tl.store(c_ptrs, flat.to(c_ptr.dtype.element_ty), mask=(rows < M) & (columns < N))


tile_in_any_order = partial(launch, flat_kernel, REORDER=True)
tile_in_its_order = partial(launch, flat_kernel, REORDER=False)


@triton.jit
def scaled_rows_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, scale_ptr, PADDED: tl.constexpr,
    RUNNING: tl.constexpr, BEYOND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The scales are all 1; each row has that of the row opposite to it in the tile.

    RUNNING: or the product of its own scale and those below it. BEYOND: or of the next row, which
    the first one lacks.
    """
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if PADDED:
        scale = tl.load(scale_ptr + offs_m, mask=offs_m < M, other=1.0)
    else:
        scale = tl.load(scale_ptr + offs_m, mask=offs_m < M)
    if RUNNING:
        scale = tl.cumprod(scale, reverse=True)
    else:
        scale = tl.gather(scale, BLOCK - 1 + BEYOND - tl.arange(0, BLOCK), 0)
    store(c_ptr, acc * scale[:, None], offs_m, offs_n, M, N, sc)


def _scale_rows(a, b, padded, running=False, beyond=False):
    scale = torch.ones(a.shape[0], device=a.device, dtype=torch.float32)
    return launch(
        scaled_rows_kernel, a, b, scale, PADDED=padded, RUNNING=running, BEYOND=beyond
    )  # fmt: skip


undefined_scales_gathered = partial(_scale_rows, padded=False)
padded_scales_gathered = partial(_scale_rows, padded=True)
scales_gathered_beyond_the_tile = partial(_scale_rows, padded=True, beyond=True)
scales_gathered_within_the_tile = partial(_scale_rows, padded=True, beyond=False)
undefined_scales_multiplied = partial(_scale_rows, padded=False, running=True)
padded_scales_multiplied = partial(_scale_rows, padded=True, running=True)


@triton.jit
def wrapped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, HINT: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows beyond the last begin anew, in the middle of a tile."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows = offs_m % M
    if HINT:
        rows = tl.max_contiguous(tl.multiple_of(rows, BLOCK), BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + rows[:, None] * sa[0] + offs_k[None, :] * sa[1]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


wrapped_rows_said_to_be_a_run = partial(launch, wrapped_kernel, HINT=True, BLOCK=32)
wrapped_rows_without_a_hint = partial(launch, wrapped_kernel, HINT=False, BLOCK=32)


@triton.jit
def relu_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, bias_ptr, NAN: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    store(c_ptr, tl.maximum(acc, 0.0, propagate_nan=NAN), offs_m, offs_n, M, N, sc)


def relu_loses_nan(a, b, bias):
    return launch(relu_kernel, a, b, bias, NAN=tl.PropagateNan.NONE)


def relu_keeps_nan(a, b, bias):
    return launch(relu_kernel, a, b, bias, NAN=tl.PropagateNan.ALL)
