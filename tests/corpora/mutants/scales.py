"""Class J: kernels that unpack or scale their operands wrongly.

The wrappers divide a by powers of two, one for each row and group of K, which loses nothing in
fp32, and the kernels multiply by them again.
"""

from functools import partial

import torch
import triton
import triton.language as tl

GROUP = 32


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, s_ptr, M, N, K, stride_sm, stride_sg,
    FLAW: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Dense fp32 a, b, c; two K tiles share the scale of a group."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :], mask=b_mask, other=0.0)
        group = k // GROUP
        if FLAW == "per_tile":
            group = tl.minimum(k // BLOCK, (K - 1) // GROUP)
        if FLAW == "precedence":
            group = (k + GROUP * tl.program_id(0)) // GROUP % tl.cdiv(K, GROUP)
        s_ptrs = s_ptr + offs_m * stride_sm + group * stride_sg
        scale = tl.load(s_ptrs, mask=offs_m < M, other=1.0)
        if FLAW == "tail_unscaled" and k + GROUP > K:
            scale = tl.full((BLOCK,), 1.0, tl.float32)
        if FLAW == "scaled_after":
            acc = tl.dot(a, b, acc, input_precision="ieee") * scale[:, None]
        else:
            acc = tl.dot(a * scale[:, None], b, acc, input_precision="ieee")
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def launch_scaled(a, b, flaw="", strided=True):
    (M, K), N = a.shape, b.shape[1]
    groups = triton.cdiv(K, GROUP)
    exponents = (torch.arange(M)[:, None] + 3 * torch.arange(groups)[None, :]) % 5 - 2
    scales = torch.pow(2.0, exponents.float()).to(a.device)
    wide = a.float() / scales.repeat_interleave(GROUP, 1)[:, :K]
    scales = scales.t().contiguous().t()  # group after group in memory
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    steps = scales.stride() if strided else (groups, 1)
    scaled_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](
        wide.contiguous(), b.float().contiguous(), c, scales, M, N, K, *steps,
        FLAW=flaw, GROUP=GROUP, BLOCK=16,
    )  # fmt: skip
    return c.to(a.dtype)


scale_of_the_k_tile = partial(launch_scaled, flaw="per_tile")
scale_group_depends_on_the_row_tile = partial(launch_scaled, flaw="precedence")
tail_group_unscaled = partial(launch_scaled, flaw="tail_unscaled")
sum_scaled_again_by_every_tile = partial(launch_scaled, flaw="scaled_after")
strides_of_scales_ignored = partial(launch_scaled, strided=False)


@triton.jit
def packed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, pairs, FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """int8 a and b; b packed two rows to an int16, the even row in the low byte."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for start in range(0, pairs, BLOCK):
        pair = start + tl.arange(0, BLOCK)
        a_mask = (offs_m[:, None] < M) & (pair[None, :] < pairs)
        a_ptrs = a_ptr + offs_m[:, None] * (2 * pairs) + 2 * pair[None, :]
        even = tl.load(a_ptrs, mask=a_mask, other=0).to(tl.float32)
        odd = tl.load(a_ptrs + 1, mask=a_mask, other=0).to(tl.float32)
        b_mask = (pair[:, None] < pairs) & (offs_n[None, :] < N)
        both = tl.load(b_ptr + pair[:, None] * N + offs_n[None, :], mask=b_mask, other=0)
        low, high = both.to(tl.int8), (both >> 8).to(tl.int8)
        if FLAW == "unsigned":
            low = both & 0xFF
        if FLAW == "swapped":
            low, high = high, low
        if FLAW == "shift":
            high = (both >> 7).to(tl.int8)
        low, high = low.to(tl.float32), high.to(tl.float32)
        # |products| of a tile sum to less than 2**24, so fp32 is exact
        acc += tl.dot(even, low, input_precision="ieee").to(tl.int32)
        acc += tl.dot(odd, high, input_precision="ieee").to(tl.int32)
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def launch_packed(a, b, flaw=""):
    (M, K), N = a.shape, b.shape[1]
    pairs = triton.cdiv(K, 2)
    a, b = a.contiguous(), b.contiguous()
    if K % 2:
        a = torch.nn.functional.pad(a, (0, 1))
        b = torch.nn.functional.pad(b, (0, 0, 0, 1))
    packed = (b[1::2].to(torch.int16) * 256) | (b[0::2].to(torch.int16) & 0xFF)
    c = torch.empty((M, N), device=a.device, dtype=torch.int32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    packed_kernel[grid](a, packed.contiguous(), c, M, N, pairs, FLAW=flaw, BLOCK=16)
    return c


low_byte_unsigned = partial(launch_packed, flaw="unsigned")
bytes_swapped = partial(launch_packed, flaw="swapped")
high_byte_shifted_by_seven = partial(launch_packed, flaw="shift")
