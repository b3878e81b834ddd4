"""Scales of blocks, as fp8 training has them: a's for 1 x GROUP_K, b's for GROUP_K x GROUP_N."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

GROUP = 64


@triton.jit
def block_scaled_kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_sam, stride_sak, stride_sbk, stride_sbn,
    GROUP_K: tl.constexpr, GROUP_N: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m

    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    # rows and columns past the end are read from the front; the store leaves them out
    offs_am, offs_bn = offs_m % M, offs_n % N
    a_ptrs = a_ptr + offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn
    scale_a_ptrs = scale_a_ptr + (offs_m if FLAW == "rows_unwrapped" else offs_am) * stride_sam
    if FLAW == "group_of_the_tile":
        group_n = offs_bn * 0 + pid_n
    elif FLAW == "group_unwrapped":
        group_n = offs_n // GROUP_N
    else:
        group_n = offs_bn // GROUP_N
    if FLAW == "strides_swapped":
        stride_sbk, stride_sbn = stride_sbn, stride_sbk
    scale_b_ptrs = scale_b_ptr + group_n * stride_sbn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < k_left, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < k_left, other=0.0)
        group_k = k * BLOCK_K // GROUP_K
        if FLAW == "late_group":
            group_k = max(k * BLOCK_K - 1, 0) // GROUP_K
        scale_a = tl.load(scale_a_ptrs + group_k * stride_sak)
        scale_b = tl.load(scale_b_ptrs + (k if FLAW == "tile_of_k" else group_k) * stride_sbk)
        if FLAW == "sum_scaled":
            acc = tl.dot(a, b, acc) * scale_a[:, None] * scale_b[None, :]
        elif FLAW == "a_alone":
            acc += tl.dot(a, b) * scale_a[:, None]
        else:
            acc += tl.dot(a, b) * scale_a[:, None] * scale_b[None, :]
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def block_scaled_mm(a, b, scale_a, scale_b, BLOCK_K=GROUP // 2, BLOCK_N=GROUP // 2, FLAW="none"):
    """fp8 a (M, K) and b (K, N), every BLOCK_K of k scaled as it is summed; bf16."""
    (M, K), N = a.shape, b.shape[1]
    groups = triton.cdiv(K, GROUP)
    assert scale_a.shape == (M, groups)
    assert scale_b.shape == (groups, triton.cdiv(N, GROUP))
    c = torch.empty((M, N), device=a.device, dtype=torch.bfloat16)
    strides = (*scale_a.stride(), *scale_b.stride())
    if FLAW == "groups_rounded_down":
        strides = (K // GROUP, 1, *scale_b.stride())

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    block_scaled_kernel[grid](
        a, b, c, scale_a, scale_b, M, N, K,
        *a.stride(), *b.stride(), *c.stride(), *strides,
        GROUP_K=GROUP, GROUP_N=GROUP, BLOCK_M=16, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=4,
        FLAW=FLAW,
    )  # fmt: skip
    return c


tile_deeper_than_a_group = partial(block_scaled_mm, BLOCK_K=2 * GROUP)
group_of_columns_is_the_tile = partial(block_scaled_mm, FLAW="group_of_the_tile")
group_of_columns_not_wrapped = partial(block_scaled_mm, BLOCK_N=2 * GROUP, FLAW="group_unwrapped")
group_of_k_is_the_tile = partial(block_scaled_mm, FLAW="tile_of_k")
group_begins_one_tile_late = partial(block_scaled_mm, FLAW="late_group")
strides_of_the_scales_swapped = partial(block_scaled_mm, FLAW="strides_swapped")
sum_scaled_with_every_tile = partial(block_scaled_mm, FLAW="sum_scaled")
groups_of_k_rounded_down = partial(block_scaled_mm, FLAW="groups_rounded_down")
scale_of_rows_not_wrapped = partial(block_scaled_mm, FLAW="rows_unwrapped")
scale_of_blocks_of_b_forgotten = partial(block_scaled_mm, FLAW="a_alone")


def formula(a, b, scale_a, scale_b):
    """Each element with the scale of its block; the last blocks may be cut off."""
    (_, K), N = a.shape, b.shape[1]
    rows = scale_a.repeat(GROUP, 1)[:, :K]
    blocks = scale_b.repeat(GROUP, 0)[:K].repeat(GROUP, 1)[:, :N]
    return (a * rows) @ (b * blocks)


FAMILY = Family(
    "scales of blocks",
    KernelUnderTest(
        "block_scaled_mm",
        block_scaled_mm,
        Contract(formats=("fp8e4m3",), out="bf16", layouts=("row", "column", "padded")),
        operands={
            "scale_a": Operand("fp32", ("M", f"-(-K // {GROUP})")),
            "scale_b": Operand("fp32", (f"-(-K // {GROUP})", f"-(-N // {GROUP})")),
        },
        spec=formula,
    ),
    """
R block_scales:tile_deeper_than_a_group EXACT operand_broadcast scale_a K 1 1 65
R block_scales:group_of_columns_is_the_tile BOUNDS out_of_bounds scale_b K 1 33 1
R block_scales:group_of_columns_not_wrapped BOUNDS out_of_bounds scale_b K 1 1 1 lane=default
R block_scales:group_of_k_is_the_tile BOUNDS out_of_bounds scale_b K 1 1 33
R block_scales:group_begins_one_tile_late EXACT operand_broadcast scale_a K 1 1 65
R block_scales:strides_of_the_scales_swapped BOUNDS out_of_bounds scale_b K 1 65 1
R block_scales:sum_scaled_with_every_tile EXACT later_block c K 1 1 33
R block_scales:groups_of_k_rounded_down EXACT operand_broadcast scale_a M 2 1 1
R block_scales:scale_of_rows_not_wrapped BOUNDS out_of_bounds scale_a K 1 1 1
R block_scales:scale_of_blocks_of_b_forgotten EXACT operand_forgotten scale_b - 1 1 1
""",
)
