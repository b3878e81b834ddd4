"""Correct kernels of odd make: right results, and nobody accused."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.machine import run

DIRT = ("nan", "ones", "zero", "large")


def integers(*shape, dtype=torch.float16, seed=0):
    """Small integers, exact in every format and order of sums."""
    values = np.random.default_rng(seed + sum(shape)).integers(-3, 4, shape)
    return torch.from_numpy(values).to(dtype)


def innocent(wrapper, *tensors, expected=None, **how):
    """No fault and the exact product, over every kind of dirty memory."""
    a, b = tensors[:2]
    if expected is None:
        expected = a.double() @ b.double()
    kept = [t.clone() for t in tensors]
    for dirt in DIRT:
        seen = run(wrapper, *tensors, dirt=dirt, **how)
        assert seen.faults == []
        assert seen.launches
        assert (seen.result.double() == expected).all()
    for before, after in zip(kept, tensors, strict=True):
        assert torch.equal(before.float(), after.float())
    return seen


SIZES = [(1, 1, 1), (33, 17, 40), (64, 64, 64), (5, 70, 16), (50, 3, 100)]
sizes = pytest.mark.parametrize(("M", "N", "K"), SIZES, ids=str)


# -- tile orders -----------------------------------------------------------------------------------
@triton.jit
def rotated_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    S: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """`pid % size` of the global pid rotates the order inside a group: still every tile once."""
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, S), tl.cdiv(N, S)
    group = pid // (G * tiles_n)
    size = min(tiles_m - group * G, G)
    pid_m = group * G + (pid % size)
    pid_n = (pid % (G * tiles_n)) // size
    rm = pid_m * S + tl.arange(0, S)
    rn = pid_n * S + tl.arange(0, S)
    ram = tl.max_contiguous(tl.multiple_of(rm, S), S) % M
    rbn = rn % N
    rk = tl.arange(0, S)
    a_ptrs = a_ptr + (ram[:, None] * sam + rk[None, :] * sak)
    b_ptrs = b_ptr + (rk[:, None] * sbk + rbn[None, :] * sbn)
    acc = tl.zeros((S, S), dtype=tl.float32)
    for k in range(K, 0, -S):
        a = tl.load(a_ptrs, mask=rk[None, :] < k, other=0.0)
        b = tl.load(b_ptrs, mask=rk[:, None] < k, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += S * sak
        b_ptrs += S * sbk
    rm = pid_m * S + tl.arange(0, S)
    rn = pid_n * S + tl.arange(0, S)
    c_ptrs = c_ptr + (rm[:, None] * scm + rn[None, :] * scn)
    tl.store(c_ptrs, acc.to(tl.float32), mask=(rm < M)[:, None] & (rn < N)[None, :])


def rotated(a, b, out=None):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device) if out is None else out
    grid = lambda meta: (triton.cdiv(M, meta["S"]) * triton.cdiv(N, meta["S"]),)  # noqa: E731
    rotated_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), S=16, G=3, num_warps=8
    )
    return c


@sizes
def test_rotation_inside_groups_with_wrapped_offsets(M, N, K):
    """Duplicate lanes of a wrapped row are masked in the store; loops may count down."""
    innocent(rotated, integers(M, K), integers(K, N, seed=1))


# -- masks -----------------------------------------------------------------------------------------
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
    innocent(one_mask, integers(M, K), integers(K, N, seed=1))


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
    innocent(wrapper, a, b, expected=plain)
    innocent(wrapper, a, b, bias, expected=full)


# -- split-K and stream-K --------------------------------------------------------------------------
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

    innocent(wrapper, integers(M, K), integers(K, N, seed=1))


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

    innocent(wrapper, integers(M, K), integers(K, N, seed=1))


# -- groups and tables -----------------------------------------------------------------------------
@triton.jit
def grouped_kernel(
    a_table, b_table, c_table, sizes_ptr, strides_ptr, groups, PROGRAMS: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """Problems of different sizes, given as tables of addresses (Triton's tutorial 08)."""
    tile = tl.program_id(0)
    before = 0
    for g in range(groups):
        gm = tl.load(sizes_ptr + g * 3)
        gn = tl.load(sizes_ptr + g * 3 + 1)
        gk = tl.load(sizes_ptr + g * 3 + 2)
        tiles_n = tl.cdiv(gn, S)
        tiles = tl.cdiv(gm, S) * tiles_n
        while tile >= before and tile < before + tiles:
            lda = tl.load(strides_ptr + g * 3)
            ldb = tl.load(strides_ptr + g * 3 + 1)
            ldc = tl.load(strides_ptr + g * 3 + 2)
            a_ptr = tl.load(a_table + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_table + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_table + g).to(tl.pointer_type(tl.float32))
            at = tile - before
            rm = at // tiles_n * S + tl.arange(0, S)
            rn = at % tiles_n * S + tl.arange(0, S)
            acc = tl.zeros((S, S), tl.float32)
            for k in range(0, gk, S):
                rk = k + tl.arange(0, S)
                a_mask = (rm[:, None] < gm) & (rk[None, :] < gk)
                b_mask = (rk[:, None] < gk) & (rn[None, :] < gn)
                a = tl.load(a_ptr + rm[:, None] * lda + rk[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + rk[:, None] * ldb + rn[None, :], mask=b_mask, other=0.0)
                acc += tl.dot(a, b)
            mask = (rm[:, None] < gm) & (rn[None, :] < gn)
            tl.store(c_ptr + rm[:, None] * ldc + rn[None, :], acc, mask=mask)
            tile += PROGRAMS
        before += tiles


@pytest.mark.parametrize("programs", [1, 4, 100])
def test_a_grouped_gemm_through_tables_of_addresses(programs):
    """The wrapper cuts a into problems of its own making; only the tables know them."""
    cuts = (5, 20, 0, 33)

    def wrapper(a, b):
        parts_a = [x.contiguous() for x in a.split(cuts)]
        parts_b = [(b * (g + 1)).contiguous() for g in range(len(cuts))]
        parts_c = [torch.empty((n, b.shape[1]), device=a.device) for n in cuts]
        address = lambda parts: torch.tensor([p.data_ptr() for p in parts], device="cuda")  # noqa: E731
        K, N = b.shape
        sizes = torch.tensor([(n, N, K) for n in cuts], dtype=torch.int32, device="cuda")
        strides = torch.tensor([(K, N, N)] * len(cuts), dtype=torch.int32, device="cuda")
        grouped_kernel[(programs,)](
            address(parts_a), address(parts_b), address(parts_c), sizes, strides, len(cuts),
            programs, 16,
        )  # fmt: skip
        return torch.cat(parts_c)

    a, b = integers(58, 21), integers(21, 40, seed=1)
    factor = torch.repeat_interleave(torch.arange(1, 5), torch.tensor(cuts))
    innocent(wrapper, a, b, expected=(a.double() @ b.double()) * factor[:, None])


@triton.jit
def routed_kernel(
    a_ptr, b_ptr, c_ptr, tokens_ptr, experts_ptr, count_ptr, N, K, pairs, sbe, sbk, sbn,
    TOP: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Rows gathered by index, one expert a block, blocks beyond the count leave early (vLLM)."""
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    count = tl.load(count_ptr)
    if pid_m * S >= count:
        return
    at = tl.load(tokens_ptr + pid_m * S + tl.arange(0, S)).to(tl.int64)
    valid = at < pairs
    expert = tl.load(experts_ptr + pid_m).to(tl.int64)
    rn = pid_n * S + tl.arange(0, S).to(tl.int64)
    if expert == -1:
        blank = tl.zeros((S, S), tl.float32)
        mask = valid[:, None] & (rn[None, :] < N)
        tl.store(c_ptr + at[:, None] * N + rn[None, :], blank, mask=mask)
        return
    rk = tl.arange(0, S)
    a_ptrs = a_ptr + (at[:, None] // TOP * K + rk[None, :])
    b_ptrs = b_ptr + expert * sbe + (rk[:, None] * sbk + (rn % N)[None, :] * sbn)
    acc = tl.zeros((S, S), tl.float32)
    for k in range(0, tl.cdiv(K, S)):
        a = tl.load(a_ptrs, mask=valid[:, None] & (rk[None, :] < K - k * S), other=0.0)
        b = tl.load(b_ptrs, mask=rk[:, None] < K - k * S, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += S
        b_ptrs += S * sbk
    mask = valid[:, None] & (rn[None, :] < N)
    tl.store(c_ptr + at[:, None] * N + rn[None, :], acc, mask=mask)


def test_rows_routed_to_experts():
    """Indices loaded from memory, padding rows named by an index past the end."""
    T, E, TOP, K, N, S = 19, 3, 2, 35, 24, 16
    chosen = np.random.default_rng(0).integers(0, E, (T, TOP))

    def wrapper(a, b):
        tokens, experts = [], []
        for e in range(E):
            mine = np.flatnonzero(chosen.ravel() == e).tolist()
            mine += [T * TOP] * (-len(mine) % S)
            tokens += mine
            experts += [e] * (len(mine) // S)
        count = torch.tensor([len(tokens)], dtype=torch.int32, device=a.device)
        blocks = len(experts) + 2  # the grid is an upper bound
        at = torch.full((blocks * S,), T * TOP, dtype=torch.int32, device=a.device)
        at[: len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        who = torch.full((blocks,), -1, dtype=torch.int32, device=a.device)
        who[: len(experts)] = torch.tensor(experts, dtype=torch.int32)
        c = torch.empty((T * TOP, N), device=a.device)
        routed_kernel[blocks, triton.cdiv(N, S)](
            a, b, c, at, who, count, N, K, T * TOP, *b.stride(), TOP=TOP, S=S
        )
        return c

    a, b = integers(T, K), integers(E, K, N, seed=1)
    expected = torch.stack(
        [a[i // TOP].double() @ b[e].double() for i, e in enumerate(chosen.flat)]
    )
    innocent(wrapper, a, b, expected=expected)


# -- packed weights --------------------------------------------------------------------------------
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
        words = np.zeros((K // 8, N), np.int64)
        for i in range(8):
            words |= w[i::8] << (4 * i)
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
        innocent(
            wrapper, a, torch.from_numpy(words.astype(np.uint32).view(np.int32)),
            torch.from_numpy(scales).half(),
            torch.from_numpy(packed_zeros.astype(np.uint32).view(np.int32)),
            expected=a.double() @ dense,
        )  # fmt: skip


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, as_ptr, bs_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, BLOCK: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """fp8 operands with a scale per row and K block, and per block of b (DeepSeek)."""
    rm = tl.program_id(0) * S + tl.arange(0, S)
    rn = tl.program_id(1) * S + tl.arange(0, S)
    rk = tl.arange(0, S)
    blocks = tl.cdiv(K, BLOCK)
    acc = tl.zeros((S, S), tl.float32)
    for k in range(0, tl.cdiv(K, S)):
        left = K - k * S
        a = tl.load(
            a_ptr + (rm % M)[:, None] * sam + (k * S + rk)[None, :] * sak,
            mask=rk[None, :] < left, other=0.0,
        )  # fmt: skip
        b = tl.load(
            b_ptr + (k * S + rk)[:, None] * sbk + (rn % N)[None, :] * sbn,
            mask=rk[:, None] < left, other=0.0,
        )  # fmt: skip
        at = k * S // BLOCK
        a_scale = tl.load(as_ptr + (rm % M) * blocks + at)
        b_scale = tl.load(bs_ptr + at * tl.cdiv(N, BLOCK) + (rn % N) // BLOCK)
        acc += tl.dot(a, b) * a_scale[:, None] * b_scale[None, :]
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.type.element_ty), mask=mask)


def test_fp8_with_scales_by_block():
    M, N, K, BLOCK, S = 19, 70, 100, 64, 32
    rng = np.random.default_rng(4)
    a, b = integers(M, K, dtype=torch.float8_e4m3fn), integers(K, N, dtype=torch.float8_e4m3fn)
    a_scale = torch.from_numpy(2.0 ** rng.integers(-3, 4, (M, 2))).float()
    b_scale = torch.from_numpy(2.0 ** rng.integers(-3, 4, (2, 2))).float()

    def wrapper(a, b, a_scale, b_scale):
        c = torch.empty((M, N), device=a.device, dtype=torch.float32)
        scaled_kernel[triton.cdiv(M, S), triton.cdiv(N, S)](
            a, b, a_scale, b_scale, c, M, N, K, *a.stride(), *b.stride(), BLOCK, S
        )
        return c

    k, n = np.arange(K) // BLOCK, np.arange(N) // BLOCK
    wide_a = a.double() * a_scale.double()[:, k]
    wide_b = b.double() * b_scale.double()[k][:, n]
    innocent(wrapper, a, b, a_scale, b_scale, expected=wide_a @ wide_b)
