"""Class Q: kernels that Triton's frontend refuses, in every specialisation or in one."""

from functools import partial

import triton
import triton.language as tl
from tests.corpora.tiled import launch


@triton.jit
def refused_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FLAW: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    if FLAW == "hint":
        stride_am = tl.multiple_of(stride_am, 1)
    acc = tl.zeros((BLOCK, BLOCK_N), dtype=tl.float32)
    if FLAW == "type":
        acc = tl.zeros((BLOCK, BLOCK_N), dtype=tl.float16)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        if FLAW == "break" and k + BLOCK >= K:
            break
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, refused_kernel, FLAW="", BLOCK_N=16)
accumulator_changes_its_type = partial(right, FLAW="type")
# a stride of 1 is a constant in the kernel, and a constant takes no hint
hint_on_a_stride_of_1 = partial(right, FLAW="hint")
loop_left_with_break = partial(right, FLAW="break")

_CONFIGS = [triton.Config({"BLOCK_N": 16}), triton.Config({"BLOCK_N": 24})]
tuned_kernel = triton.autotune(_CONFIGS, key=["M", "N", "K"])(refused_kernel)
# a block's sides are powers of two; only the tuner's second choice is not
one_configuration_of_24_columns = partial(launch, tuned_kernel, FLAW="")
