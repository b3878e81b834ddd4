"""Class C: kernels that store an element of c never, twice, or outside of it."""

from functools import partial

import triton
import triton.language as tl
from tests.corpora.tiled import launch


@triton.jit
def covering_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FLAW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Offsets wrap for the loads; only the store needs masks along M and N."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    wrapped_m, wrapped_n = offs_m % M, offs_n % N
    a_ptrs = a_ptr + wrapped_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + wrapped_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK_K * tl.cast(stride_bk, tl.int64)
    if FLAW == "wrapped_index":
        offs_n = wrapped_n
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if FLAW == "no_row_mask":
        mask = offs_n[None, :] < N
    if FLAW == "no_column_mask":
        mask = offs_m[:, None] < M
    if FLAW == "wrapped_mask":
        mask = (wrapped_m[:, None] < M) & (offs_n[None, :] < N)
    if FLAW == "one_row_short":
        mask = (offs_m[:, None] < M - 1) & (offs_n[None, :] < N)
    if FLAW == "axes_swapped":
        mask = (offs_m[:, None] < N) & (offs_n[None, :] < M)
    if FLAW == "one_column_far":
        mask = (offs_m[:, None] < M) & (offs_n[None, :] <= N)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, covering_kernel, FLAW="", BLOCK_M=16, BLOCK_N=32, BLOCK_K=16)
no_row_mask_on_store = partial(right, FLAW="no_row_mask")
no_column_mask_on_store = partial(right, FLAW="no_column_mask")
store_mask_of_wrapped_rows = partial(right, FLAW="wrapped_mask")
store_to_wrapped_columns = partial(right, FLAW="wrapped_index")
last_row_not_stored = partial(right, FLAW="one_row_short")
store_mask_of_the_other_axis = partial(right, FLAW="axes_swapped")
store_mask_admits_one_more_column = partial(right, FLAW="one_column_far")
every_tile_launched_twice = partial(right, depth=2)


def grid_rounded_down(a, b):
    return right(a, b, grid=(a.shape[0] // 16, triton.cdiv(b.shape[1], 32)))


def grid_of_the_other_block(a, b):
    """The columns are counted in tiles of 64, the kernel walks tiles of 32."""
    return right(a, b, grid=(triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 64)))
