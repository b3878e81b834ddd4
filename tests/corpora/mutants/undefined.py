"""Class B: kernels whose result depends on lanes that nothing defined, or defined wrongly."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store, window_kernel


@triton.jit
def lanes_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    FLAW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A 1-D grid, row-major tiles, strides as tuples."""
    pid = tl.program_id(0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    offs_m = (pid // num_pid_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % num_pid_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
        b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        if FLAW == "no_other_a":
            a = tl.load(a_ptrs, mask=a_mask)
        elif FLAW == "other_is_one":
            a = tl.load(a_ptrs, mask=a_mask, other=1.0)
        else:
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        if FLAW == "no_other_b":
            b = tl.load(b_ptrs, mask=b_mask)
        elif FLAW == "other_is_one":
            b = tl.load(b_ptrs, mask=b_mask, other=1.0)
        elif FLAW == "other_is_infinite":
            b = tl.load(b_ptrs, mask=b_mask, other=float("-inf"))
        else:
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc += tl.dot(a, b)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def right(a, b, flaw=""):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 32)
    return launch(lanes_kernel, a, b, grid=(tiles,), FLAW=flaw, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16)


no_other_on_a = partial(right, flaw="no_other_a")
no_other_on_b = partial(right, flaw="no_other_b")
other_is_one = partial(right, flaw="other_is_one")
other_is_minus_infinity = partial(right, flaw="other_is_infinite")
# the window of b is checked but not padded
window_not_padded = partial(launch, window_kernel, PAD_B="")


@triton.jit
def bias_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, bias_ptr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def bias_never_written(a, b):
    """No bias was given, so its buffer should hold zeros; it comes from torch.empty."""
    bias = torch.empty(b.shape[1], device=a.device, dtype=torch.float32)
    return launch(bias_kernel, a, b, bias)
