"""Class F: kernels that give the compiler false hints."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch


@triton.jit
def hinting_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if HINT == "unit_stride":
        tl.assume(stride_bn == 1)
    if HINT == "whole_k":
        tl.assume(K % BLOCK == 0)
    if HINT == "many_tiles":
        tl.assume(K > BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        rows = offs_m[:, None] * stride_am
        if HINT == "stride":
            rows = tl.multiple_of(rows, (16, 1))
        columns = offs_n[None, :] * stride_bn
        if HINT == "offsets":
            columns = tl.multiple_of(columns, (1, 16))
        if HINT == "constant":
            columns = tl.max_constancy(columns, (1, 4))
        a_ptrs = a_ptr + rows + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + columns
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, hinting_kernel, HINT="")
stride_said_to_be_a_multiple_of_16 = partial(right, HINT="stride")
column_stride_assumed_to_be_1 = partial(right, HINT="unit_stride")
k_assumed_to_be_whole_tiles = partial(right, HINT="whole_k")
k_assumed_to_be_many_tiles = partial(right, HINT="many_tiles")
offsets_said_to_be_multiples = partial(right, HINT="offsets")
offsets_said_to_be_constant = partial(right, HINT="constant")


# sizes of 1 stay runtime values: Triton itself refuses a constant stride that is not aligned
@triton.jit(do_not_specialize=("M", "N", "K"))
def describing_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    """Tensor descriptors made by the kernel, for rows that need not be 16-byte aligned."""
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a_desc = tl.make_tensor_descriptor(a_ptr, (M, K), (K, 1), (BLOCK, BLOCK))
    b_desc = tl.make_tensor_descriptor(b_ptr, (K, N), (N, 1), (BLOCK, BLOCK))
    c_desc = tl.make_tensor_descriptor(c_ptr, (M, N), (N, 1), (BLOCK, BLOCK))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))


def descriptor_of_unaligned_rows(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    if M and N and K:
        triton.set_allocator(lambda n, *_: torch.empty(n, device="cuda", dtype=torch.int8))
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        describing_kernel[grid](a, b, c, M, N, K, BLOCK=16)
    else:
        c.zero_()
    return c
