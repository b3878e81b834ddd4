"""LoRA adapters: x A of the token's adapter shrinks to the rank, times B expands, onto a base."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

ADAPTERS, RANK, SPLIT_K = 3, 8, 2
SCALING = 0.5


@triton.jit
def shrink_kernel(
    a_ptr, lora_a_ptr, buffer_ptr, ids_ptr, M, K, scaling, stride_am, stride_le, stride_lr,
    RANK: tl.constexpr, SPLIT_K: tl.constexpr, FLAW: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    adapter = tl.load(ids_ptr + row).to(tl.int64)
    if FLAW == "first":
        # the tokens of a block of 4 are those of one request
        adapter = tl.load(ids_ptr + row // 4 * 4).to(tl.int64)
    if (adapter < 0) & (FLAW != "minus_one"):
        return
    offs_r = tl.arange(0, RANK)
    acc = tl.zeros((RANK,), dtype=tl.float32)
    for start in range(part * BLOCK_K, K, SPLIT_K * BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        k_mask = offs_k < K
        a = tl.load(a_ptr + row * stride_am + offs_k, mask=k_mask, other=0.0).to(tl.float32)
        ptrs = lora_a_ptr + adapter * stride_le + offs_r[:, None] * stride_lr + offs_k[None, :]
        w = tl.load(ptrs, mask=k_mask[None, :], other=0.0).to(tl.float32)
        acc += tl.sum(w * a[None, :], axis=1)
    tl.atomic_add(buffer_ptr + row * RANK + offs_r, acc * scaling, sem="relaxed")


@triton.jit
def expand_kernel(
    buffer_ptr, lora_b_ptr, y_ptr, ids_ptr, M, N, scaling, stride_ym, stride_le, stride_ln,
    RANK: tl.constexpr, FLAW: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_r = tl.arange(0, RANK)
    n_mask = offs_n < N
    adapter = tl.load(ids_ptr + row).to(tl.int64)
    if FLAW == "first":
        adapter = tl.load(ids_ptr + row // 4 * 4).to(tl.int64)
    y_ptrs = y_ptr + row * stride_ym + offs_n
    if adapter < 0:
        if FLAW == "zero":
            tl.store(y_ptrs, tl.zeros_like(offs_n).to(y_ptr.dtype.element_ty), mask=n_mask)
        return
    x = tl.load(buffer_ptr + row * RANK + offs_r)
    ptrs = lora_b_ptr + adapter * stride_le + offs_n[:, None] * stride_ln + offs_r[None, :]
    if FLAW == "swapped":
        ptrs = lora_b_ptr + adapter * stride_le + offs_r[None, :] * N + offs_n[:, None]
    w = tl.load(ptrs, mask=n_mask[:, None], other=0.0).to(tl.float32)
    y = tl.sum(w * x[None, :], axis=1) * scaling
    if FLAW != "overwrite":
        y += tl.load(y_ptrs, mask=n_mask, other=0.0).to(tl.float32)
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=n_mask)


def lora_mm(
    a, b, lora_a, ids, y, shrink="none", expand="none",
    make=torch.zeros, scalings=(SCALING, 1.0),
):  # fmt: skip
    """y += scaling (a A[id].T) b[id].T; a token without an adapter has id -1, and y stays there.

    A is (adapters, rank, K) and b (adapters, N, rank). The shrink shares out K and adds onto zeros;
    the scaling is its business.
    """
    (M, K), N = a.shape, y.shape[1]
    buffer = make((M, RANK), device=a.device, dtype=torch.float32)
    shrink_kernel[(M, SPLIT_K)](
        a, lora_a, buffer, ids, M, K, scalings[0],
        a.stride(0), lora_a.stride(0), lora_a.stride(1),
        RANK=RANK, SPLIT_K=SPLIT_K, FLAW=shrink, BLOCK_K=32,
    )  # fmt: skip
    expand_kernel[(M, triton.cdiv(N, 32))](
        buffer, b, y, ids, M, N, scalings[1], y.stride(0), b.stride(0), b.stride(1),
        RANK=RANK, FLAW=expand, BLOCK_N=32,
    )  # fmt: skip
    return y


def add_adapters(a, b, lora_a, ids, y):
    """Return y, plus the contribution of the adapter for tokens that have one."""
    known = np.maximum(ids, 0)
    x = a[:, None, :] @ lora_a[known].mT * SCALING
    added = (x @ b[known].mT)[:, 0, :]
    return y + np.where((ids >= 0)[:, None], added, 0.0)


shrink_knows_no_missing_adapter = partial(lora_mm, shrink="minus_one")
buffer_of_the_shrink_not_zeroed = partial(lora_mm, make=torch.empty)
scaling_in_shrink_and_expand = partial(lora_mm, scalings=(SCALING, SCALING))
adapter_of_the_first_of_four_tokens = partial(lora_mm, shrink="first", expand="first")
tokens_without_adapter_zeroed = partial(lora_mm, expand="zero")
rank_and_columns_of_b_exchanged = partial(lora_mm, expand="swapped")
result_overwritten_not_added_to = partial(lora_mm, expand="overwrite")

FAMILY = Family(
    "LoRA adapters of tokens",
    KernelUnderTest(
        "lora_mm",
        lora_mm,
        Contract(formats=("fp16",), deterministic=False),
        operands={
            "lora_a": Operand("fp16", (ADAPTERS, RANK, "K")),
            "b": Operand("fp16", (ADAPTERS, "N", RANK)),
            "ids": Operand("int32", "M", (-1, ADAPTERS - 1)),
            "y": Operand("fp16", ("M", "N"), use="updated"),
        },
        spec=add_adapters,
    ),
    """
R lora_adapters:shrink_knows_no_missing_adapter BOUNDS out_of_bounds lora_a 0 1 1 1 lane=default
R lora_adapters:buffer_of_the_shrink_not_zeroed LANES undefined_stored buffer_ptr - 2 1 1
R lora_adapters:scaling_in_shrink_and_expand EXACT operand_multiplied lora_a - 2 1 1
R lora_adapters:adapter_of_the_first_of_four_tokens EXACT operand_broadcast ids M 2 1 1
R lora_adapters:tokens_without_adapter_zeroed EXACT operand_forgotten y - 1 1 1
R lora_adapters:rank_and_columns_of_b_exchanged EXACT operand_strides b - 2 2 1
R lora_adapters:result_overwritten_not_added_to EXACT operand_forgotten y - 2 1 1
""",
)
