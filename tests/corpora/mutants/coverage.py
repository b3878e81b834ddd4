"""Class C: kernels that store an element of c never, twice, or outside of it."""

import torch
import triton
import triton.language as tl


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


def _launch(a, b, flaw="", grid=None):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    strides = (*a.stride(), *b.stride(), *c.stride())
    covering_kernel[grid or (triton.cdiv(M, 16), triton.cdiv(N, 32))](
        a, b, c, M, N, K, *strides, FLAW=flaw, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16
    )
    return c


def no_row_mask_on_store(a, b):
    return _launch(a, b, "no_row_mask")


def no_column_mask_on_store(a, b):
    return _launch(a, b, "no_column_mask")


def store_mask_of_wrapped_rows(a, b):
    return _launch(a, b, "wrapped_mask")


def store_to_wrapped_columns(a, b):
    return _launch(a, b, "wrapped_index")


def last_row_not_stored(a, b):
    return _launch(a, b, "one_row_short")


def store_mask_of_the_other_axis(a, b):
    return _launch(a, b, "axes_swapped")


def store_mask_admits_one_more_column(a, b):
    return _launch(a, b, "one_column_far")


def grid_rounded_down(a, b):
    return _launch(a, b, grid=(a.shape[0] // 16, triton.cdiv(b.shape[1], 32)))


def grid_of_the_other_block(a, b):
    """The columns are counted in tiles of 64, the kernel walks tiles of 32."""
    return _launch(a, b, grid=(triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 64)))


def every_tile_launched_twice(a, b):
    return _launch(a, b, grid=(triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 32), 2))
