"""Correct kernels on packed and scaled weights: right results and no fault."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.families.block_scales import block_scaled_kernel
from tests.support.simulator_lanes import assert_innocent, integers


@triton.jit
def packed_kernel(
    a_ptr, q_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Eight 4-bit weights in an int32 along K, scales and zeros by group (GPTQ)."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    n_mask = rn < N
    q_ptrs = q_ptr + (rk[:, None] // 8) * N + rn[None, :]
    shift = (rk % 8) * 4
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        inside = k * BK + rk < K
        a_mask = (rm[:, None] < M) & inside[None, :]
        a = tl.load(a_ptr + rm[:, None] * K + k * BK + rk[None, :], mask=a_mask, other=0.0)
        q = tl.load(q_ptrs, mask=inside[:, None] & n_mask[None, :], other=0)
        group = (k * BK + rk) // GROUP
        g_mask = inside[:, None] & n_mask[None, :]
        scale = tl.load(scale_ptr + group[:, None] * N + rn[None, :], mask=g_mask, other=0.0)
        zero = tl.load(
            zero_ptr + group[:, None] * ((N + 7) // 8) + rn[None, :] // 8, mask=g_mask, other=0
        )
        zero = (zero >> ((rn % 8) * 4)[None, :]) & 0xF
        w = (((q >> shift[:, None]) & 0xF) - (zero + 1)).to(tl.float16) * scale
        acc += tl.dot(a, w)
        q_ptrs += (BK // 8) * N
    mask = (rm[:, None] < M) & n_mask[None, :]
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=mask)


@pytest.mark.parametrize(("M", "N", "K"), [(5, 17, 64), (16, 40, 96), (1, 8, 32)], ids=str)
def test_weights_packed_by_four_bits(M, N, K):
    """Shifts of negative words, groups larger and smaller than the K tile."""
    rng = np.random.default_rng(N)
    for group in (16, 32, K):
        groups = -(-K // group)
        w = rng.integers(0, 16, (K, N))
        zeros = rng.integers(0, 15, (groups, N))
        scales = 2.0 ** rng.integers(-2, 2, (groups, N))
        packed = np.zeros((K // 8, N), np.int64)
        for i in range(8):
            packed |= w[i::8] << (4 * i)
        packed_zeros = np.zeros((groups, -(-N // 8)), np.int64)
        for n in range(N):
            packed_zeros[:, n // 8] |= zeros[:, n] << (4 * (n % 8))
        rows = np.arange(K) // group
        dense = torch.from_numpy((w - zeros[rows] - 1) * scales[rows])

        def wrapper(a, q, s, z, group=group):
            c = torch.empty((M, N), device=a.device)
            packed_kernel[triton.cdiv(M, 16), triton.cdiv(N, 16)](
                a, q, s, z, c, M, N, K, group, 16, 16, 32
            )
            return c

        a = integers(M, K)
        assert_innocent(
            wrapper, a, torch.from_numpy(packed.astype(np.uint32).view(np.int32)),
            torch.from_numpy(scales).half(),
            torch.from_numpy(packed_zeros.astype(np.uint32).view(np.int32)),
            expected=a.double() @ dense,
        )  # fmt: skip


def test_fp8_with_scales_by_block():
    """A scale per row and K block of a, and per block of b (DeepSeek)."""
    M, N, K, BLOCK, S = 19, 70, 100, 64, 32
    rng = np.random.default_rng(4)
    a, b = integers(M, K, dtype=torch.float8_e4m3fn), integers(K, N, dtype=torch.float8_e4m3fn)
    a_scale = torch.from_numpy(2.0 ** rng.integers(-3, 4, (M, 2))).float()
    b_scale = torch.from_numpy(2.0 ** rng.integers(-3, 4, (2, 2))).float()

    def wrapper(a, b, a_scale, b_scale):
        c = torch.empty((M, N), device=a.device, dtype=torch.float32)
        scales = a_scale.stride(), b_scale.stride()
        strides = a.stride(), b.stride(), c.stride(), *scales
        block_scaled_kernel[(triton.cdiv(M, S) * triton.cdiv(N, S),)](
            a, b, c, a_scale, b_scale, M, N, K, *sum(strides, ()), BLOCK, BLOCK, S, S, S, 4, "none"
        )
        return c

    k, n = np.arange(K) // BLOCK, np.arange(N) // BLOCK
    wide_a = a.double() * a_scale.double()[:, k]
    wide_b = b.double() * b_scale.double()[k][:, n]
    assert_innocent(wrapper, a, b, a_scale, b_scale, expected=wide_a @ wide_b)
