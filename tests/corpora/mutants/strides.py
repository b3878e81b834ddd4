"""Class E: kernels and wrappers that take an element's place for another's."""

import torch
import triton
import triton.language as tl


@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Right for the strides that it is told."""
    offs_m = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
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
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _launch(a, b, a_strides=None, b_strides=None, c_strides=None):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(N, 32), triton.cdiv(M, 16))
    plain_kernel[grid](
        a, b, c, M, N, K,
        *(a_strides or a.stride()), *(b_strides or b.stride()), *(c_strides or c.stride()),
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=16,
    )  # fmt: skip
    return c


def strides_of_a_swapped(a, b):
    return _launch(a, b, a_strides=(a.stride(1), a.stride(0)))


def strides_of_b_swapped(a, b):
    return _launch(a, b, b_strides=(b.stride(1), b.stride(0)))


def strides_of_c_swapped(a, b):
    return _launch(a, b, c_strides=(1, b.shape[1]))


def a_assumed_contiguous(a, b):
    return _launch(a, b, a_strides=(a.shape[1], 1))


def b_assumed_contiguous(a, b):
    return _launch(a, b, b_strides=(b.shape[1], 1))


def unit_column_stride_assumed(a, b):
    """Right for rows that are padded, wrong for every other view."""
    return _launch(a, b, b_strides=(b.stride(0), 1))


def row_length_of_c_is_k(a, b):
    return _launch(a, b, c_strides=(a.shape[1], 1))


def storage_offset_dropped(a, b):
    return _launch(torch.as_strided(a, a.shape, a.stride(), 0), b)


def stride_zero_replaced(a, b):
    """`or` takes the stride 0 of an expanded operand for a missing one."""
    return _launch(a, b, a_strides=(a.stride(0) or a.shape[1], a.stride(1) or 1))


def weight_taken_for_its_transpose(a, b):
    """The strides that fit a weight of shape (N, K)."""
    return _launch(a, b, b_strides=(1, b.shape[0]) if b.is_contiguous() else None)


@triton.jit
def advancing_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The pointers of b advance by the stride along N."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK * tl.cast(stride_ak, tl.int64)
        b_ptrs += BLOCK * tl.cast(stride_bn, tl.int64)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def b_advances_along_n(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    advancing_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), BLOCK=16)
    return c


@triton.jit
def batched_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BATCH_OF_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A third axis of the grid walks the batch."""
    batch = tl.program_id(2).to(tl.int64)
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a_ptr += batch * sa[0]
    if BATCH_OF_B:
        b_ptr += batch * sb[0]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[1] + offs_k[None, :] * sa[2], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[1] + offs_n[None, :] * sb[2], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + batch * sc[0] + offs_m[:, None] * sc[1] + offs_n[None, :] * sc[2]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _launch_batched(a, b, a_strides=None, batch_of_b=True):
    (batch, M, K), N = a.shape, b.shape[2]
    c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), batch)
    batched_kernel[grid](
        a, b, c, M, N, K, a_strides or a.stride(), b.stride(), c.stride(),
        BATCH_OF_B=batch_of_b, BLOCK=16,
    )  # fmt: skip
    return c


def batch_stride_of_b_forgotten(a, b):
    return _launch_batched(a, b, batch_of_b=False)


def batch_stride_of_a_assumed(a, b):
    return _launch_batched(a, b, (a.shape[1] * a.shape[2], a.stride(1), a.stride(2)))
