"""Weight-only: int8 weights with scales of columns, and int4 weights as GPTQ packs them.

GPTQ packs eight weights into an int32, with scales and zero points of groups of rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

CONFIGS = [
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64}, num_warps=4),
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def w8a16_kernel(
    a_ptr, w_ptr, scale_ptr, c_ptr, M, N, K, stride_am, stride_wk, stride_wn,
    FLAW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    scale_mask = offs_n < N
    if FLAW == "mask":
        scale_mask = offs_n < M
    scale = tl.load(scale_ptr + offs_n, mask=scale_mask, other=0.0).to(tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        w_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :], mask=a_mask, other=0.0)
        w_ptrs = w_ptr + offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn
        w = tl.load(w_ptrs, mask=w_mask, other=0)
        if FLAW == "early":
            # the scaled weight needs more bits than the activations' format has
            w = (w.to(tl.float32) * scale[None, :]).to(a.dtype)
            acc = tl.dot(a, w, acc)
        elif FLAW == "tile":
            # one multiplication a tile, on all that was summed so far
            acc = tl.dot(a, w.to(a.dtype), acc) * scale[None, :]
        else:
            acc = tl.dot(a, w.to(a.dtype), acc)
    if FLAW != "tile" and FLAW != "early":
        acc = acc * scale[None, :]
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def w8a16_mm(a, b, scale, FLAW="none"):
    """c = a (b scale), b of int8."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))

    strides = (a.stride(0), b.stride(0), b.stride(1))
    w8a16_kernel[grid](a, b, scale, c, M, N, K, *strides, FLAW=FLAW)
    return c


def weights_read_as_unsigned(a, b, scale):
    """The packer added 128 to every weight and this layer's checkpoint was not packed by it."""
    return w8a16_mm(a, b.view(torch.uint8), scale)


def weights_of_the_layer_before_it_was_transposed(a, b, scale):
    """The strides of a (N, K) checkpoint for weights that are stored (K, N) now."""
    return w8a16_mm(a, torch.as_strided(b, b.shape, (1, b.shape[0])), scale)


scales_masked_by_rows = partial(w8a16_mm, FLAW="mask")
scale_multiplied_in_at_every_k_tile = partial(w8a16_mm, FLAW="tile")
scaled_weights_rounded_before_the_dot = partial(w8a16_mm, FLAW="early")


def scale_of_one_channel_for_all(a, b, scale):
    """A per-tensor scale is what `scale[0]` was when this wrapper was written."""
    return w8a16_mm(a, b, scale[:1].expand(scale.shape[0]).contiguous())


INT8 = Family(
    "int8 weights under fp16 activations",
    KernelUnderTest(
        "w8a16_mm",
        w8a16_mm,
        Contract(formats=("fp16", "bf16")),
        operands={
            "b": Operand("int8", ("K", "N")),
            "scale": Operand("fp16", "N"),
        },
        spec=lambda a, b, scale: (a @ b) * scale,
    ),
    """
R weight_only:weights_read_as_unsigned EXACT operand_sign b - 1 1 1 lane=default
R weight_only:weights_of_the_layer_before_it_was_transposed EXACT operand_strides b - 1 2 2
R weight_only:scales_masked_by_rows BOUNDS out_of_bounds scale N 2 1 1
R weight_only:scale_multiplied_in_at_every_k_tile EXACT later_block c K 1 1 33
R weight_only:scaled_weights_rounded_before_the_dot BOUND rounding c - 1 2 3 fill=normal
R weight_only:scale_of_one_channel_for_all EXACT operand_broadcast scale N 1 2 1
""",
)

GROUP = 32  # rows of the weights that share a scale and a zero point


@triton.jit
def w4a16_kernel(
    a_ptr, qw_ptr, scales_ptr, qz_ptr, c_ptr, M, N, K, stride_am,
    FLAW: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    n_mask = offs_n[None, :] < N
    z_shift = (offs_n % 8) * 4
    if FLAW == "z_shift":
        z_shift = (offs_n // 8 % 8) * 4
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k_mask = offs_k < K
        a_mask = (offs_m[:, None] < M) & k_mask[None, :]
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :], mask=a_mask, other=0.0)
        mask = k_mask[:, None] & n_mask
        packed = tl.load(qw_ptr + (offs_k[:, None] // 8) * N + offs_n[None, :], mask=mask, other=0)
        shift = (offs_k % 8) * 4
        if FLAW == "order":
            # AWQ packs the even columns into the low half and the odd ones into the high half
            shift = ((offs_k % 2) * 4 + (offs_k % 8) // 2) * 4
        q = (packed >> shift[:, None]) & 15
        if FLAW == "sign":
            # "the top nibble needs no mask": the shift of an int32 is arithmetic
            q = tl.where(shift[:, None] == 28, packed >> 28, q)
        group = offs_k[:, None] // GROUP
        z_group = group
        if FLAW == "tile":
            group = start // GROUP + tl.zeros_like(offs_k)[:, None]
        if FLAW == "index":
            group = start // BLOCK_K + tl.zeros_like(offs_k)[:, None]
        if FLAW == "z_group":
            # the zero points of the tile that was prefetched before
            z_group = tl.maximum(group - 1, 0)
        scale = tl.load(scales_ptr + group * N + offs_n[None, :], mask=mask, other=0.0)
        z_ptrs = qz_ptr + z_group * (N // 8) + offs_n[None, :] // 8
        z = (tl.load(z_ptrs, mask=mask, other=0) >> z_shift[None, :]) & 15
        if FLAW == "after":
            w = q.to(tl.float16) * scale - z.to(tl.float16)
        else:
            w = (q - z).to(tl.float16) * scale
        acc = tl.dot(a, w, acc)
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc.to(tl.float16), mask=(offs_m[:, None] < M) & n_mask)


def w4a16_mm(a, b, scales, qzeros, FLAW="none", BLOCK_K=64):
    """c = a w; w is (K, N), in nibbles of b, which is (K // 8, N)."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    w4a16_kernel[grid](
        a, b, scales, qzeros, c, M, N, K, a.stride(0),
        FLAW=FLAW, GROUP=GROUP, BLOCK_M=16, BLOCK_N=32, BLOCK_K=BLOCK_K,
    )  # fmt: skip
    return c


def dequantize(a, b, scales, qzeros):
    """Return the expected result: the unpacked weights are rounded to fp16, then multiplied."""
    k, n = np.arange(a.shape[1]), np.arange(b.shape[1])
    q = (b[k // 8] >> (k % 8 * 4)[:, None]) & 15
    z = (qzeros[:, n // 8] >> (n % 8 * 4)) & 15
    w = (q - z[k // GROUP]) * scales[k // GROUP]
    return a @ w.to("fp16")


zero_point_subtracted_after_the_scale = partial(w4a16_mm, FLAW="after")
nibbles_in_the_order_of_awq = partial(w4a16_mm, FLAW="order")
top_nibble_keeps_its_sign = partial(w4a16_mm, FLAW="sign")
scale_of_the_tile_for_both_its_groups = partial(w4a16_mm, FLAW="tile")
group_counted_in_tiles = partial(w4a16_mm, FLAW="index", BLOCK_K=16)
zero_points_of_the_group_before = partial(w4a16_mm, FLAW="z_group")
zero_point_shifted_by_the_word_not_the_column = partial(w4a16_mm, FLAW="z_shift")

ANY_BITS = (-(2**31), 2**31 - 1)
INT4 = Family(
    "int4 weights with scales and zero points of groups",
    KernelUnderTest(
        "w4a16_mm",
        w4a16_mm,
        Contract(formats=("fp16",), N="8..:8", K=f"{GROUP}..:{GROUP}"),
        operands={
            "b": Operand("int32", ("K // 8", "N"), ANY_BITS),
            "scales": Operand("fp16", (f"K // {GROUP}", "N")),
            "qzeros": Operand("int32", (f"K // {GROUP}", "N // 8"), ANY_BITS),
        },
        spec=dequantize,
    ),
    """
R weight_only:zero_point_subtracted_after_the_scale EXACT wrong_value c - 1 8 32
R weight_only:nibbles_in_the_order_of_awq EXACT operand_nibbles b - 1 8 32
R weight_only:top_nibble_keeps_its_sign EXACT wrong_value c - 1 8 32
R weight_only:scale_of_the_tile_for_both_its_groups EXACT operand_broadcast scales K 1 8 64
R weight_only:group_counted_in_tiles BOUNDS out_of_bounds scales K 1 8 32 lane=default
R weight_only:zero_points_of_the_group_before EXACT operand_shifted qzeros K 2 8 64
R weight_only:zero_point_shifted_by_the_word_not_the_column EXACT wrong_value c - 1 8 32
""",
)
FAMILIES = (INT8, INT4)
