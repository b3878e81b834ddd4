"""Classes A, B, G, I and O: kernels that share out K and put the parts together wrongly."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product

SPLIT_K = 3


@triton.jit
def atomic_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, SLICE, CUT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2) * SLICE
    end = tl.minimum(begin + SLICE, K)
    if not CUT:
        end = tl.minimum(begin + tl.cdiv(SLICE, BLOCK) * BLOCK, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.atomic_add(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask, sem="relaxed")


def _whole_tiles(K):
    return triton.cdiv(triton.cdiv(K, SPLIT_K), 16) * 16


def launch_atomic(a, b, slice_k=None, make=torch.zeros, dtype=torch.float32, cut=True):
    """Slices of whole tiles unless `slice_k` is given, added onto what `make` makes."""
    c = make((a.shape[0], b.shape[1]), device=a.device, dtype=dtype)
    slice_k = _whole_tiles(a.shape[1]) if slice_k is None else slice_k
    return launch(atomic_kernel, a, b, slice_k, c=c, depth=SPLIT_K, CUT=cut).to(a.dtype)


def slices_overlap(a, b):
    """A slice is no multiple of the tile, and its last tile runs into the next slice."""
    return launch_atomic(a, b, triton.cdiv(a.shape[1], SPLIT_K), cut=False)


def slices_lose_the_remainder(a, b):
    return launch_atomic(a, b, a.shape[1] // SPLIT_K)


atomics_onto_empty = partial(launch_atomic, make=torch.empty)


def half_precision_atomics(a, b):
    return launch_atomic(a, b, dtype=a.dtype)


@triton.jit
def partial_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, SLICE,
    RACE: tl.constexpr, EXIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2).to(tl.int64)
    begin = tl.program_id(2) * SLICE
    if EXIT and begin >= K:
        return
    end = tl.minimum(begin + SLICE, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
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
        # of a c of 2**30 elements the last part begins at 2**31
        begin = part.to(tl.int64) * size
        acc += tl.load(w_ptr + begin + offs, mask=offs < size, other=0.0)
    tl.store(c_ptr + offs, acc.to(c_ptr.dtype.element_ty), mask=offs < size)


def launch_with_workspace(a, b, dtype=torch.float32, race=False, leave=False, parts=SPLIT_K):
    (M, K), N = a.shape, b.shape[1]
    w = torch.empty((SPLIT_K, M, N), device=a.device, dtype=dtype)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), SPLIT_K)
    partial_kernel[grid](
        a, b, w, M, N, K, a.stride(), b.stride(), _whole_tiles(K), RACE=race, EXIT=leave, BLOCK=16
    )
    reduce_kernel[(triton.cdiv(M * N, 64),)](w, c, M * N, parts, BLOCK=64)
    return c


def half_precision_partials(a, b):
    return launch_with_workspace(a, b, dtype=a.dtype)


empty_slices_leave_their_partials = partial(launch_with_workspace, leave=True)
last_partial_not_added = partial(launch_with_workspace, parts=SPLIT_K - 1)
two_slices_store_to_one_partial = partial(launch_with_workspace, race=True, parts=2)
