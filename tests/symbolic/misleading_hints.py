"""Kernels with hints to the compiler, which hold wherever it matters or do not."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl
from tiled import launch, store


@triton.jit
def carried_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, HINT: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    begin = 0
    for _ in range(0, K, BLOCK):
        offs_k = tl.multiple_of(begin, HINT) + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        begin += BLOCK
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


carried = partial(launch, carried_kernel, HINT=16)
# true of the first trip alone
carried_but_not_held = partial(launch, carried_kernel, HINT=32)
