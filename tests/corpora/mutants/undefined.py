"""Class B: kernels whose result depends on lanes that nothing defined, or defined wrongly."""

import torch
import triton
import triton.language as tl


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


def _launch(a, b, flaw):
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    lanes_kernel[grid](
        a, b, c, M, N, K, a.stride(), b.stride(), c.stride(),
        FLAW=flaw, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16,
    )  # fmt: skip
    return c


def no_other_on_a(a, b):
    return _launch(a, b, "no_other_a")


def no_other_on_b(a, b):
    return _launch(a, b, "no_other_b")


def other_is_one(a, b):
    return _launch(a, b, "other_is_one")


def other_is_minus_infinity(a, b):
    return _launch(a, b, "other_is_infinite")


@triton.jit
def window_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """Block pointers; the window of b is checked but not padded."""
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a_block = tl.make_block_ptr(a_ptr, (M, K), sa, (row, 0), (BLOCK, BLOCK), (1, 0))
    b_block = tl.make_block_ptr(b_ptr, (K, N), sb, (0, column), (BLOCK, BLOCK), (1, 0))
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, K, BLOCK):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1))
        acc = tl.dot(a, b, acc)
        a_block = tl.advance(a_block, (0, BLOCK))
        b_block = tl.advance(b_block, (BLOCK, 0))
    c_block = tl.make_block_ptr(c_ptr, (M, N), sc, (row, column), (BLOCK, BLOCK), (1, 0))
    tl.store(c_block, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


def window_not_padded(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    window_kernel[grid](a, b, c, M, N, K, a.stride(), b.stride(), c.stride(), BLOCK=16)
    return c


@triton.jit
def bias_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def bias_never_written(a, b):
    """No bias was asked for, so its buffer should hold zeros; it comes from torch.empty."""
    (M, K), N = a.shape, b.shape[1]
    bias = torch.empty(N, device=a.device, dtype=torch.float32)
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    bias_kernel[grid](a, b, c, bias, M, N, K, a.stride(), b.stride(), c.stride(), BLOCK=16)
    return c
