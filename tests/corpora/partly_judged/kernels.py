"""Kernels with a fault that only few cases of a kind show."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, scale_ptr,
    FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C = A B; FLAW is what is wrong in it."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if FLAW == "off_for_fractions":
        acc = tl.where(acc == tl.floor(acc), acc, acc * 1.05)
    if FLAW == "nan_becomes_zero":
        acc = tl.where(acc == acc, acc, 0.0)
    if FLAW == "off_by_one":
        acc += 1.0
    if FLAW == "scaled":
        acc *= tl.load(scale_ptr).to(tl.float32)
    if FLAW == "scaled_wrong":
        acc = 2.0 * acc * tl.load(scale_ptr).to(tl.float32)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def _launch(a, b, flaw, scale=None):
    return launch(kernel, a, b, a if scale is None else scale, FLAW=flaw)


def right(a, b):
    return _launch(a, b, "none")


def off_for_fractions(a, b):
    return _launch(a, b, "off_for_fractions")


def nan_becomes_zero(a, b):
    return _launch(a, b, "nan_becomes_zero")


def off_by_one(a, b):
    return _launch(a, b, "off_by_one")


def scaled(a, b, scale):
    return _launch(a, b, "scaled", scale)


def scaled_wrong(a, b, scale):
    return _launch(a, b, "scaled_wrong", scale)


_SHAPES: list[torch.Size] = []


def right_for_one_shape(a, b):
    """A cache of what the first call needs, which the shape of a later one does not change."""
    _SHAPES.append(a.shape)
    return _launch(a, b, "none" if a.shape == _SHAPES[0] else "off_by_one")


_CALLS: list[int] = []


def right_for_one_call(a, b):
    """A workspace that the second call of the same shape finds full."""
    _CALLS.append(a.shape[0])
    return _launch(a, b, "none" if len(_CALLS) == 1 else "off_by_one")


def in_halves_where_rows_are_few(a, b):
    """Two sums over halves of K where there are few rows: other bits for the same row."""
    if a.shape[0] > 16 or a.shape[1] < 2:
        return right(a, b)
    half = a.shape[1] // 2
    parts = (
        launch(kernel, a[:, k], b[k], a, FLAW="none", dtype=torch.float32)
        for k in (slice(half), slice(half, None))
    )
    return sum(parts).to(a.dtype)


@triton.jit
def counting_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, counter_ptr, BLOCK: tl.constexpr
):  # fmt: skip
    """C = A B; every program counts itself, without an atomic operation."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)
    tl.store(counter_ptr, tl.load(counter_ptr) + 1)


def counts_its_programs(a, b):
    counter = torch.zeros(1, dtype=torch.int32, device=a.device)
    return launch(counting_kernel, a, b, counter)


@triton.jit
def hinted_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, flag_ptr, BLOCK: tl.constexpr
):  # fmt: skip
    """C = A B, with an assumption where a flag says so."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if tl.load(flag_ptr) == 1:
        tl.assume(K % 64 == 0)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def assumes_where_flagged(a, b):
    flag = torch.zeros(1, dtype=torch.int32, device=a.device)
    return launch(hinted_kernel, a, b, flag)
