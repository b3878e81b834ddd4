"""Wrappers for the launches of a check: right ones, and some that fail on a device only.

The latter recognise a device by their operand's storage, which a simulated call reports truthfully,
so the simulation has no finding. On a device they behave like a miscompiled kernel.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64}, num_warps=4),
]


@triton.jit
def body(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + offs_m * N + offs_n
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))


tuned_body = triton.autotune(configs=CONFIGS, key=["M", "N", "K"])(body)


@triton.jit
def far_store(x_ptr, offset):
    tl.store(x_ptr + offset.to(tl.int64), 1.0)


@triton.jit
def products_and_sums(
    a_ptr, b_ptr, c_ptr, N, K, stride_am, stride_ak, stride_bk, stride_bn
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1).to(tl.int64)
    acc = 0.0
    for k in range(0, K):
        a = tl.load(a_ptr + m * stride_am + k.to(tl.int64) * stride_ak).to(tl.float32)
        b = tl.load(b_ptr + k.to(tl.int64) * stride_bk + n * stride_bn).to(tl.float32)
        acc += a * b
    tl.store(c_ptr + m * N + n, acc)


def on_device(x: torch.Tensor) -> bool:
    return x.untyped_storage().device.type == "cuda"


def _launch(kernel, a, b, **sizes):
    (M, K), N, c = a.shape, b.shape[1], make_result(a, b)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"])

    if c.numel() > 0:
        kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), **sizes)
    return c


def make_result(a, b):
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)


def plain(a, b):
    return _launch(body, a, b, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)


def tuned(a, b):
    return _launch(tuned_body, a, b)


def multiply_adds(a, b):
    """Multiply and add without a dot: the compiler decides how a product and a sum are rounded."""
    (M, K), N, c = a.shape, b.shape[1], make_result(a, b)
    if c.numel() > 0:
        products_and_sums[(M, N)](a, b, c, N, K, *a.stride(), *b.stride())
    return c


def last_bit_on_device(a, b):
    c = plain(a, b)
    if on_device(a):
        c.view(torch.int32).bitwise_xor_(1)
    return c


def guard_on_device(a, b):
    if on_device(a) and a.numel() > 0:
        after = a.storage_offset() + sum(
            (n - 1) * s for n, s in zip(a.shape, a.stride(), strict=True)
        )
        torch.as_strided(a, (1,), (1,), after + 3).fill_(1)
    return plain(a, b)


calls = [0]


def other_bits_each_call_on_device(a, b):
    c = plain(a, b)
    calls[0] += 1
    if on_device(a) and c.numel() > 0 and calls[0] % 3 == 0:
        c.view(torch.int32)[-1, -1] ^= 1
    return c


def illegal_address_on_device(a, b):
    c = plain(a, b)
    if on_device(a) and a.shape[0] > 1:
        far_store[(1,)](c, 1 << 45)
    return c


def raises_on_device(a, b):
    if on_device(a):
        raise ValueError("only on a device")
    return plain(a, b)
