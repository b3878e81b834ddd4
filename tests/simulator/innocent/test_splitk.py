"""Correct kernels that split a tile's sum between programs: right results and no fault."""

import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import assert_innocent, integers, sizes


@triton.jit
def last_block_kernel(
    a_ptr, b_ptr, c_ptr, w_ptr, count_ptr, M, N, K, SPLIT: tl.constexpr, S: tl.constexpr
):
    """Partial sums in a workspace; who finishes a tile last adds them up."""
    tile, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(N, S)
    rm = tile // tiles_n * S + tl.arange(0, S)
    rn = tile % tiles_n * S + tl.arange(0, S)
    acc = tl.zeros((S, S), tl.float32)
    steps = tl.cdiv(K, S)
    each = tl.cdiv(steps, SPLIT)
    for step in range(part * each, min((part + 1) * each, steps)):
        rk = step * S + tl.arange(0, S)
        a_mask = (rm[:, None] < M) & (rk[None, :] < K)
        b_mask = (rk[:, None] < K) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    within = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    tl.store(w_ptr + (tile * SPLIT + part) * S * S + within, acc)
    tl.debug_barrier()
    done = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel")
    if done == SPLIT - 1:
        total = tl.zeros((S, S), tl.float32)
        for other in range(SPLIT):
            total += tl.load(w_ptr + (tile * SPLIT + other) * S * S + within)
        mask = (rm[:, None] < M) & (rn[None, :] < N)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], total, mask=mask)
        tl.store(count_ptr + tile, 0)


@sizes
def test_the_last_block_reduces(M, N, K):
    def wrapper(a, b):
        tiles = triton.cdiv(M, 16) * triton.cdiv(N, 16)
        c = torch.empty((M, N), device=a.device)
        w = torch.empty((tiles, 4, 16, 16), device=a.device)
        count = torch.zeros(tiles, dtype=torch.int32, device=a.device)
        last_block_kernel[tiles, 4](a, b, c, w, count, M, N, K, 4, 16)
        assert not count.any()
        return c

    assert_innocent(wrapper, integers(M, K), integers(K, N, seed=1))


@triton.jit
def stream_k_kernel(
    a_ptr, b_ptr, c_ptr, w_ptr, flag_ptr, M, N, K, PROGRAMS: tl.constexpr, S: tl.constexpr
):
    """Each program takes an even share of all steps; the tile's first one awaits the others."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, S)
    steps = tl.cdiv(K, S)
    total = tl.cdiv(M, S) * tiles_n * steps
    share = tl.cdiv(total, PROGRAMS)
    it = pid * share
    last = min(it + share, total)
    within = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
    while it < last:
        tile = it // steps
        begin = it % steps
        end = min(steps, begin + (last - it))
        rm = tile // tiles_n * S + tl.arange(0, S)
        rn = tile % tiles_n * S + tl.arange(0, S)
        acc = tl.zeros((S, S), tl.float32)
        for step in range(begin, end):
            rk = step * S + tl.arange(0, S)
            a_mask = (rm[:, None] < M) & (rk[None, :] < K)
            b_mask = (rk[:, None] < K) & (rn[None, :] < N)
            a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=b_mask, other=0.0)
            acc += tl.dot(a, b)
        if begin == 0:
            reached = end
            other = pid
            while reached < steps:
                other += 1
                while tl.atomic_cas(flag_ptr + other, 1, 1) != 1:
                    pass
                acc += tl.load(w_ptr + other * S * S + within)
                reached += share
            mask = (rm[:, None] < M) & (rn[None, :] < N)
            tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=mask)
        else:
            tl.store(w_ptr + pid * S * S + within, acc)
            tl.debug_barrier()
            tl.atomic_xchg(flag_ptr + pid, 1)
        it += end - begin


@pytest.mark.parametrize(("M", "N", "K"), [(33, 17, 40), (50, 3, 100)], ids=str)
@pytest.mark.parametrize("programs", [1, 3, 7])
def test_stream_k_with_programs_that_await_later_ones(M, N, K, programs):
    def wrapper(a, b):
        c = torch.empty((M, N), device=a.device)
        w = torch.empty((programs, 16, 16), device=a.device)
        flags = torch.zeros(programs + 1, dtype=torch.int32, device=a.device)
        stream_k_kernel[(programs,)](a, b, c, w, flags, M, N, K, programs, 16)
        return c

    assert_innocent(wrapper, integers(M, K), integers(K, N, seed=1))
