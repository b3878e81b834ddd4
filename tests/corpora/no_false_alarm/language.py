"""Right kernels that use rare features of the language."""

from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch

B = 16


@triton.jit
def _offsets(pid, BLOCK: tl.constexpr):
    return pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _pick(ptr, offs_0, offs_1, size, strides):
    """A block of a matrix, zero outside of it."""
    mask = (offs_0[:, None] < size[0]) & (offs_1[None, :] < size[1])
    return tl.load(ptr + offs_0[:, None] * strides[0] + offs_1[None, :] * strides[1], mask, 0.0)


@triton.jit
def _put(ptr, value, offs_0, offs_1, size, strides):
    mask = (offs_0[:, None] < size[0]) & (offs_1[None, :] < size[1])
    ptrs = ptr + offs_0[:, None] * strides[0] + offs_1[None, :] * strides[1]
    tl.store(ptrs, value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def _same(x):
    return x


@triton.jit
def nested_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, EPILOGUE: tl.constexpr, BLOCK: tl.constexpr
):
    """Helpers take tuples, and the epilogue is a jitted function passed as an argument."""
    offs_m, offs_n = _offsets(tl.program_id(0), BLOCK), _offsets(tl.program_id(1), BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    k = 0
    while k < K:
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a = _pick(a_ptr, offs_m, offs_k, (M, K), sa)
        b = _pick(b_ptr, offs_k, offs_n, (K, N), sb)
        acc = tl.dot(a, b, acc)
        k += BLOCK
    _put(c_ptr, EPILOGUE(acc), offs_m, offs_n, (M, N), sc)


epilogue_as_an_argument = partial(launch, nested_kernel, EPILOGUE=_same)


class Operand(NamedTuple):
    ptr: torch.Tensor
    size: tuple[int, int]
    strides: tuple[int, int]


@triton.jit
def named_kernel(a, b, c, BLOCK: tl.constexpr):
    offs_m, offs_n = _offsets(tl.program_id(0), BLOCK), _offsets(tl.program_id(1), BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, a.size[1], BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        left = _pick(a.ptr, offs_m, offs_k, a.size, a.strides)
        right = _pick(b.ptr, offs_k, offs_n, b.size, b.strides)
        acc += tl.dot(left, right)
    _put(c.ptr, acc, offs_m, offs_n, c.size, c.strides)


def operands_as_named_tuples(a, b):
    M, N = a.shape[0], b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    operands = (Operand(x, tuple(x.shape), tuple(x.stride())) for x in (a, b, c))
    named_kernel[(triton.cdiv(M, B), triton.cdiv(N, B))](*operands, BLOCK=B)
    return c


@triton.jit
def branching_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, bias_ptr,
    ORDER: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What is compiled depends on constants; a missing bias adds zero."""
    if ORDER == "rows" and ACC is not None:
        pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    else:
        pid_n, pid_m = tl.program_id(0), tl.program_id(1)
    offs_m, offs_n = _offsets(pid_m, BLOCK), _offsets(pid_n, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=ACC)
    for start in range(0, K, BLOCK):
        offs_k = start + tl.arange(0, BLOCK).to(tl.int64)
        a = _pick(a_ptr, offs_m, offs_k, (M, K), sa)
        b = _pick(b_ptr, offs_k, offs_n, (K, N), sb)
        acc = tl.dot(a, b, acc=acc, out_dtype=ACC)
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    else:
        acc += 0.0
    _put(c_ptr, acc * 1.0, offs_m, offs_n, (M, N), sc)


def branches_on_constants(a, b):
    return launch(branching_kernel, a, b, None, ORDER="rows", ACC=tl.float32)


def bias_of_zeros(a, b):
    zeros = torch.zeros(b.shape[1], device=a.device, dtype=torch.float32)
    return launch(branching_kernel, a, b, zeros, ORDER="rows", ACC=tl.float32)


@triton.jit
def scalar_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """No dot: one k at a time, the outer product of a column of a and a row of b."""
    offs_m, offs_n = _offsets(tl.program_id(0), BLOCK), _offsets(tl.program_id(1), BLOCK)
    a_ptrs, b_ptrs = a_ptr + offs_m * sa[0], b_ptr + offs_n * sb[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(K):
        a = tl.load(a_ptrs, mask=offs_m < M, other=0.0).to(tl.float32)
        b = tl.load(b_ptrs, mask=offs_n < N, other=0.0).to(tl.float32)
        acc += a[:, None] * b[None, :]
        a_ptrs += sa[1]
        b_ptrs += sb[0]
    _put(c_ptr, acc, offs_m, offs_n, (M, N), sc)


outer_products = partial(launch, scalar_kernel)


@triton.jit
def element_kernel(
    a_ptr, b_ptr, c_ptr, N, K, sa, sb, sc, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A program for each element of c, and a sum over k."""
    m, n = tl.program_id(0).to(tl.int64) // N, tl.program_id(0).to(tl.int64) % N
    acc = 0.0
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(a_ptr + m * sa[0] + offs_k * sa[1], mask=offs_k < K, other=0.0)
        b = tl.load(b_ptr + offs_k * sb[0] + n * sb[1], mask=offs_k < K, other=0.0)
        acc += tl.sum(a.to(tl.float32) * b.to(tl.float32), axis=0)
    tl.store(c_ptr + m * sc[0] + n * sc[1], acc)


def a_program_for_each_element(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    element_kernel[(M * N,)](a, b, c, N, K, a.stride(), b.stride(), c.stride(), BLOCK_K=64)
    return c.to(a.dtype)


def _clear(nargs):
    nargs["c_ptr"].zero_()


@triton.autotune(
    configs=[
        triton.Config({"SPLIT_K": 1, "BLOCK_K": 32}, pre_hook=_clear),
        triton.Config({"SPLIT_K": 2, "BLOCK_K": 16}, pre_hook=_clear),
    ],
    key=["M", "N", "K"],
)
@triton.heuristics({"EVEN_K": lambda args: args["K"] % (args["BLOCK_K"] * args["SPLIT_K"]) == 0})
@triton.jit
def tuned_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BLOCK: tl.constexpr, SPLIT_K: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Every configuration clears c before it adds to it."""
    offs_m, offs_n = _offsets(tl.program_id(0), BLOCK), _offsets(tl.program_id(1), BLOCK)
    offs_k = tl.program_id(2).to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m % M)[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + (offs_n % N)[None, :] * sb[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        if EVEN_K:
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            left = K - k * (BLOCK_K * SPLIT_K)
            a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * SPLIT_K * tl.cast(sa[1], tl.int64)
        b_ptrs += BLOCK_K * SPLIT_K * tl.cast(sb[0], tl.int64)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def configurations_that_clear_c(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    if c.numel() and K:
        grid = lambda meta: (triton.cdiv(M, B), triton.cdiv(N, B), meta["SPLIT_K"])  # noqa: E731
        tuned_kernel[grid](a, b, c, M, N, K, a.stride(), b.stride(), c.stride(), BLOCK=B)
    else:
        c.zero_()
    return c.to(a.dtype)


@triton.jit
def packed_kernel(a_ptr, b_ptr, c_ptr, M, N, pairs, BLOCK: tl.constexpr):
    """int8 operands; two rows of b in an int16, taken apart and interleaved again."""
    offs_m, offs_n = _offsets(tl.program_id(0), BLOCK), _offsets(tl.program_id(1), BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for start in range(0, pairs, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        offs_k = 2 * start + tl.arange(0, 2 * BLOCK)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < 2 * pairs)
        a_ptrs = a_ptr + offs_m[:, None] * (2 * pairs) + offs_k[None, :]
        a = tl.load(a_ptrs, mask=a_mask, other=0)
        b_mask = (pair[:, None] < pairs) & (offs_n[None, :] < N)
        both = tl.load(b_ptr + pair[:, None] * N + offs_n[None, :], mask=b_mask, other=0)
        low = ((both << 8) >> 8).to(tl.int8)
        high = (both >> 8).to(tl.int8)
        b = tl.interleave(low.T, high.T).T
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def packed_bytes_interleaved(a, b):
    (M, K), N = a.shape, b.shape[1]
    a = torch.nn.functional.pad(a, (0, K % 2)).contiguous()
    b = torch.nn.functional.pad(b, (0, 0, 0, K % 2))
    packed = (b[1::2].to(torch.int16) * 256) | (b[0::2].to(torch.int16) & 0xFF)
    c = torch.empty((M, N), device=a.device, dtype=torch.int32)
    packed_kernel[(triton.cdiv(M, B), triton.cdiv(N, B))](
        a, packed.contiguous(), c, M, N, triton.cdiv(K, 2), BLOCK=B
    )
    return c
