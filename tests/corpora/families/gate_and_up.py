"""SwiGLU: two products share a, the gate's goes through SiLU, and both are multiplied."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand
from gemmproof.reference.spec import sigmoid


@triton.jit
def swiglu_kernel(
    a_ptr, gate_ptr, up_ptr, c_ptr, M, N, K, stride_am, stride_gk, stride_uk, stride_cm,
    FLAW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    m_mask, n_mask = offs_m[:, None] < M, offs_n[None, :] < N
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    g_ptrs = gate_ptr + offs_k[:, None].to(tl.int64) * stride_gk + offs_n[None, :]
    u_ptrs = up_ptr + offs_k[:, None].to(tl.int64) * stride_uk + offs_n[None, :]
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        k_left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=m_mask & (offs_k[None, :] < k_left), other=0.0)
        g = tl.load(g_ptrs, mask=(offs_k[:, None] < k_left) & n_mask, other=0.0)
        u = tl.load(u_ptrs, mask=(offs_k[:, None] < k_left) & n_mask, other=0.0)
        gate = tl.dot(a, g, gate)
        up = tl.dot(a, u, gate if FLAW == "start" else up)
        a_ptrs += BLOCK_K
        g_ptrs += BLOCK_K * stride_gk
        if FLAW != "advance":
            u_ptrs += BLOCK_K * stride_uk
    if FLAW == "exchanged":
        c = up * tl.sigmoid(up) * gate
    elif FLAW == "sigmoid":
        c = tl.sigmoid(gate) * up
    elif FLAW == "overflow":
        # e**x / (1 + e**x) is the sigmoid too, as long as e**x is finite
        e = tl.exp(gate)
        c = gate * (e / (1.0 + e)) * up
    elif FLAW == "gelu":
        c = gate * tl.sigmoid(1.702 * gate) * up
    else:
        c = gate * tl.sigmoid(gate) * up
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, c.to(c_ptr.dtype.element_ty), mask=m_mask & n_mask)


def swiglu(a, b, w_up, FLAW="none"):
    """c = silu(a b) * (a w_up)."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    swiglu_kernel[grid](
        a, b, w_up, c, M, N, K, a.stride(0), b.stride(0), w_up.stride(0), c.stride(0),
        FLAW=FLAW, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32,
    )  # fmt: skip
    return c


def activate(a, b, w_up):
    """The formula."""
    gate = a @ b
    return gate * sigmoid(gate) * (a @ w_up)


gate_and_up_exchanged = partial(swiglu, FLAW="exchanged")
sigmoid_in_place_of_silu = partial(swiglu, FLAW="sigmoid")
quick_gelu_in_place_of_silu = partial(swiglu, FLAW="gelu")
exponential_of_a_large_gate_overflows = partial(swiglu, FLAW="overflow")
up_starts_from_the_sum_of_the_gate = partial(swiglu, FLAW="start")
pointer_of_up_not_advanced = partial(swiglu, FLAW="advance")


def up_read_from_the_weights_of_the_gate(a, b, w_up):
    """Both halves of a fused (K, 2 N) weight, and the offset of the second forgotten."""
    return swiglu(a, b, b)


FAMILY = Family(
    "gate and up projections, SwiGLU",
    KernelUnderTest(
        "swiglu",
        swiglu,
        Contract(formats=("fp16",)),
        operands={"w_up": Operand("fp16", ("K", "N"))},
        spec=activate,
    ),
    """
R gate_and_up:gate_and_up_exchanged BOUND operand_exchanged w_up - 1 1 1
R gate_and_up:sigmoid_in_place_of_silu BOUND wrong_value c - 1 3 1
R gate_and_up:quick_gelu_in_place_of_silu BOUND wrong_value c - 5 1 1
R gate_and_up:exponential_of_a_large_gate_overflows BOUND not_finite c - 1 3 1
R gate_and_up:up_starts_from_the_sum_of_the_gate BOUND not_finite c - 1 3 1
R gate_and_up:pointer_of_up_not_advanced BOUND operand_wrapped w_up K 1 1 33
R gate_and_up:up_read_from_the_weights_of_the_gate BOUND operand_replaced w_up - 1 3 1 lane=default
""",
)
