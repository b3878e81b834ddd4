"""GEMM kernels in the styles of the field, for both witnesses: simulator and interpreter."""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from tests.support.simulator_cases import launch, output_of, sums_of, tiles_of


# -- 1. two-dimensional grid, every access masked ------------------------------------------------
@triton.jit
def masked_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, K, BK):
        offs_k = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + offs_m[:, None] * sam + offs_k[None, :] * sak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * sbk + offs_n[None, :] * sbn,
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACC)
    c_ptrs = c_ptr + offs_m[:, None] * scm + offs_n[None, :] * scn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def masked(a, b, case):
    c = output_of(a, case.M, case.N)
    launch(masked_kernel, tiles_of(case), case, a, b, c)
    return (c,)


# -- 2. grouped order, wrapped offsets, advancing pointers ---------------------------------------
@triton.jit
def grouped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_m = tl.cdiv(M, BM)
    num_n = tl.cdiv(N, BN)
    in_group = GM * num_n
    first_m = (pid // in_group) * GM
    size_m = min(num_m - first_m, GM)
    pid_m = first_m + ((pid % in_group) % size_m)
    pid_n = (pid % in_group) // size_m
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_am[:, None] * sam + offs_k[None, :] * sak)
    b_ptrs = b_ptr + (offs_k[:, None] * sbk + offs_bn[None, :] * sbn)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + scm * offs_cm[:, None] + scn * offs_cn[None, :]
    mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def grouped(a, b, case):
    c = output_of(a, case.M, case.N)
    grid = lambda META: (  # noqa: E731
        triton.cdiv(META["M"], META["BM"]) * triton.cdiv(META["N"], META["BN"]),
    )
    launch(grouped_kernel, grid, case, a, b, c, GM=case.GROUP_M, num_warps=4)
    return (c,)


# -- 3. swizzled two-dimensional grid through helpers --------------------------------------------
@triton.jit
def step(ptrs, mask, amount):
    """A nested helper that loads and advances."""
    return tl.load(ptrs, mask=mask, other=0), ptrs + amount


@triton.jit
def swizzled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.swizzle2d(
        tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), GM
    )
    tl.assume(pid_m >= 0)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * sam + rk[None, :] * sak
    b_ptrs = b_ptr + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), ACC)
    remaining = K
    while remaining > 0:
        a, a_ptrs = step(a_ptrs, (rm[:, None] < M) & (rk[None, :] < remaining), BK * sak)
        b, b_ptrs = step(b_ptrs, (rk[:, None] < remaining) & (rn[None, :] < N), BK * sbk)
        acc = tl.dot(a, b, acc=acc, input_precision="ieee", out_dtype=ACC)
        remaining -= BK
    tl.store(
        c_ptr + rm[:, None] * scm + rn[None, :] * scn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rm < M)[:, None] & (rn < N)[None, :],
    )


def swizzled(a, b, case):
    c = output_of(a, case.N, case.M).T  # a transposed result
    launch(swizzled_kernel, tiles_of(case), case, a, b, c, GM=case.GROUP_M)
    return (c,)


# -- 4. persistent programs ----------------------------------------------------------------------
@triton.jit
def tile_of(tile, in_group, num_m, GM: tl.constexpr):
    first_m = (tile // in_group) * GM
    size_m = tl.minimum(num_m - first_m, GM)
    return first_m + (tile % size_m), (tile % in_group) // size_m


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, NS: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    num_m = tl.cdiv(M, BM)
    num_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    offs_k = tl.arange(0, BK)
    for tile in tl.range(start, num_m * num_n, NS, flatten=True):
        pid_m, pid_n = tile_of(tile, GM * num_n, num_m, GM)
        offs_m = pid_m * BM + tl.arange(0, BM)
        offs_m = tl.max_contiguous(tl.multiple_of(offs_m, BM), BM)
        offs_n = pid_n * BN + tl.arange(0, BN)
        am = tl.where(offs_m < M, offs_m, 0)
        bn = tl.where(offs_n < N, offs_n, 0)
        acc = tl.zeros((BM, BN), dtype=ACC)
        for ki in range(steps):
            k = ki * BK + offs_k
            a = tl.load(a_ptr + am[:, None] * sam + k[None, :] * sak, k[None, :] < K, 0.0)
            b = tl.load(b_ptr + k[:, None] * sbk + bn[None, :] * sbn, k[:, None] < K, 0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACC)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        c_ptrs = c_ptr + offs_m[:, None] * scm + offs_n[None, :] * scn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def persistent(a, b, case):
    c = output_of(a, case.M, case.N)
    how = {"GM": case.GROUP_M, "NS": case.PARTS}
    launch(persistent_kernel, (case.PARTS,), case, a, b, c, **how)
    return (c,)


# -- 5. split-K with atomics ---------------------------------------------------------------------
@triton.jit
def splitk_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    part = tl.program_id(1)
    num_n = tl.cdiv(N, BN)
    rm = pid // num_n * BM + tl.arange(0, BM)
    rn = pid % num_n * BN + tl.arange(0, BN)
    rk = part * BK + tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * sam + rk[None, :] * sak
    b_ptrs = b_ptr + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, tl.cdiv(K, BK * SK)):
        rest = K - k * (BK * SK)
        a = tl.load(a_ptrs, mask=(rk[None, :] < rest) & (rm[:, None] < M), other=0.0)
        b = tl.load(b_ptrs, mask=(rk[:, None] < rest) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BK * SK * sak
        b_ptrs += BK * SK * sbk
    c_ptrs = c_ptr + rm[:, None] * scm + rn[None, :] * scn
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    if SK == 1:
        tl.store(c_ptrs, acc, mask=mask)
    else:
        tl.atomic_add(c_ptrs, acc, mask=mask, sem="relaxed")


def splitk(a, b, case):
    c = sums_of(a, case.M, case.N, make=torch.zeros)
    launch(splitk_kernel, (prod(tiles_of(case)), case.PARTS), case, a, b, c, SK=case.PARTS)
    return (c,)


# -- 6. a batch along the third axis of the grid ---------------------------------------------------
@triton.jit
def batched_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sab, sam, sak, sbb, sbk, sbn, scb, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    a_ptr += batch * sab
    b_ptr += batch * sbb
    c_ptr += batch * scb
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a_mask = (rm[:, None] < M) & (rk[None, :] < K)
        b_mask = (rk[:, None] < K) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * sam + rk[None, :] * sak, mask=a_mask, other=0)
        b = tl.load(b_ptr + rk[:, None] * sbk + rn[None, :] * sbn, mask=b_mask, other=0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACC)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c_ptr + rm[:, None] * scm + rn[None, :] * scn, acc.to(c_ptr.dtype.element_ty), mask)


def batched(a, b, case):
    c = output_of(a, len(a), case.M, case.N)
    launch(batched_kernel, (*tiles_of(case), len(a)), case, a, b, c)
    return (c,)


# -- 7. partial sums added under a lock ------------------------------------------------------------
@triton.jit
def locked_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, lock_ptr, count_ptr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    part = tl.program_id(1)
    num_n = tl.cdiv(N, BN)
    rm = pid // num_n * BM + tl.arange(0, BM)
    rn = pid % num_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(part * BK, K, BK * SK):
        rk = k + tl.arange(0, BK)
        a_mask = (rm[:, None] < M) & (rk[None, :] < K)
        b_mask = (rk[:, None] < K) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * sam + rk[None, :] * sak, mask=a_mask, other=0)
        b = tl.load(b_ptr + rk[:, None] * sbk + rn[None, :] * sbn, mask=b_mask, other=0)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=ACC)
    c_ptrs = c_ptr + rm[:, None] * scm + rn[None, :] * scn
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    while tl.atomic_cas(lock_ptr + pid, 0, 1) == 1:
        pass
    count = tl.load(count_ptr + pid)
    if count == 0:
        tl.store(c_ptrs, acc, mask=mask)
    else:
        tl.store(c_ptrs, acc + tl.load(c_ptrs, mask=mask, other=0), mask=mask)
    tl.store(count_ptr + pid, count + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + pid, 0)


def locked(a, b, case):
    c = sums_of(a, case.M, case.N)
    tiles = prod(tiles_of(case))
    locks = torch.zeros(2 * tiles + 1, device=a.device, dtype=torch.int32)
    how = {"lock_ptr": locks, "count_ptr": locks[tiles:], "SK": case.PARTS}
    launch(locked_kernel, (tiles, case.PARTS), case, a, b, c, **how)
    return c, locks


# -- 8. partial sums in a workspace, reduced by a second launch ------------------------------------
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sam, sak, sbk, sbn, swp, swm, swn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(2)
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    slice_of_k = tl.cdiv(tl.cdiv(K, SK), BK) * BK
    first = part * slice_of_k
    last = min(first + slice_of_k, K)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for k in range(first, last, BK):
        rk = k + tl.arange(0, BK)
        a_mask = (rm[:, None] < M) & (rk[None, :] < last)
        b_mask = (rk[:, None] < last) & (rn[None, :] < N)
        a = tl.load(a_ptr + rm[:, None] * sam + rk[None, :] * sak, mask=a_mask, other=0)
        b = tl.load(b_ptr + rk[:, None] * sbk + rn[None, :] * sbn, mask=b_mask, other=0)
        acc += tl.dot(a, b, input_precision="ieee")
    # no mask: the workspace has whole tiles
    tl.store(w_ptr + part * swp + rm[:, None] * swm + rn[None, :] * swn, acc)


@triton.jit
def reduce_kernel(w_ptr, c_ptr, M, N, swp, swm, SK: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * B + tl.arange(0, B)
    mask = column < N
    total = tl.load(w_ptr + row * swm + column, mask=mask)
    for part in tl.static_range(1, SK):
        total += tl.load(w_ptr + part * swp + row * swm + column, mask=mask)
    tl.store(c_ptr + row * N + column, total.to(c_ptr.dtype.element_ty), mask=mask)


def workspace(a, b, case):
    M, N, parts = case.M, case.N, case.PARTS
    tiles_m, tiles_n = tiles_of(case)
    c = output_of(a, M, N)
    w = sums_of(a, parts, tiles_m * case.BLOCK_M, tiles_n * case.BLOCK_N)
    launch(partial_kernel, (tiles_m, tiles_n, parts), case, a, b, w, SK=parts)
    reduce_kernel[M, triton.cdiv(N, 32)](w, c, M, N, w.stride(0), w.stride(1), parts, 32)
    return c, w


WRAPPERS = {
    f.__name__: f
    for f in (masked, grouped, swizzled, persistent, splitk, batched, locked, workspace)
}


def multiply(case, a, b):
    """Return the result of the wrapper of a case: c, then its workspaces."""
    return WRAPPERS[case.kernel](a, b, case)
