"""Mixture of experts: tokens sorted by expert and padded to blocks, each block one expert's."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand

EXPERTS, TOP_K = 4, 2


@triton.jit
def fused_moe_kernel(
    a_ptr, w_ptr, c_ptr, weights_ptr, sorted_ids_ptr, expert_ids_ptr, padded_ptr,
    N, K, n_slots, stride_am, stride_we, stride_wn, stride_cm,
    TOP_K: tl.constexpr, FLAW: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    if pid_m * BLOCK_M >= tl.load(padded_ptr):
        return
    # one slot for each choice of each token; what pads a block has numbers beyond the last slot
    offs_slot = tl.load(sorted_ids_ptr + pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    slot_mask = offs_slot < n_slots
    block = pid_m
    if FLAW == "expert":
        block = tl.minimum(pid_m + 1, tl.load(padded_ptr) // BLOCK_M - 1)
    expert = tl.load(expert_ids_ptr + block).to(tl.int64)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    n_mask = offs_n < N
    token = offs_slot // TOP_K
    if FLAW == "gather":
        # the choices of a token lie side by side, not one token's after all the others'
        token = offs_slot % (n_slots // TOP_K)
    a_mask = slot_mask
    if FLAW == "a_mask":
        a_mask = offs_slot >= 0
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        k_mask = offs_k < K
        a_ptrs = a_ptr + token[:, None] * stride_am + offs_k[None, :]
        a = tl.load(a_ptrs, mask=a_mask[:, None] & k_mask[None, :], other=0.0)
        w_ptrs = w_ptr + expert * stride_we + offs_n[None, :] * stride_wn + offs_k[:, None]
        w = tl.load(w_ptrs, mask=k_mask[:, None] & n_mask[None, :], other=0.0)
        acc = tl.dot(a, w, acc)
    which = offs_slot
    if FLAW == "weight":
        which = token
    weight = tl.load(weights_ptr + which, mask=slot_mask, other=0.0)
    if FLAW != "unweighted":
        acc = acc * weight[:, None]
    c_ptrs = c_ptr + offs_slot[:, None] * stride_cm + offs_n[None, :]
    mask = slot_mask[:, None] & n_mask[None, :]
    if FLAW == "padding":
        mask = (offs_slot[:, None] <= n_slots) & n_mask[None, :]
    tl.store(c_ptrs, acc, mask=mask)


def align_block_size(topk_ids, block):
    """Slots sorted by expert, each expert's padded to whole blocks; the expert of every block.

    As production does it, every array has the length that the worst case needs, and a number on the
    device says how much of it is used.
    """
    flat = topk_ids.reshape(-1)
    longest = flat.numel() + EXPERTS * (block - 1)
    blocks = triton.cdiv(longest, block)
    sorted_ids = torch.full((blocks * block,), flat.numel(), dtype=torch.int32, device=flat.device)
    expert_ids = torch.zeros((blocks,), dtype=torch.int32, device=flat.device)
    used = 0
    for expert in range(EXPERTS):
        slots = torch.nonzero(flat == expert).reshape(-1)
        sorted_ids[used : used + len(slots)] = slots.to(torch.int32)
        filled = triton.cdiv(len(slots), block)
        expert_ids[used // block : used // block + filled] = expert
        used += filled * block
    padded = torch.tensor([used], dtype=torch.int32, device=flat.device)
    return sorted_ids, expert_ids, padded


def align_by_counting(topk_ids, block, counter=torch.int32):
    """Return the same, from the rank of each slot among those of its expert."""
    flat = topk_ids.reshape(-1)
    chosen = flat[:, None] == torch.arange(EXPERTS, device=flat.device)
    ranks = chosen.to(counter).cumsum(0, dtype=counter)
    filled = (chosen.sum(0) + block - 1) // block
    ends = filled.cumsum(0)
    longest = flat.numel() + EXPERTS * (block - 1)
    blocks = triton.cdiv(longest, block)
    sorted_ids = torch.full((blocks * block,), flat.numel(), dtype=torch.int32, device=flat.device)
    slots = torch.arange(flat.numel(), device=flat.device)
    rank = ranks[slots, flat.long()].long() - 1
    sorted_ids[(ends - filled)[flat.long()] * block + rank] = slots.to(torch.int32)
    block_ids = torch.arange(blocks, device=flat.device)
    expert_ids = (block_ids[:, None] >= ends).sum(1).clamp(max=EXPERTS - 1).to(torch.int32)
    return sorted_ids, expert_ids, (ends[-1:] * block).to(torch.int32)


def fused_moe(a, b, topk_ids, topk_weights, FLAW="none", align=align_block_size):
    """c[m] = sum over the choices j of m: weight[m, j] a[m] b[id[m, j]].T."""
    (M, K), N = a.shape, b.shape[1]
    sorted_ids, expert_ids, padded = align(topk_ids, 16)
    chosen = torch.empty((M * TOP_K, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(sorted_ids.shape[0], 16), triton.cdiv(N, 32))
    fused_moe_kernel[grid](
        a, b, chosen, topk_weights, sorted_ids, expert_ids, padded,
        N, K, M * TOP_K, a.stride(0), b.stride(0), b.stride(1), chosen.stride(0),
        TOP_K=TOP_K, FLAW=FLAW, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
    )  # fmt: skip
    return chosen.view(M, TOP_K, N).sum(dim=1).to(a.dtype)


def mix_experts(a, b, topk_ids, topk_weights):
    """The weighted sum of the outputs of the chosen experts for a token."""
    outputs = [
        (a[:, None, :] @ b[topk_ids[:, j]].mT)[:, 0, :] * topk_weights[:, j, None]
        for j in range(TOP_K)
    ]
    return sum(outputs[1:], outputs[0])


slots_counted_in_32_bits = partial(fused_moe, align=align_by_counting)
slots_counted_in_8_bits = partial(fused_moe, align=partial(align_by_counting, counter=torch.int8))
slots_counted_in_16_bits = partial(fused_moe, align=partial(align_by_counting, counter=torch.int16))
expert_of_the_next_block = partial(fused_moe, FLAW="expert")
tokens_gathered_as_if_choices_were_the_outer_axis = partial(fused_moe, FLAW="gather")
rows_of_padding_slots_are_read = partial(fused_moe, FLAW="a_mask")
first_padding_slot_is_stored = partial(fused_moe, FLAW="padding")
router_weight_of_the_token_number = partial(fused_moe, FLAW="weight")
router_weights_forgotten = partial(fused_moe, FLAW="unweighted")

FAMILY = Family(
    "mixture of experts",
    KernelUnderTest(
        "fused_moe",
        fused_moe,
        Contract(formats=("fp16",)),
        operands={
            "b": Operand("fp16", (EXPERTS, "N", "K")),
            "topk_ids": Operand("int32", ("M", TOP_K), (0, EXPERTS - 1)),
            "topk_weights": Operand("fp32", ("M", TOP_K)),
        },
        spec=mix_experts,
    ),
    """
R moe_experts:expert_of_the_next_block EXACT operand_shifted b - 1 1 1
R moe_experts:tokens_gathered_as_if_choices_were_the_outer_axis EXACT wrong_value c - 2 1 1
R moe_experts:rows_of_padding_slots_are_read BOUNDS out_of_bounds a M 1 1 1
R moe_experts:first_padding_slot_is_stored BOUNDS out_of_bounds c_ptr 0 1 1 1 lane=default
R moe_experts:router_weight_of_the_token_number EXACT operand_strides topk_weights - 1 1 1
R moe_experts:router_weights_forgotten EXACT operand_forgotten topk_weights - 1 1 1
""",
)
