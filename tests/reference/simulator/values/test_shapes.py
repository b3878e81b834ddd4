"""Reductions, scans and changes of shape against numpy, and the types of their results."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of, store_rows

from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run


@triton.jit
def _plus(p, q):
    return p + q


@triton.jit
def _first_moments(n, mean, m, other):
    total = n + m
    return total, mean + other


@triton.jit
def reduce_kernel(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    extremes = tl.max(x, 1), tl.min(x, axis=1), tl.argmax(x, axis=1), tl.argmin(x, 1)
    best, at = tl.max(x, 1, return_indices=True)
    others = tl.xor_sum(x, 1), tl.reduce(x, 1, _plus), best * 100 + at, tl.sum(x.to(tl.int8), 1)
    sums, whole = (tl.sum(x, axis=1),), (tl.sum(x), tl.sum(tl.sum(x, 0, keep_dims=True), 1))
    third = (j == 3)[None, :]
    sums_to_3 = tl.sum(tl.cumsum(x, 1) * third, 1)
    sums_from_3 = tl.sum(tl.cumsum(x, 1, reverse=True) * third, 1)
    count, total = tl.reduce((tl.full((M, N), 1, tl.int32), x), 1, _first_moments)
    sums_to_2 = tl.sum(tl.associative_scan(x, 1, _plus) * (j == 2)[None, :], 1)
    scans = sums_to_3, sums_from_3, count * 1000 + total, tl.max(x), sums_to_2
    store_rows(o_ptr, sums + extremes + others + whole + scans, M)


def test_reductions():
    """Against numpy, on integers in which the order does not matter."""
    x = np.random.default_rng(1).integers(-40, 41, (8, 16)).astype(np.int32)
    how = {"tensors": [torch.from_numpy(x)], "shape": (16, 8), "make": torch.empty}
    got = result_of(reduce_kernel, (1,), 8, 16, **how)
    whole, ones = x.sum(), np.ones(8, np.int64)
    sums, best = x.sum(1), x.max(1)
    expected = [
        sums, best, x.min(1), x.argmax(1), x.argmin(1), np.bitwise_xor.reduce(x, 1), sums,
        best * 100 + x.argmax(1), sums, ones * whole, ones * whole, x[:, :4].sum(1),
        x[:, 3:].sum(1), 16000 + sums, ones * x.max(), x[:, :3].sum(1),
    ]  # fmt: skip
    assert got.tolist() == [e.tolist() for e in expected]


@triton.jit
def sum_kernel(x_ptr, o_ptr, n: tl.constexpr):
    tl.store(o_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, n)), 0))


@pytest.mark.parametrize(
    ("dtype", "value", "out", "total"),
    [
        (torch.int8, 100, torch.int32, 6400),
        (torch.uint8, 200, torch.int32, 12800),
        (torch.int32, 2**30, torch.int64, 0),
        (torch.float16, 2048.0, torch.float32, float("inf")),
        (torch.float32, 2048.0, torch.float32, 2.0**17),
    ],
)
def test_the_width_of_sums(dtype, value, out, total):
    """Small integers are summed in 32 bits; others wrap or overflow in their own type."""
    x = torch.full((64,), value, dtype=dtype)
    got = result_of(sum_kernel, (1,), 64, tensors=[x], shape=(1,), dtype=out, make=torch.empty)
    assert got.tolist() == [total]


@triton.jit
def nan_kernel(x_ptr, o_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    store_rows(o_ptr, (tl.max(x, 0), tl.min(x, 0), tl.sum(x, 0)), 1)


def test_nan_in_reductions():
    """max and min skip NaN, sum keeps it."""
    x = torch.tensor([1.0, float("nan"), -3, 2, 0, 0, 0, 0])
    how = {"shape": (3,), "dtype": torch.float32, "make": torch.empty}
    got = result_of(nan_kernel, (1,), tensors=[x], **how)
    assert got[:2].tolist() == [2.0, -3.0]
    assert np.isnan(got[2])


@triton.jit
def shapes_kernel(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    n: tl.constexpr = M * N
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    y = tl.reshape(x, (M, 2, N // 2))
    plain = tl.reshape(x, (n,)), tl.ravel(tl.trans(x)), x.T.reshape(n)
    permuted = tl.permute(y, (2, 0, 1)).reshape([n]), tl.trans(y, 1, 2, 0).reshape(n)
    left, right = tl.split(tl.reshape(x, (M, N // 2, 2)))
    swapped = tl.reshape(tl.join(right, left), n), tl.interleave(right, left).reshape(n)
    rows = tl.broadcast_to(i[:, None], (M, N)).reshape(n)
    wider = tl.expand_dims(x, 1).reshape(n), rows, tl.reshape(x, (n,)), tl.flip(x, 1).reshape(n)
    both = tl.cat(x.reshape(n), x.reshape(n), can_reorder=True)
    p, q = tl.broadcast(i[:, None], j[None, :])
    pairs = both.reshape(2, n).sum(0) // 2, (p * 100 + q).reshape(n)
    threes = (tl.zeros_like(x) + tl.full((1, N), 3, tl.int32)).reshape(n)
    last = threes, tl.gather(x, tl.broadcast_to(j[None, :] ^ 1, (M, N)), 1).reshape(n)
    store_rows(o_ptr, plain + permuted + swapped + wider + pairs + last, n)


def test_shapes_and_their_order():
    """Row-major order is kept by reshape, not by tl.cat; the others as in numpy."""
    x = np.random.default_rng(2).permutation(32).reshape(4, 8).astype(np.int32)
    how = {"tensors": [torch.from_numpy(x)], "shape": (15, 32), "make": torch.empty}
    rows = result_of(shapes_kernel, (1,), 4, 8, **how)
    y = x.reshape(4, 2, 4)
    left, right = x[:, 0::2], x[:, 1::2]
    swapped = np.stack([right, left], -1)
    i, j = np.indices((4, 8))
    expected = [
        x, x.T, x.T, y.transpose(2, 0, 1), y.transpose(1, 2, 0), swapped, swapped, x, i, x,
        x[:, ::-1], x.ravel()[::-1], i * 100 + j, x * 0 + 3, x[:, np.arange(8) ^ 1],
    ]  # fmt: skip
    for row, (got, want) in enumerate(zip(rows, expected, strict=True)):
        assert got.tolist() == want.ravel().tolist(), f"row {row}"


@triton.jit
def reordering_kernel(x_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr):
    n: tl.constexpr = M * N
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    moved = tl.reshape(x, (n,), can_reorder=True), tl.view(x, (n,)), tl.ravel(x, can_reorder=True)
    flat = x.reshape(n)
    both = tl.cat(flat, flat + 100, can_reorder=True).reshape(2, n)
    kept = tl.view(x, (M, 1, N)).reshape(n)
    summed = tl.sum(tl.view(x, (n,))) + tl.max(x) + 0 * flat
    store_rows(o_ptr, moved + (both.max(0), kept, summed), n)  # noqa: RUF005 - Triton has no *


def test_the_order_that_the_compiler_may_choose_is_not_row_major():
    """Only what does not depend on the order is as in numpy."""
    x = np.arange(32).astype(np.int32)
    how = {"tensors": [torch.from_numpy(x)], "shape": (6, 32), "make": torch.empty}
    rows = result_of(reordering_kernel, (1,), 4, 8, **how)
    for row in rows[:3].tolist():
        assert sorted(row) == x.tolist()
        assert row != x.tolist()
    assert rows[3].tolist() != (x + 100).tolist()
    assert rows[4].tolist() == x.tolist()
    assert rows[5].tolist() == [x.sum() + 31] * 32


@triton.jit
def double(x):
    return 2 * x


@triton.jit
def of_constants_kernel(o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    store_rows(o_ptr, (tl.map_elementwise(double, i), tl.sum(i, 0), tl.cumsum(i, 0)), N)


def test_a_block_known_before_the_launch():
    """Functions over a block that depends on no argument."""
    got = result_of(of_constants_kernel, (1,), 16, shape=(3, 16), make=torch.empty)
    i = np.arange(16)
    assert got.tolist() == [(2 * i).tolist(), [120] * 16, np.cumsum(i).tolist()]


@triton.jit
def odd_block_kernel(o_ptr, N: tl.constexpr):
    tl.store(o_ptr + tl.arange(0, N), 1.0)


def test_blocks_are_powers_of_two():
    with pytest.raises(KernelError, match="power of 2"):
        run(launcher(odd_block_kernel, (1,), 24))
