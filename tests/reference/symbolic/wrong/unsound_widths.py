"""Wrong kernels whose integers leave their type, and numbers that end in other lanes."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store


@triton.jit
def wide_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if FLAW == "shift":
        acc = tl.where(M << K == 77, acc * 2, acc)
    if FLAW == "window":
        window = tl.make_block_ptr(a_ptr, (M, K), sa, (0, 0), (BLOCK, BLOCK), (1, 0))
        far = tl.advance(tl.advance(window, (0, K * 16384)), (0, K * 16384))
        acc += tl.load(far, boundary_check=(0, 1), padding_option="zero").to(tl.float32) * 0
    if FLAW == "narrowed":
        far = tl.cast(1, tl.int64) << (tl.minimum(tl.program_id(0), 1) + 33)
        near = far.to(tl.int32)  # 0: the bits that say how far it is are lost
        acc += tl.load(a_ptr + far, mask=(near >= 0) & (near < K), other=0.0) * 0.0
    if FLAW == "equal":
        acc = tl.where(M * N * K == 0, acc * 2, acc)
    if FLAW == "unequal":
        if M * N * K != 0:
            store(c_ptr, acc, offs_m, offs_n, M, N, sc)
    else:
        store(c_ptr, acc, offs_m, offs_n, M, N, sc)


shifted_by_k = partial(launch, wide_kernel, FLAW="shift")
window_far_away = partial(launch, wide_kernel, FLAW="window")
masked_by_its_low_bits = partial(launch, wide_kernel, FLAW="narrowed")
doubled_if_a_product_is_zero = partial(launch, wide_kernel, FLAW="equal")
stored_unless_a_product_is_zero = partial(launch, wide_kernel, FLAW="unequal")


@triton.jit
def carried_lanes_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, ones_ptr, BLOCK: tl.constexpr):
    """A block that is undefined beyond the last row is transposed by every step."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    ones = tl.load(ones_ptr + offs_m[:, None] + offs_n[None, :] * 0, mask=offs_m[:, None] < M)
    for _ in range(0, K, BLOCK):
        ones = tl.trans(ones) * 1.5
    store(c_ptr, acc * ones, offs_m, offs_n, M, N, sc)


def undefined_lanes_moved_by_a_loop(a, b):
    ones = torch.ones(a.shape[0], device=a.device, dtype=torch.float32)
    return launch(carried_lanes_kernel, a, b, ones)
