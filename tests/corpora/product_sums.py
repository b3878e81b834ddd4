"""Wrappers that add up parts, by atomics and in a single row: right and wrong ones."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.product_wrappers import slice_kernel
from tests.corpora.tiled import launch, product, store


@triton.jit
def adding_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, SLICE, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """Each program adds the sum over a slice of K of its own."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2) * SLICE
    end = tl.minimum(begin + SLICE, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.atomic_add(ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _clear(named):
    named["c_ptr"].zero_()


def _tune(*hooks):
    parts = enumerate(hooks, 1)
    configs = [triton.Config({"PARTS": n}, pre_hook=hook) for n, hook in parts]
    return triton.autotune(configs=configs, key=["M", "N", "K"])(adding_kernel)


hooked_kernel, half_hooked_kernel, unhooked_kernel = (
    _tune(_clear, _clear), _tune(_clear, None), _tune(None, None),
)  # fmt: skip


def add_slices(a, b, kernel=adding_kernel, parts=2, grid=None, like=torch.zeros, dtype=None):
    (M, K), N = a.shape, b.shape[1]
    c = like((M, N), device=a.device, dtype=dtype or torch.float32)
    meta = {"PARTS": parts} if kernel is adding_kernel else {}
    tiles = triton.cdiv(M, 16), triton.cdiv(N, 16)
    deep = (lambda named: (*tiles, named["PARTS"])) if grid is None else (*tiles, grid)
    strides = a.stride(), b.stride(), c.stride()
    slice_k = triton.cdiv(triton.cdiv(K, 2), 16) * 16
    kernel[deep](a, b, c, M, N, K, *strides, slice_k, BLOCK=16, **meta)
    return c.to(a.dtype)


added_onto_zeros = add_slices
added_onto_ones = partial(add_slices, like=torch.ones)
added_by_one_program_too_few = partial(add_slices, grid=1)
added_in_half = partial(add_slices, dtype=torch.float16)


@triton.jit
def twice_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    """Every program adds all of K."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.atomic_add(ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def added_twice(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), 2)
    strides = a.stride(), b.stride(), c.stride()
    twice_kernel[grid](a, b, c, M, N, K, *strides, BLOCK=16, PARTS=2)
    return c.to(a.dtype)


# the tuner tries out what it chooses from, and only its own hook clears c before each trial
cleared_before_each_trial = partial(add_slices, kernel=hooked_kernel, grid=2)
cleared_in_one_configuration = partial(
    add_slices, kernel=half_hooked_kernel, grid=2, like=torch.empty
)
tried_out_onto_zeros = partial(add_slices, kernel=unhooked_kernel, grid=2)


@triton.jit
def flat_kernel(
    w_ptr, c_ptr, size, step, PARTS: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr
):
    """The parts of w, read as rows of all elements of c."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    parts = tl.arange(0, 4).to(tl.int64)
    mask = (parts[:, None] < PARTS) & (offs[None, :] < size)
    at = offs - offs % 2 if PAIRS else offs
    w = tl.load(w_ptr + parts[:, None] * step + at[None, :], mask=mask, other=0.0)
    tl.store(c_ptr + offs, tl.sum(w, axis=0).to(c_ptr.dtype.element_ty), mask=offs < size)


def summed_in_a_row(a, b, parts=3, step=None, turned=False, pairs=False):
    (M, _), N = a.shape, b.shape[1]
    w = torch.empty((3, M, N), device=a.device, dtype=torch.float32)
    strides = (w.stride(0), 1, M) if turned else w.stride()
    launch(slice_kernel, a, b, c=w, sc=strides, depth=3, SLICES=3, FIRST=0)
    c, size = a.new_empty(M, N), M * N
    step = size if step is None else step
    grid = (triton.cdiv(size, 64),)
    flat_kernel[grid](w, c, size, step, PARTS=parts, PAIRS=pairs, BLOCK=64)
    return c


summed_but_the_last = partial(summed_in_a_row, parts=2)
first_part_three_times = partial(summed_in_a_row, step=0)
summed_and_turned = partial(summed_in_a_row, turned=True)
summed_from_neighbours = partial(summed_in_a_row, pairs=True)


@triton.jit
def last_column_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """Right: the last column of a is read in every trip, and so in none where K is 0."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    last = a_ptr + offs_m * sa[0] + (tl.zeros_like(offs_m) + K - 1) * sa[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        column = tl.load(last, mask=offs_m < M, other=0.0)
        offs_k = (k + tl.arange(0, BLOCK)).to(tl.int64)
        a = tl.load(
            a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1],
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - 1), other=0.0,
        )  # fmt: skip
        a = tl.where(offs_k[None, :] == K - 1, column[:, None], a)
        b = tl.load(
            b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1],
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


last_column_of_its_own = partial(launch, last_column_kernel)
