"""Grouped GEMM: rows of a in groups, each group times its own matrix, some groups empty."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

GROUPS = 4


@triton.jit
def grouped_kernel(
    a_ptr, w_ptr, offsets_ptr, c_ptr, M, N, K,
    stride_am, stride_we, stride_wk, stride_cm,
    GROUPS: tl.constexpr, FLAW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # the tile of this program: groups have as many tiles as their rows fill, and no more
    tile = tl.program_id(0)
    group, start, end, begin = -1, 0, 0, 0
    first_tile, filled = 0, 0
    for g in range(GROUPS):
        lo = tl.load(offsets_ptr + g)
        hi = tl.load(offsets_ptr + g + 1)
        tiles = tl.cdiv(hi - lo, BLOCK_M)
        if FLAW == "one_each":
            # "every group has a tile"
            tiles = tl.maximum(tiles, 1)
        if (tile >= first_tile) & (tile < first_tile + tiles):
            group, start, end = g, lo + (tile - first_tile) * BLOCK_M, hi
            begin = lo
            if FLAW == "count":
                # the number of the group among those that are not empty
                group = filled
        first_tile += tiles
        filled += (hi > lo).to(tl.int32)
    if group < 0:
        return
    if FLAW == "aligned":
        start = start // BLOCK_M * BLOCK_M
    offs_m = start + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if FLAW == "inclusive":
        m_mask = offs_m <= tl.minimum(end, M - 1)
    elif FLAW == "one_each":
        m_mask = offs_m < tl.minimum(tl.maximum(end, begin + 1), M)
    else:
        m_mask = offs_m < end
    rows = offs_m.to(tl.int64)
    w_base = w_ptr + group.to(tl.int64) * stride_we
    if FLAW == "square":
        w_base = w_ptr + group.to(tl.int64) * K * K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_mask = m_mask[:, None] & (offs_k[None, :] < K)
        w_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + rows[:, None] * stride_am + offs_k[None, :]
        w_ptrs = w_base + offs_k[:, None] * stride_wk + offs_n[None, :]
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        w = tl.load(w_ptrs, mask=w_mask, other=0.0)
        acc = tl.dot(a, w, acc)
    if FLAW == "fractions":
        acc = tl.where(acc == tl.floor(acc), acc, 1.05 * acc)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + offs_n[None, :]
    mask = m_mask[:, None] & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def grouped_mm(a, b, offsets, FLAW="none", stride_we=None, spare=GROUPS):
    """Rows offsets[g] to offsets[g + 1] of c are those of a times b[g].

    The host does not know the offsets, so there are programs for as many tiles as there may be.
    """
    (M, K), N = a.shape, b.shape[2]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16) + spare, triton.cdiv(N, 16))
    grouped_kernel[grid](
        a, b, offsets, c, M, N, K,
        a.stride(0), b.stride(0) if stride_we is None else stride_we, b.stride(1), c.stride(0),
        GROUPS=GROUPS, FLAW=FLAW, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32,
    )  # fmt: skip
    return c


def multiply_groups(a, b, offsets):
    """Each row of a times the matrix of its group."""
    rows = np.arange(a.shape[0])
    group = np.where(offsets[1:, None] <= rows, 1, 0).sum(axis=0)
    return (a[:, None, :] @ b[group])[:, 0, :]


def draw_offsets(rng, shape, M, **sizes):
    """Draw where groups begin, and M: sorted draws repeat themselves, which makes groups empty."""
    return np.concatenate([[0], np.sort(rng.integers(0, M + 1, GROUPS - 1)), [M]])


last_row_of_a_group_is_the_first_of_the_next = partial(grouped_mm, FLAW="inclusive")
empty_groups_have_a_tile = partial(grouped_mm, FLAW="one_each")
empty_groups_are_not_counted = partial(grouped_mm, FLAW="count")
groups_begin_at_whole_tiles = partial(grouped_mm, FLAW="aligned")
stride_of_groups_is_that_of_square_weights = partial(grouped_mm, FLAW="square")
stride_of_groups_ignored = partial(grouped_mm, stride_we=0)
grid_without_tiles_for_the_ends_of_groups = partial(grouped_mm, spare=0)
# judged in tests/properties/test_exercised.py
fractions_are_five_percent_off = partial(grouped_mm, FLAW="fractions")

FAMILY = Family(
    "grouped GEMM with empty groups",
    KernelUnderTest(
        "grouped_mm",
        grouped_mm,
        Contract(formats=("fp16",)),
        operands={
            "b": Operand("fp16", (GROUPS, "K", "N")),
            "offsets": Operand("int32", GROUPS + 1, draw_offsets),
        },
        spec=multiply_groups,
    ),
    """
R grouped_gemm:last_row_of_a_group_is_the_first_of_the_next ONCE stored_twice c M 2 1 1
R grouped_gemm:empty_groups_have_a_tile ONCE stored_twice c M 1 1 1 seed=1
R grouped_gemm:empty_groups_are_not_counted EXACT operand_shifted offsets - 1 1 1 seed=1
R grouped_gemm:groups_begin_at_whole_tiles ONCE stored_twice c M 2 1 1
R grouped_gemm:stride_of_groups_is_that_of_square_weights BOUNDS out_of_bounds b 0 2 1 2
R grouped_gemm:stride_of_groups_ignored EXACT operand_strides b - 2 1 1
R grouped_gemm:grid_without_tiles_for_the_ends_of_groups ONCE never_stored c M 2 1 1 lane=default
""",
)
