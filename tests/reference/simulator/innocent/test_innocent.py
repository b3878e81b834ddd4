"""Unusual but correct tile orders and masks: right results and no fault."""

from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.families.epilogues import linear
from tests.corpora.no_false_alarm import addressing, projects, scheduling
from tests.corpora.no_false_alarm.splitting import stream_k_kernel
from tests.support.simulator_lanes import assert_innocent, integers, sizes


@sizes
@pytest.mark.parametrize(
    "wrapper",
    [
        scheduling.rotation_by_the_global_pid,
        addressing.rows_and_columns_wrapped,
        addressing.k_walked_backwards,
        projects.compiler_template,
    ],
)
def test_rotation_inside_groups_and_wrapped_offsets(wrapper, M, N, K):
    """Duplicate lanes of a wrapped row are masked in the store; loops may count down."""
    assert_innocent(wrapper, integers(M, K), integers(K, N, seed=1))


@triton.jit
def one_mask_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, KP: tl.constexpr, S: tl.constexpr
):
    """b has no K mask: its rows are padded with zeros up to a whole tile."""
    rm = tl.program_id(0) * S + tl.arange(0, S)
    rn = tl.program_id(1) * S + tl.arange(0, S)
    acc = tl.zeros((S, S), tl.float32)
    for k in tl.static_range(0, KP, S):
        rk = k + tl.arange(0, S)
        a_mask = (rm[:, None] < M) & (rk[None, :] < K)
        a = tl.load(a_ptr + rm[:, None] * sam + rk[None, :] * sak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + rk[:, None] * sbk + rn[None, :] * sbn)
        acc = tl.dot(a, b, acc)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * scm + rn[None, :] * scn, acc, mask=mask)


def one_mask(a, b):
    (M, K), N = a.shape, b.shape[1]
    KP, NP = triton.cdiv(K, 16) * 16, triton.cdiv(N, 16) * 16
    padded = torch.zeros((KP, NP), device=b.device, dtype=b.dtype)
    padded[:K, :N] = b
    c = torch.empty((M, N), device=a.device)
    one_mask_kernel[triton.cdiv(M, 16), NP // 16](
        a, padded, c, M, N, K, *a.stride(), *padded.stride(), *c.stride(), KP, 16
    )
    return c


@sizes
def test_a_mask_on_one_operand_is_enough_where_the_other_is_in_bounds(M, N, K):
    """The wrapper pads b; a's masked zeros meet defined lanes only."""
    assert_innocent(one_mask, integers(M, K), integers(K, N, seed=1))


@sizes
@pytest.mark.parametrize("activation", ["", "relu"])
def test_an_optional_bias_and_an_activation(M, N, K, activation):
    """Constant conditions, as in the template of torch's inductor."""
    a, b, bias = integers(M, K), integers(K, N, seed=1), integers(N, seed=2)
    plain = a.double() @ b.double()
    full = plain + bias.double()
    if activation:
        plain, full = plain.relu(), full.relu()
    wrapper = partial(linear, activation=activation)
    assert_innocent(wrapper, a, b, expected=plain)
    assert_innocent(wrapper, a, b, bias, expected=full)


# -- kernels that split a tile's sum between programs ---------------------------------------------
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
