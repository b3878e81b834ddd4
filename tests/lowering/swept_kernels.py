"""Small kernels whose arguments Triton specialises, or must not specialise."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["K"])
def narrow_kernel(a_ptr, b_ptr, c_ptr, K, stride_am, N: tl.constexpr):
    m, n, k = tl.arange(0, 16), tl.arange(0, N), tl.arange(0, 16)
    acc = tl.zeros((16, N), tl.float32)
    for i in range(0, K, 16):
        a = tl.load(a_ptr + m[:, None] * stride_am + i + k[None, :])
        b = tl.load(b_ptr + (i + k)[:, None] * N + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@triton.jit
def wide_kernel(a_ptr, c_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(c_ptr + i, tl.load(a_ptr + i))


def narrow(a, b):
    """Take rows of any stride, but no other order."""
    assert a.stride(1) == 1, "a must have rows"
    b = b.contiguous()
    c = torch.empty(a.shape[0], b.shape[1], device=a.device)
    narrow_kernel[(1,)](a, b, c, a.shape[1], a.stride(0), 32)
    return c


def chooses(a, b):
    """Launch a kernel for aligned operands, and copy the others."""
    c = torch.empty(a.shape[0], b.shape[1], device=a.device)
    if a.data_ptr() % 16 or not a.is_contiguous():
        wide_kernel[(1,)](a, c, 64)
        return c
    narrow_kernel[(1,)](a, b, c, a.shape[1], a.stride(0), 32)
    if a.shape[0] == 1:
        wide_kernel[(1,)](a, c, 64)
    return c
