"""GEMM kernels in the styles of the field, for both witnesses: simulator and interpreter."""

from __future__ import annotations

import triton
import triton.language as tl
from simulator_cases import launch, output_of, tiles_of
from simulator_kernels_split import batched, locked, splitk, workspace


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


WRAPPERS = {
    f.__name__: f
    for f in (masked, grouped, swizzled, persistent, splitk, batched, locked, workspace)
}


def multiply(case, a, b):
    """What the wrapper of a case returns: c, then its workspaces."""
    return WRAPPERS[case.kernel](a, b, case)
