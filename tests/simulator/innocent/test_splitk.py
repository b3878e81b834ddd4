"""Correct kernels that split a tile's sum between programs: right results and no fault."""

import pytest
import torch
import triton
import triton.language as tl
from no_false_alarm.splitting import stream_k_kernel
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


@pytest.mark.parametrize(("M", "N", "K"), [(33, 17, 40), (50, 3, 100)], ids=str)
@pytest.mark.parametrize("programs", [1, 3, 7])
def test_stream_k_with_programs_that_await_later_ones(M, N, K, programs):
    def wrapper(a, b):
        c = torch.empty((M, N), device=a.device)
        w = torch.empty((programs, 16, 16), device=a.device)
        flags = torch.zeros(programs + 1, dtype=torch.int32, device=a.device)
        share = triton.cdiv(triton.cdiv(M, 16) * triton.cdiv(N, 16) * triton.cdiv(K, 16), programs)
        strides = a.stride(), b.stride(), c.stride()
        stream_k_kernel[(programs,)](a, b, c, w, flags, M, N, K, *strides, share, programs, 16)
        return c

    assert_innocent(wrapper, integers(M, K), integers(K, N, seed=1))
