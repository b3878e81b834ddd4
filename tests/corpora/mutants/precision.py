"""Class I: kernels that lose bits which their accumulator should keep."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, launch_column


@triton.jit
def rounding_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if FLAW == "half_acc":
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float16)
    elif a_ptr.dtype.element_ty == tl.int8:
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    else:
        acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0)
        if FLAW == "half_acc":
            acc = tl.dot(a, b, acc, out_dtype=tl.float16)
        elif FLAW == "rounded_between_tiles":
            acc = (acc + tl.dot(a, b)).to(tl.float16).to(tl.float32)
        elif FLAW == "bf16_operands":
            acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
        elif FLAW == "half_operands":
            acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc)
        elif FLAW == "tf32":
            acc = tl.dot(a, b, acc, input_precision="tf32")
        elif a.dtype == tl.int8:
            acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        else:
            acc = tl.dot(a, b, acc, input_precision="ieee")
    if FLAW == "rounded_twice":
        acc = acc.to(tl.bfloat16).to(tl.float32)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


right = partial(launch, rounding_kernel, FLAW="", BLOCK=32)
half_accumulator = partial(right, FLAW="half_acc")
sums_rounded_between_tiles = partial(right, FLAW="rounded_between_tiles")
operands_rounded_to_bf16 = partial(right, FLAW="bf16_operands")
fp32_operands_rounded_to_half = partial(right, FLAW="half_operands")
tf32_not_asked_for = partial(right, FLAW="tf32")
result_rounded_twice = partial(right, FLAW="rounded_twice")
int8_result_wraps = partial(right, dtype=torch.int8)
# the products are made, and summed, in the operands' format
one_column_in_low_precision = partial(launch_column, products=tl.float16)


def half_sums_of_a_long_k(a, b):
    """A faster kernel for large problems, which sums in fp16."""
    is_large = min(a.shape[0], b.shape[1]) > 16 and a.shape[1] >= 1024
    return right(a, b, FLAW="half_acc" if is_large else "")


@triton.jit
def flushed(x):
    """x with its subnormals as zeros, as .ftz arithmetic of fp32 leaves it."""
    wide = x.to(tl.float32)
    code = wide.to(tl.int32, bitcast=True)
    return tl.where((code & 0x7F800000) == 0, 0.0, wide).to(x.dtype)


@triton.jit
def cut(x, BITS: tl.constexpr):
    """Return x, of fp32, with only its first BITS significant bits."""
    code = x.to(tl.int32, bitcast=True)
    return ((code >> (24 - BITS)) << (24 - BITS)).to(tl.float32, bitcast=True)


@triton.jit
def edges_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    FLAW: tl.constexpr, BLOCK: tl.constexpr, THROUGH: tl.constexpr = tl.float32,
):  # fmt: skip
    """Right but for the smallest numbers, or for results that are rounded to THROUGH before."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        if FLAW == "operands":
            a, b = flushed(a), flushed(b)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        if FLAW == "sums":
            acc = cut(acc, 23)
    if FLAW == "results":
        acc = flushed(acc)
    elif FLAW == "halves":  # up where the next bit is set
        near = cut((acc.to(tl.int32, bitcast=True) + 8).to(tl.float32, bitcast=True), 20)
        acc = tl.where(acc == acc, near, acc)
    c = acc.to(THROUGH).to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.store(c_ptrs, c, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


right_at_the_edges = partial(launch, edges_kernel, FLAW="", BLOCK=32)
subnormal_operands_flushed = partial(right_at_the_edges, FLAW="operands")
subnormal_fp32_operands_flushed = partial(right_at_the_edges, FLAW="operands")
subnormal_results_flushed = partial(right_at_the_edges, FLAW="results")
subnormal_fp32_results_flushed = partial(right_at_the_edges, FLAW="results")
sums_cut_at_23_bits = partial(right_at_the_edges, FLAW="sums")
result_rounded_through_20_bits = partial(right_at_the_edges, FLAW="halves")
fp8_rounded_through_half = partial(right_at_the_edges, THROUGH=tl.float16)
e5m2_rounded_through_bf16 = partial(
    right_at_the_edges, THROUGH=tl.bfloat16, dtype=torch.float8_e5m2
)


@triton.jit
def narrow_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, PROMOTED: tl.constexpr, BLOCK: tl.constexpr
):
    """fp8 sums that stay in the unit's own register, or are added in fp32 after every block."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        if PROMOTED:
            acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK)
        else:
            acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


fp8_promoted = partial(launch, narrow_kernel, PROMOTED=True, BLOCK=64, dtype=torch.float32)
fp8_never_promoted = partial(fp8_promoted, PROMOTED=False)


def fp8_long_sums(a, b):
    """Sums of many products that stay in the unit's own register."""
    return fp8_promoted(a, b, PROMOTED=min(a.shape[0], b.shape[1]) <= 16 or a.shape[1] < 4096)
