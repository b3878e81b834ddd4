"""Unusual but correct tile orders and masks: right results and no fault."""

import pytest
import torch
import triton
import triton.language as tl
from no_false_alarm import addressing, scheduling
from simulator_lanes import assert_innocent, integers, sizes


@sizes
@pytest.mark.parametrize(
    "wrapper",
    [
        scheduling.rotation_by_the_global_pid,
        addressing.rows_and_columns_wrapped,
        addressing.k_walked_backwards,
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


@triton.jit
def even_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr,
    ACTIVATION: tl.constexpr, bias_ptr=None,
):  # fmt: skip
    """The template of torch's inductor: index arithmetic on a flat tile, constant conditions."""
    grid_n = (N + BN - 1) // BN
    pid = tl.program_id(0)
    rm = pid // grid_n * BM + tl.arange(0, BM)
    rn = pid % grid_n * BN + tl.arange(0, BN)
    if (sam == 1 and sak == M) or (sam == K and sak == 1):
        ram = tl.max_contiguous(tl.multiple_of(rm, BM), BM)
    else:
        ram = rm % M
    ram = ram % M
    rbn = rn % N
    rk = tl.arange(0, BK)
    A = a_ptr + (ram[:, None] * sam + rk[None, :] * sak)
    B = b_ptr + (rk[:, None] * sbk + rbn[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(K, 0, -BK):
        if EVEN_K:
            a = tl.load(A)
            b = tl.load(B)
        else:
            a = tl.load(A, mask=rk[None, :] < k, other=0.0)
            b = tl.load(B, mask=rk[:, None] < k, other=0.0)
        acc += tl.dot(a, b, allow_tf32=False)
        A += BK * sak
        B += BK * sbk
    idx_m = rm[:, None]
    idx_n = rn[None, :]
    mask = (idx_m < M) & (idx_n < N)
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + idx_n, mask=idx_n < N, other=0.0)
    if ACTIVATION == "relu":
        acc = tl.where(acc > 0, acc, 0.0)
    xindex = idx_n + N * idx_m
    tl.store(c_ptr + (tl.broadcast_to(xindex, acc.shape)), acc, mask)


@sizes
@pytest.mark.parametrize("activation", [None, "relu"])
def test_the_template_of_inductor(M, N, K, activation):
    def wrapper(a, b, bias=None):
        c = torch.empty((M, N), device=a.device)
        even_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 16),)](
            a, b, c, M, N, K, *a.stride(), *b.stride(), BM=32, BN=16, BK=16,
            EVEN_K=K % 16 == 0, ACTIVATION=activation, bias_ptr=bias,
        )  # fmt: skip
        return c

    a, b, bias = integers(M, K), integers(K, N, seed=1), integers(N, seed=2)
    plain = a.double() @ b.double()
    full = plain + bias.double()
    if activation:
        plain, full = plain.relu(), full.relu()
    assert_innocent(wrapper, a, b, expected=plain)
    assert_innocent(wrapper, a, b, bias, expected=full)
