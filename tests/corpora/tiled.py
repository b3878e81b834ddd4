"""Shared by kernels of both corpora: one launch over tiles, and the parts of a right product."""

from functools import partial

import torch
import triton
import triton.language as tl


def launch(
    kernel, a, b, *more, c=None, dtype=None, sa=None, sb=None, sc=None, grid=None, depth=1, **meta
):
    """c = a b: one program a tile, times the batch or `depth`, or on `grid`.

    The kernel takes a, b, c, M, N, K, the strides, then `more`. Strides are tuples where it names
    them sa, sb, sc, else one argument each; those given here are passed in place of the true ones.
    A kernel with one BLOCK gets 16 unless `meta` has another.
    """
    *batch, M, K = a.shape
    N = b.shape[-1]
    if c is None:
        c = torch.empty((*batch, M, N), device=a.device, dtype=dtype or a.dtype)
    strides = sa or a.stride(), sb or b.stride(), sc or c.stride()
    if "sa" not in kernel.arg_names:
        strides = sum(strides, ())
    if "BLOCK" in kernel.arg_names:
        meta = {"BLOCK": 16} | meta

    def tiles(args):
        rows, columns = (args.get(name) or args["BLOCK"] for name in ("BLOCK_M", "BLOCK_N"))
        return triton.cdiv(M, rows), triton.cdiv(N, columns), *(batch or [depth])

    kernel[grid or tiles](a, b, c, M, N, K, *strides, *more, **meta)
    return c


@triton.jit
def product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK_K: tl.constexpr):
    """A tile's sum over k in begin..end-1, whatever begin and end are."""
    acc = tl.zeros((offs_m.shape[0], offs_n.shape[0]), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < end)
        b_mask = (offs_k[:, None] < end) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def store(c_ptr, acc, offs_m, offs_n, M, N, sc):
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def compute(
    a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c; nothing is read or stored for a tile that lies outside of c."""
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK_K)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Right for the strides that it is given."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(K, 0, -BLOCK_K):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < k), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < k) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)
    store(c_ptr, acc, offs_m, offs_n, M, N, (stride_cm, stride_cn))


plain = partial(launch, plain_kernel, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16)


@triton.jit
def column_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    PRODUCTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A matrix times a column; the products are made, and summed, in the format PRODUCTS."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + offs_k * sb[0], mask=offs_k < K, other=0.0)
        acc += tl.sum(a.to(PRODUCTS) * b.to(PRODUCTS)[None, :], axis=1)
    tl.store(c_ptr + offs_m * sc[0], acc.to(c_ptr.dtype.element_ty), mask=offs_m < M)


def launch_column(a, b, products=tl.float32):
    """c = a b, by another kernel where b is one column."""
    if b.shape[1] != 1:
        return plain(a, b)
    grid = (triton.cdiv(a.shape[0], 16),)
    return launch(column_kernel, a, b, grid=grid, PRODUCTS=products, BLOCK_M=16, BLOCK_K=32)


@triton.jit
def window_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, PAD_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Block pointers, checked along both axes; PAD_B is what the window of b is padded with."""
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a_block = tl.make_block_ptr(a_ptr, (M, K), sa, (row, 0), (BLOCK, BLOCK), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), sb, (0, column), (BLOCK, BLOCK), (1, 0))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, K, BLOCK):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option=PAD_B)
        acc = tl.dot(a, b, acc)
        a_block = tl.advance(a_block, (0, BLOCK))
        b_block = tl.advance(b_block, (BLOCK, 0))
    c_block = tl.make_block_ptr(c_ptr, (M, N), sc, (row, column), (BLOCK, BLOCK), (1, 0))
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def batched_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BLOCK: tl.constexpr, A_BATCH: tl.constexpr = tl.int64,
):  # fmt: skip
    """A third axis of the grid walks the batch; A_BATCH is the type that a's offset is made in."""
    batch = tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a_ptr += tl.program_id(2).to(A_BATCH) * sa[0]
    b_ptr += batch * sb[0]
    c_ptr += batch * sc[0]
    steps_a, steps_b = (sa[1], sa[2]), (sb[1], sb[2])
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, steps_a, steps_b, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, (sc[1], sc[2]))


batched = partial(launch, batched_kernel)
