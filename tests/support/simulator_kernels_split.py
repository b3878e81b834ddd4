"""GEMM kernels, for both witnesses, whose programs share a sum, and a batched one."""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from simulator_cases import launch, output_of, sums_of, tiles_of


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
