"""mxfp8 and nvfp4 with tl.dot_scaled: scales of 32 in e8m0, of 16 in e4m3, e2m1 in pairs."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand, multiple_of

MX, NV = 32, 16


@triton.jit
def scaled_dot_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, global_ptr, M, N, K,
    stride_am, stride_ak, stride_bn, stride_bk, stride_cm, stride_cn,
    stride_sam, stride_sag, stride_sbn, stride_sbg,
    KIND: tl.constexpr, PACK: tl.constexpr, GROUP: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    """b is stored as (N, K): both operands and their scales run over k in their last axis."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k // PACK + tl.arange(0, BLOCK_K // PACK)
        offs_g = k // GROUP + tl.arange(0, BLOCK_K // GROUP)
        if FLAW == "groups_of_the_first_tile":
            offs_g = tl.arange(0, BLOCK_K // GROUP)
        k_mask = offs_k < K // PACK
        a_mask = offs_k < K if FLAW == "unpacked_bound" else k_mask
        g_mask = offs_g < K // GROUP
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & a_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & (offs_n[None, :] < N), other=0.0)
        if FLAW == "halves_swapped":
            a = (a << 4) | (a >> 4)
        scale_a_ptrs = scale_a_ptr + offs_m[:, None] * stride_sam + offs_g[None, :] * stride_sag
        scale_b_ptrs = scale_b_ptr + offs_n[:, None] * stride_sbn + offs_g[None, :] * stride_sbg
        if FLAW == "scales_unmasked":
            scale_a = tl.load(scale_a_ptrs)
        else:
            scale_a = tl.load(scale_a_ptrs, mask=(offs_m[:, None] < M) & g_mask[None, :], other=0.0)
        scale_b = tl.load(scale_b_ptrs, mask=(offs_n[:, None] < N) & g_mask[None, :], other=0.0)
        if FLAW == "bias_of_128":
            scale_a = (tl.maximum(scale_a, 1) - 1).to(scale_a.dtype)
        if FLAW == "without_scale_b":
            acc = tl.dot_scaled(a, scale_a, KIND, b, None, KIND, acc)
        elif FLAW == "scale_b_of_a":
            acc = tl.dot_scaled(a, scale_a, KIND, b, scale_a, KIND, acc)
        else:
            acc = tl.dot_scaled(a, scale_a, KIND, b, scale_b, KIND, acc)
    if HAS_GLOBAL and FLAW != "no_global":
        acc *= tl.load(global_ptr)
        if FLAW == "global_twice":
            acc *= tl.load(global_ptr)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def _launch(kind, a, b, scale_a, scale_b, scale, group, FLAW):
    M, N, pack = a.shape[0], b.shape[0], 2 if kind == "e2m1" else 1
    K = a.shape[1] * pack
    c = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    strides = [*scale_a.stride(), *scale_b.stride()]
    if FLAW == "scales_by_k":
        strides[2:] = [strides[3], strides[2]]
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    scaled_dot_kernel[grid](
        a, b, c, scale_a, scale_b, scale, M, N, K, *a.stride(), *b.stride(), *c.stride(), *strides,
        KIND=kind, PACK=pack, GROUP=group, HAS_GLOBAL=scale is not None,
        BLOCK_M=32, BLOCK_N=32, BLOCK_K=64, FLAW=FLAW,
    )  # fmt: skip
    return c


def mxfp8_mm(a, b, scale_a, scale_b, FLAW="none"):
    """fp8 a (M, K), b (N, K), e8m0 scales (M, K / 32) and (N, K / 32)."""
    return _launch("e4m3", a, b, scale_a, scale_b, None, MX, FLAW)


def nvfp4_mm(a, b, scale_a, scale_b, scale, FLAW="none"):
    """e2m1 a (M, K / 2), b (N, K / 2), e4m3 scales of 16, and one fp32 scale of the product."""
    return _launch("e2m1", a, b, scale_a, scale_b, scale, NV, FLAW)


scales_of_the_first_tile_of_k = partial(mxfp8_mm, FLAW="groups_of_the_first_tile")
scales_of_b_with_their_axes_swapped = partial(mxfp8_mm, FLAW="scales_by_k")
scales_of_a_not_masked = partial(mxfp8_mm, FLAW="scales_unmasked")
exponents_less_128 = partial(mxfp8_mm, FLAW="bias_of_128")
scales_of_b_not_given = partial(mxfp8_mm, FLAW="without_scale_b")
scales_of_a_given_for_b = partial(mxfp8_mm, FLAW="scale_b_of_a")

halves_of_bytes_swapped = partial(nvfp4_mm, FLAW="halves_swapped")
bound_of_bytes_in_elements = partial(nvfp4_mm, FLAW="unpacked_bound")
scale_of_the_product_forgotten = partial(nvfp4_mm, FLAW="no_global")
scale_of_the_product_applied_twice = partial(nvfp4_mm, FLAW="global_twice")
scales_of_the_first_tile = partial(nvfp4_mm, FLAW="groups_of_the_first_tile")


def _numbers(x):
    """The e2m1 numbers of bytes, the low half first."""
    return np.stack([x & 15, x >> 4], axis=-1).reshape((x.shape[0], -1)).decode("e2m1")


def _micro_formula(a, b, scale_a, scale_b):
    a = a * scale_a.decode("e8m0").repeat(MX, 1)
    return a @ (b * scale_b.decode("e8m0").repeat(MX, 1)).T


def _nano_formula(a, b, scale_a, scale_b, scale):
    a = _numbers(a) * scale_a.repeat(NV, 1)
    return a @ (_numbers(b) * scale_b.repeat(NV, 1)).T * scale


MXFP8 = Family(
    "mxfp8",
    KernelUnderTest(
        "mxfp8_mm",
        mxfp8_mm,
        Contract(formats=("fp8e4m3",), out="bf16", K=multiple_of(MX)),
        operands={
            "b": Operand("fp8e4m3", ("N", "K")),
            "scale_a": Operand("uint8", ("M", f"K // {MX}"), (120, 133)),
            "scale_b": Operand("uint8", ("N", f"K // {MX}"), (120, 133)),
        },
        spec=_micro_formula,
    ),
    """
R microscaled:scales_of_the_first_tile_of_k EXACT operand_wrapped scale_a K 1 1 96
R microscaled:scales_of_b_with_their_axes_swapped BOUNDS out_of_bounds scale_b N 1 1 64
R microscaled:scales_of_a_not_masked BOUNDS out_of_bounds scale_a M 1 1 32 lane=default
R microscaled:exponents_less_128 EXACT operand_off_by_one scale_a - 1 1 32
R microscaled:scales_of_b_not_given EXACT operand_forgotten scale_b - 1 1 32
R microscaled:scales_of_a_given_for_b EXACT wrong_value c - 1 1 32
""",
)
NVFP4 = Family(
    "nvfp4",
    KernelUnderTest(
        "nvfp4_mm",
        nvfp4_mm,
        Contract(formats=("fp16",), out="bf16", K=multiple_of(NV)),
        operands={
            "a": Operand("uint8", ("M", "K // 2")),
            "b": Operand("uint8", ("N", "K // 2")),
            "scale_a": Operand("fp8e4m3", ("M", f"K // {NV}")),
            "scale_b": Operand("fp8e4m3", ("N", f"K // {NV}")),
            "scale": Operand("fp32", 1),
        },
        spec=_nano_formula,
    ),
    """
R microscaled:halves_of_bytes_swapped EXACT operand_nibbles a - 1 1 16
R microscaled:bound_of_bytes_in_elements BOUNDS out_of_bounds a K 1 1 16 lane=default
R microscaled:scale_of_the_product_forgotten EXACT operand_forgotten scale - 1 1 16
R microscaled:scale_of_the_product_applied_twice EXACT operand_applied_twice scale - 1 1 16
R microscaled:scales_of_the_first_tile EXACT operand_wrapped scale_a K 1 1 80
""",
)
FAMILIES = (MXFP8, NVFP4)
