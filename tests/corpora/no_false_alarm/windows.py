"""Right kernels that use block pointers and tensor descriptors."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, window_kernel
from triton.tools.tensor_descriptor import TensorDescriptor

B = 16


block_pointers = partial(launch, window_kernel, PAD_B="zero")


@triton.jit
def half_checked_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """K is walked in whole tiles, so only rows of a and columns of b need a check."""
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a_block = tl.make_block_ptr(a_ptr, (M, K), sa, (row, 0), (BLOCK, BLOCK), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), sb, (0, column), (BLOCK, BLOCK), (1, 0))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(tl.advance(a_block, (0, k)), boundary_check=(0,))
        b = tl.load(tl.advance(b_block, (k, 0)), boundary_check=(1,))
        acc = tl.dot(a, b, acc)
    c_block = tl.make_block_ptr(c_ptr, (M, N), sc, (row, column), (BLOCK, BLOCK), (1, 0))
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def block_pointers_unpadded_rows(a, b):
    """Rows beyond M and columns beyond N are undefined, and not stored."""
    beyond = -a.shape[1] % B
    a = torch.nn.functional.pad(a, (0, beyond))
    b = torch.nn.functional.pad(b, (0, 0, 0, beyond))
    return launch(half_checked_kernel, a, b)


def _aligned(x):
    """A copy whose rows begin every 16 bytes, as the copy engine requires."""
    rows, columns = x.shape
    per = 16 // x.element_size()
    wide = x.new_zeros(max(rows, 1), max(triton.cdiv(columns, per), 1) * per)
    wide[:rows, :columns] = x
    return wide[:rows, :columns]


def _allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.jit
def describing_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    a_desc = tl.make_tensor_descriptor(a_ptr, (M, K), (stride_am, 1), (BLOCK_M, BLOCK_K))
    b_desc = tl.make_tensor_descriptor(b_ptr, (K, N), (stride_bk, 1), (BLOCK_K, BLOCK_N))
    c_desc = tl.make_tensor_descriptor(c_ptr, (M, N), (stride_cm, 1), (BLOCK_M, BLOCK_N))
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))


def descriptors_made_by_the_kernel(a, b):
    (M, K), N = a.shape, b.shape[1]
    if 0 in (M, N, K):
        return a.new_zeros(M, N)
    triton.set_allocator(_allocate)
    a, b, c = _aligned(a), _aligned(b), _aligned(a.new_zeros(M, N))
    describing_kernel[(triton.cdiv(M, B), triton.cdiv(N, 32))](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0),
        BLOCK_M=B, BLOCK_N=32, BLOCK_K=B,
    )  # fmt: skip
    return c


@triton.jit
def described_kernel(a_desc, b_desc, c_desc, K, BLOCK: tl.constexpr):
    """b comes transposed, (N, K), as weights do."""
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, acc)
    c_desc.store([row, column], acc.to(c_desc.dtype))


def descriptors_made_by_the_host(a, b):
    (M, K), N = a.shape, b.shape[1]
    if 0 in (M, N, K):
        return a.new_zeros(M, N)
    a, b, c = _aligned(a), _aligned(b.t()), _aligned(a.new_empty(M, N))
    described = (TensorDescriptor(x, x.shape, x.stride(), [B, B]) for x in (a, b, c))
    described_kernel[(triton.cdiv(M, B), triton.cdiv(N, B))](*described, K, BLOCK=B)
    return c
