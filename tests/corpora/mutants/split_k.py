"""Classes A, B, G, I and O: kernels that share out K and put the parts together wrongly."""

import torch
import triton
import triton.language as tl

SPLIT_K = 3


@triton.jit
def _tile(
    a_ptr, b_ptr, offs_m, offs_n, M, N, K, begin, end, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The product over k in begin..end-1, whatever begin and end are."""
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(begin, end, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < end), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < end) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    return acc


@triton.jit
def atomic_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    SLICE, SPLIT_K: tl.constexpr, CUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2) * SLICE
    end = tl.minimum(begin + SLICE, K)
    if not CUT:
        end = tl.minimum(begin + tl.cdiv(SLICE, BLOCK) * BLOCK, K)
    acc = _tile(
        a_ptr, b_ptr, offs_m, offs_n, M, N, K, begin, end,
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK,
    )  # fmt: skip
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.atomic_add(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask, sem="relaxed")


def _atomic(a, b, c, slice_k, cut=True):
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), SPLIT_K)
    atomic_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), slice_k,
        SPLIT_K=SPLIT_K, CUT=cut, BLOCK=16,
    )  # fmt: skip
    return c.to(a.dtype)


def _whole_tiles(K):
    return triton.cdiv(triton.cdiv(K, SPLIT_K), 16) * 16


def _zeros(a, b, dtype=torch.float32):
    return torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=dtype)


def slices_overlap(a, b):
    """A slice is no multiple of the tile, and its last tile runs into the next slice."""
    return _atomic(a, b, _zeros(a, b), triton.cdiv(a.shape[1], SPLIT_K), cut=False)


def slices_lose_the_remainder(a, b):
    return _atomic(a, b, _zeros(a, b), a.shape[1] // SPLIT_K)


def atomics_onto_empty(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    return _atomic(a, b, c, _whole_tiles(a.shape[1]))


def half_precision_atomics(a, b):
    return _atomic(a, b, _zeros(a, b, a.dtype), _whole_tiles(a.shape[1]))


@triton.jit
def partial_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, SLICE,
    RACE: tl.constexpr, EXIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2).to(tl.int64)
    begin = tl.program_id(2) * SLICE
    if EXIT and begin >= K:
        return
    acc = _tile(
        a_ptr, b_ptr, offs_m, offs_n, M, N, K, begin, tl.minimum(begin + SLICE, K),
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK,
    )  # fmt: skip
    if RACE:
        part = part // 2
    w_ptrs = w_ptr + part * M * N + offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(w_ptrs, acc.to(w_ptr.dtype.element_ty), mask=mask)


@triton.jit
def reduce_kernel(w_ptr, c_ptr, size, parts, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(parts):
        acc += tl.load(w_ptr + part * size + offs, mask=offs < size, other=0.0)
    tl.store(c_ptr + offs, acc.to(c_ptr.dtype.element_ty), mask=offs < size)


def _with_workspace(a, b, dtype=torch.float32, race=False, leave=False, parts=SPLIT_K):
    (M, K), N = a.shape, b.shape[1]
    w = torch.empty((SPLIT_K, M, N), device=a.device, dtype=dtype)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), SPLIT_K)
    partial_kernel[grid](
        a, b, w, M, N, K, *a.stride(), *b.stride(), _whole_tiles(K),
        RACE=race, EXIT=leave, BLOCK=16,
    )  # fmt: skip
    reduce_kernel[(triton.cdiv(M * N, 64),)](w, c, M * N, parts, BLOCK=64)
    return c


def half_precision_partials(a, b):
    return _with_workspace(a, b, dtype=a.dtype)


def empty_slices_leave_their_partials(a, b):
    return _with_workspace(a, b, leave=True)


def last_partial_not_added(a, b):
    return _with_workspace(a, b, parts=SPLIT_K - 1)


def two_slices_store_to_one_partial(a, b):
    return _with_workspace(a, b, race=True, parts=2)
