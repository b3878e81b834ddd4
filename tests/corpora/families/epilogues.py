"""A bias and an activation fused behind the sum, the activation a constexpr."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, OneOf, Operand
from gemmproof.reference.spec import erf, sigmoid

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


@triton.jit
def _activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        # tanh(y) = 2 sigmoid(2 y) - 1
        y = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2 * y)
    elif ACTIVATION == "silu":
        x = x * tl.sigmoid(x)
    elif ACTIVATION == "leaky_relu":
        x = tl.where(x >= 0, x, 0.01 * x)
    return x


@triton.jit
def linear_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + (offs_m % M)[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + (offs_n % N)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if HAS_BIAS:
        if FLAW == "bias_by_m":
            bias = tl.load(bias_ptr + offs_m, mask=offs_m < M, other=0.0)[:, None]
        elif FLAW == "bias_masked_by_m":
            bias = tl.load(bias_ptr + offs_n, mask=offs_m < M, other=0.0)[None, :]
        elif FLAW == "bias_of_first_tile":
            bias = tl.load(bias_ptr + offs_n % BLOCK_N, mask=offs_n < N, other=0.0)[None, :]
        else:
            bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
        bias = bias.to(tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        if HAS_BIAS and FLAW == "bias_of_every_tile":
            acc += bias
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if FLAW == "activated_first":
        acc = _activate(acc, ACTIVATION)
        if HAS_BIAS:
            acc += bias
    elif HAS_BIAS or FLAW != "nothing_without_bias":
        if HAS_BIAS and FLAW != "bias_of_every_tile":
            acc += bias
        if FLAW == "rounded_first":
            acc = acc.to(c_ptr.dtype.element_ty).to(tl.float32)
        acc = _activate(acc, ACTIVATION)
        if FLAW == "activated_twice":
            acc = _activate(acc, ACTIVATION)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def linear(a, b, bias=None, activation="", FLAW="none"):
    """activation(a @ b + bias) in a's format."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    linear_kernel[grid](
        a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        ACTIVATION=activation, HAS_BIAS=bias is not None, EVEN_K=K % 16 == 0,
        BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, FLAW=FLAW,
    )  # fmt: skip
    return c


ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))),
    "silu": lambda x: x * sigmoid(x),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "": lambda x: x,
}


def tanh_in_place_of_erf(a, b, bias=None, activation=""):
    return linear(a, b, bias, "gelu_tanh" if activation == "gelu" else activation)


def formula(a, b, bias, activation):
    """The activation of the sum and the bias, if there is one."""
    return ACTIVATIONS[activation](a @ b if bias is None else a @ b + bias)


activation_before_the_bias = partial(linear, FLAW="activated_first")
activation_applied_twice = partial(linear, FLAW="activated_twice")
activation_of_a_rounded_sum = partial(linear, FLAW="rounded_first")
bias_loaded_along_the_rows = partial(linear, FLAW="bias_by_m")
bias_masked_along_the_rows = partial(linear, FLAW="bias_masked_by_m")
bias_of_the_first_tile = partial(linear, FLAW="bias_of_first_tile")
bias_added_by_every_tile_of_k = partial(linear, FLAW="bias_of_every_tile")

nothing_applied_without_a_bias = partial(linear, FLAW="nothing_without_bias")

FAMILY = Family(
    "a bias and an activation",
    KernelUnderTest(
        "linear",
        linear,
        Contract(formats=("fp16",), layouts=("row", "column", "padded")),
        operands={
            "bias": Operand("fp16", "N", optional=True),
            "activation": OneOf(*ACTIVATIONS),
        },
        spec=formula,
    ),
    """
R epilogues:activation_before_the_bias EXACT wrong_value c - 1 1 1 activation='relu' lane=default
R epilogues:tanh_in_place_of_erf BOUND operand_forgotten activation - 11 2 17
R epilogues:activation_applied_twice BOUND wrong_value c - 5 4 1
R epilogues:activation_of_a_rounded_sum BOUND rounding c - 1 3 2 fill=normal
R epilogues:bias_loaded_along_the_rows BOUNDS out_of_bounds bias N 2 1 1
R epilogues:bias_masked_along_the_rows BOUNDS out_of_bounds bias N 2 1 1
R epilogues:bias_of_the_first_tile BOUND operand_wrapped bias N 1 17 5 seed=2
R epilogues:bias_added_by_every_tile_of_k EXACT operand_applied_twice bias - 1 1 17 activation='relu'
R epilogues:nothing_applied_without_a_bias BOUND operand_forgotten activation - 1 1 1 bias=None
""",  # noqa: E501
)
