"""Wrong kernels whose addresses a prover that simplifies too much would prove."""

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import plain


@triton.jit
def copy_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, offs < size), offs < size)


def _copy(x, y):
    copy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


def copied_through(a, b):
    """Right: as if the elements were a single row."""
    c = plain(a, b)
    return _copy(c, torch.empty_like(c))


def copied_through_padded_rows(a, b):
    c = plain(a, b)
    padded = torch.empty((c.shape[0], c.shape[1] + 1), dtype=c.dtype, device=c.device)
    return _copy(c, padded[:, :-1])


def copied_but_for_the_last(a, b):
    c = plain(a, b)
    result = torch.empty_like(c)
    copy_kernel[(triton.cdiv(c.numel(), 64),)](c, result, c.numel() - 1, BLOCK=64)
    return result


@triton.jit
def widened_kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    """The count of elements is doubled in 32 bits, and halved in 64."""
    size = tl.cast(M * N * 2, tl.int64) // 2
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, offs < size), offs < size)


def widened_too_late(a, b):
    c = plain(a, b)
    result = torch.empty_like(c)
    widened_kernel[(triton.cdiv(c.numel(), 64),)](c, result, *c.shape, BLOCK=64)
    return result


def nothing_stored_without_k(a, b):
    if a.shape[1] == 0:
        return a.new_empty((a.shape[0], b.shape[1]))
    return plain(a, b)


@triton.jit
def rows_kernel(a_ptr, s_ptr, M, step, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs = offs_m[:, None] * step + offs_k[None, :]
    mask = (offs_m[:, None] < M - 1) & (offs_k[None, :] < step)
    tl.store(s_ptr + offs, tl.load(a_ptr + offs, mask), mask)


def padding_read(a, b):
    """Up to the next row: what lies between them is not the operand's."""
    M, step = a.shape[0], a.stride(0)
    rows_kernel[(triton.cdiv(M, 16), triton.cdiv(step, 16))](
        a, a.new_empty((M, step)), M, step, BLOCK=16
    )
    return plain(a, b)


@triton.jit
def described_kernel(x_ptr, M, N, pitch, COLUMN: tl.constexpr, STORES: tl.constexpr):
    desc = tl.make_tensor_descriptor(x_ptr, (M, N), (pitch, 1), (16, 16))
    block = desc.load([tl.program_id(0) * 16, COLUMN])
    if STORES:
        desc.store([tl.program_id(0) * 16, COLUMN], block)


def _describe(x, column, stores):
    (rows, pitch), (M, N) = (x.stride(1), x.stride(0)), x.shape
    if rows == 1 and pitch % 8 == 0 and x.data_ptr() % 16 == 0:
        triton.set_allocator(lambda n, *_: torch.empty(n, device="cuda", dtype=torch.int8))
        described_kernel[(triton.cdiv(M, 16),)](x, M, N, pitch, column, stores)


def read_from_the_second_column(a, b):
    """Through a descriptor, whose blocks begin at multiples of 16 bytes."""
    _describe(a, 1, False)
    return plain(a, b)


def stored_past_rows(a, b):
    """Through a descriptor, which fills the last 16 bytes of a row."""
    _describe(a, 0, True)
    return plain(a, b)
