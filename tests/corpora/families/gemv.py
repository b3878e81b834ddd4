"""Matrix times vector: rows of a reduced by tl.sum, autotuned, with a split over k by atomics."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

CONFIGS = [
    triton.Config({"BLOCK_M": 16, "BLOCK_K": 64}, num_warps=4),
    triton.Config({"BLOCK_M": 8, "BLOCK_K": 128}, num_warps=4),
]


@triton.autotune(configs=CONFIGS, key=["M", "K"])
@triton.jit
def gemv_kernel(
    a_ptr, x_ptr, y_ptr, bias_ptr, M, K, stride_am, stride_ak, stride_xk, stride_ym,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + offs_k
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + ks[None, :] * stride_ak
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (ks[None, :] < K), other=0.0)
        if FLAW == "dense_vector":
            x = tl.load(x_ptr + ks, mask=ks < K, other=0.0)
        elif FLAW == "vector_of_the_first_tile":
            x = tl.load(x_ptr + offs_k * stride_xk, mask=ks < K, other=0.0)
        elif FLAW == "vector_not_masked":
            x = tl.load(x_ptr + ks * stride_xk)
        else:
            x = tl.load(x_ptr + ks * stride_xk, mask=ks < K, other=0.0)
        if FLAW == "half_products":
            acc += tl.sum((a * x[None, :]).to(tl.float32), axis=1)
        elif FLAW == "half_sums":
            acc += tl.sum(a * x[None, :], axis=1)
        elif FLAW == "last_tile_alone":
            acc = tl.sum(a.to(tl.float32) * x[None, :].to(tl.float32), axis=1)
        else:
            acc += tl.sum(a.to(tl.float32) * x[None, :].to(tl.float32), axis=1)
        if FLAW == "bias_in_the_loop":
            acc += tl.load(bias_ptr + offs_m, mask=offs_m < M, other=0.0)
    if FLAW == "bias_of_the_tile":
        acc += tl.load(bias_ptr + tl.arange(0, BLOCK_M), mask=offs_m < M, other=0.0)
    elif FLAW != "bias_in_the_loop":
        acc += tl.load(bias_ptr + offs_m, mask=offs_m < M, other=0.0)
    mask = offs_m < M
    if FLAW == "store_masked_by_k":
        mask = offs_m < K
    tl.store(y_ptr + offs_m * stride_ym, acc.to(y_ptr.dtype.element_ty), mask=mask)


def gemv(a, x, bias, FLAW="none"):
    """a (M, K) times x (K, 1), plus a bias a row."""
    M, K = a.shape
    y = torch.empty((M, 1), device=a.device, dtype=a.dtype)

    def grid(meta):
        if FLAW == "grid_rounded_down":
            return (max(M // meta["BLOCK_M"], 1),)
        return (triton.cdiv(M, meta["BLOCK_M"]),)

    gemv_kernel[grid](
        a, x, y, bias, M, K, *a.stride(), x.stride(0), y.stride(0), FLAW=FLAW
    )  # fmt: skip
    return y


vector_taken_for_dense = partial(gemv, FLAW="dense_vector")
vector_does_not_advance = partial(gemv, FLAW="vector_of_the_first_tile")
vector_not_masked = partial(gemv, FLAW="vector_not_masked")
products_rounded_to_half = partial(gemv, FLAW="half_products")
tiles_summed_in_half = partial(gemv, FLAW="half_sums")
last_tile_of_k_alone = partial(gemv, FLAW="last_tile_alone")
bias_added_by_every_tile = partial(gemv, FLAW="bias_in_the_loop")
bias_of_the_first_rows = partial(gemv, FLAW="bias_of_the_tile")
store_masked_by_k = partial(gemv, FLAW="store_masked_by_k")
last_rows_without_a_program = partial(gemv, FLAW="grid_rounded_down")

FAMILY = Family(
    "matrix times vector",
    KernelUnderTest(
        "gemv",
        gemv,
        Contract(formats=("fp16",), N=1, layouts=("row", "column", "padded", "sliced")),
        operands={"bias": Operand("fp32", "M")},
        spec=lambda a, b, bias: a @ b + bias[:, None],
    ),
    """
R gemv:vector_taken_for_dense BOUNDS out_of_bounds b N 1 1 2 b=padded
R gemv:vector_does_not_advance EXACT operand_wrapped b K 1 1 65
R gemv:vector_not_masked BOUNDS out_of_bounds b N 1 1 1
R gemv:products_rounded_to_half BOUND rounding c - 1 1 15 fill=normal
R gemv:tiles_summed_in_half BOUND rounding c - 1 1 15 fill=normal
R gemv:last_tile_of_k_alone EXACT k_block c K 1 1 65
R gemv:bias_added_by_every_tile EXACT operand_applied_twice bias - 1 1 65
R gemv:bias_of_the_first_rows EXACT operand_wrapped bias M 17 1 1 seed=2
R gemv:store_masked_by_k BOUNDS out_of_bounds c N 1 1 2 lane=default
R gemv:last_rows_without_a_program ONCE never_stored c M 17 1 1
""",
)
