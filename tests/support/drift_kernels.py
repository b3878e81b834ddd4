"""Kernels that differ in their accumulator alone, for the drift tests."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def accumulator_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    HOW: tl.constexpr, IMPRECISE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """C = A B over blocks of K; HOW says what is done with the sum."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if HOW == "half":
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N),
            other=0.0,
        )
        if HOW == "add":
            acc += tl.dot(a, b, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
        elif HOW == "half":
            acc = tl.dot(a, b, acc, out_dtype=tl.float16)
        else:
            acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
        if HOW == "down_fp16":
            acc = acc.to(tl.float16).to(tl.float32)
        elif HOW == "down_bf16":
            acc = acc.to(tl.bfloat16).to(tl.float32)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def product(how, a, b, out_dtype, BLOCK_K=64, imprecise=None, precision=None, block=64):
    """a @ b by the kernel above, the result in out_dtype."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=out_dtype, device=a.device)
    grid = (triton.cdiv(M, block), triton.cdiv(N, block))
    accumulator_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        HOW=how, IMPRECISE=imprecise, PRECISION=precision,
        BLOCK_M=block, BLOCK_N=block, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return c


def passed(a, b):
    """`acc = tl.dot(a, b, acc)`, c in the operands' format (fp32 for fp8)."""
    return product("passed", a, b, _out(a))


def added(a, b):
    """`acc += tl.dot(a, b)`."""
    return product("add", a, b, _out(a))


def ieee(a, b):
    """fp32 operands, whole."""
    return product("passed", a, b, torch.float32, BLOCK_K=32, precision="ieee")


def tf32(a, b):
    """fp32 operands, cut to tf32 by the unit."""
    return product("passed", a, b, torch.float32, BLOCK_K=32)


def half(a, b):
    """An fp16 accumulator."""
    return product("half", a, b, torch.float16)


def rounded_to_bf16(a, b):
    """The sum is kept in bf16 from block to block."""
    return product("down_bf16", a, b, torch.bfloat16)


def rounded_to_fp16(a, b):
    """A downcast to fp16 inside the K loop."""
    return product("down_fp16", a, b, torch.float16, BLOCK_K=128)


def fp8_unpromoted(a, b):
    """fp8 operands, all of K in the unit's own register."""
    return product("passed", a, b, torch.float32, BLOCK_K=128)


def fp8_promoted_128(a, b):
    """fp8 operands, every 128 of k added in fp32: the other spelling, not folded on sm_90."""
    return product("add", a, b, torch.float32, BLOCK_K=128)


def fp8_promoted_32(a, b):
    """fp8 operands, every instruction's sum added in fp32."""
    return product("passed", a, b, torch.bfloat16, BLOCK_K=128, imprecise=32)


@triton.jit
def split_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    SPLIT_K: tl.constexpr, INTERLEAVED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each program sums one share of K and adds it to c, which starts as zeros."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    pid_k = tl.program_id(2)
    share = tl.cdiv(K, SPLIT_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for n in range(0, tl.cdiv(share, BLOCK_K)):
        k = (n * SPLIT_K + pid_k) * BLOCK_K if INTERLEAVED else pid_k * share + n * BLOCK_K
        offs_k = k + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        acc = tl.dot(
            tl.load(a_ptrs, mask=a_mask, other=0.0), tl.load(b_ptrs, mask=b_mask, other=0.0), acc
        )
    tl.atomic_add(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
    )


def split(a, b, dtype, interleaved=False, SPLIT_K=4):
    """a @ b, shares of K joined in dtype."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), dtype=dtype, device=a.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), SPLIT_K)
    split_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        SPLIT_K=SPLIT_K, INTERLEAVED=interleaved, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64,
    )  # fmt: skip
    return c


def split_in_fp16(a, b):
    """Four shares of K, one after the other in memory, joined in fp16."""
    return split(a, b, torch.float16)


def split_in_fp32(a, b):
    """Four shares of K, joined in fp32 and rounded once."""
    return split(a, b, torch.float32).to(a.dtype)


def interleaved_in_fp16(a, b):
    """Four shares of K that take blocks in turn, joined in fp16."""
    return split(a, b, torch.float16, interleaved=True)


def truncating(a, b):
    """An fp32 accumulator, and a store to bf16 that drops bits instead of rounding."""
    c = product("passed", a, b, torch.float32)
    return (c.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


def _out(a):
    return torch.float32 if a.dtype.itemsize == 1 else a.dtype
