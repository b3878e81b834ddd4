"""One kernel with one flaw at a time, each accused of its flaw, and of nothing without it."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.engine.check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract, KernelUnderTest

BLOCK = 16


@triton.jit
def flawed_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    FLAW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if a_ptr.dtype.element_ty == tl.int8:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    elif FLAW == "half_acc":
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tiles = tl.cdiv(K, BLOCK_K)
    if FLAW == "last_k_tile_dropped":
        tiles = K // BLOCK_K
    for tile in range(0, tiles):
        offs_k = tile * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        if FLAW == "no_row_mask":
            a_mask = offs_k[None, :] < K
        if FLAW == "no_column_mask":
            b_mask = offs_k[:, None] < K
        if FLAW == "no_k_mask":
            a_mask = offs_m[:, None] < M
            b_mask = offs_n[None, :] < N
        if FLAW == "k_mask_one_too_far":
            a_mask = (offs_m[:, None] < M) & (offs_k[None, :] <= K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        if FLAW == "no_other":
            a = tl.load(a_ptrs, mask=a_mask)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        elif FLAW == "other_is_one":
            a = tl.load(a_ptrs, mask=a_mask, other=1.0)
            b = tl.load(b_ptrs, mask=b_mask, other=1.0)
        else:
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        if FLAW == "bf16_operands":
            a = a.to(tl.bfloat16)
            b = b.to(tl.bfloat16)
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=acc.dtype)
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if FLAW == "no_store_mask":
        c_mask = offs_n[None, :] < N
    if FLAW == "store_mask_too_tight":
        c_mask = (offs_m[:, None] < M - 1) & (offs_n[None, :] < N)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def flawed(flaw):
    """A wrapper whose kernel, or whose own code, has one flaw."""

    def matmul(a, b):
        (M, K), N = a.shape, b.shape[1]
        dtype = {torch.int8: torch.int32}.get(a.dtype, a.dtype)
        dtype = torch.int8 if flaw == "int8_result" else dtype
        c = torch.empty((M, N), device=a.device, dtype=dtype)
        strides = [*a.stride(), *b.stride(), *c.stride()]
        if flaw == "strides_of_a_swapped":
            strides[:2] = strides[1], strides[0]
        if flaw == "strides_of_b_assumed":
            strides[2:4] = N, 1
        if flaw == "strides_of_c_swapped":
            strides[4:] = strides[5], strides[4]
        rows = M // BLOCK if flaw == "grid_rounded_down" else triton.cdiv(M, BLOCK)
        grid = (rows, triton.cdiv(N, BLOCK), 2 if flaw == "launched_twice" else 1)
        if M and N and rows:
            block_k = 32 if a.element_size() == 1 else BLOCK
            flawed_kernel[grid](a, b, c, M, N, K, *strides, flaw, BLOCK, BLOCK, block_k)
        if flaw == "input_scaled":
            a.mul_(2)
        return c

    return matmul


FLAWS = {
    # flaw -> property, fault, operand, axis and smallest case of the first finding
    "no_row_mask": ("stays_in_bounds", "out_of_bounds", "a", "M", Case(1, 1, 1)),
    "no_column_mask": ("stays_in_bounds", "out_of_bounds", "b", "N", Case(1, 1, 1)),
    "no_k_mask": ("stays_in_bounds", "out_of_bounds", "a", "K", Case(1, 1, 1)),
    "k_mask_one_too_far": ("stays_in_bounds", "out_of_bounds", "a", "K", Case(1, 1, 1)),
    "no_store_mask": ("stays_in_bounds", "out_of_bounds", "c", "M", Case(1, 1, 1)),
    "strides_of_a_swapped": ("stays_in_bounds", "out_of_bounds", "a", "M", Case(1, 1, 2)),
    "strides_of_c_swapped": ("stays_in_bounds", "out_of_bounds", "c", None, None),
    "no_other": ("undefined_lanes_never_stored", "undefined_stored", "a", "K", Case(1, 1, 1)),
    "other_is_one": ("exact_on_integers", "k_tail", "c", "K", Case(1, 1, 1)),
    "last_k_tile_dropped": ("exact_on_integers", "last_k_block", "c", "K", Case(1, 1, 1)),
    "half_acc": ("within_bound", "rounding", "c", None, None),
    "bf16_operands": ("within_bound", "rounding", "c", None, Case(1, 1, 1, fill="normal")),
    "store_mask_too_tight": ("stores_each_element_once", "never_stored", "c", "M", Case(2, 1, 1)),
    "grid_rounded_down": ("stores_each_element_once", "never_stored", "c", "M", Case(17, 1, 1)),
    "launched_twice": ("stores_each_element_once", "stored_twice", "c", None, Case(1, 1, 1)),
    "input_scaled": ("leaves_inputs_untouched", "element_changed", "a", None, Case(1, 1, 1)),
    "int8_result": ("exact_on_integers", "wrapped", "c", None, Case(1, 1, 1, "int8")),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flawed_kernel_is_accused_of_its_flaw(flaw):
    contract = Contract(("int8",) if flaw == "int8_result" else ("fp16",))
    kernel = KernelUnderTest("matmul", flawed(flaw), contract)
    report = check(kernel)
    assert report.verdict == "fail"
    name, fault, operand, axis, case = FLAWS[flaw]
    first = report.findings[0]
    assert (first.property, first.cause) == (name, None)
    if case is not None:
        assert (first.fault, first.operand, first.axis) == (fault, operand, axis)
        assert first.case == case
    if name == "stays_in_bounds":
        assert first.where.startswith("test_flawed_kernels.py:")
    replayed = check(kernel, case=first.case)
    assert first.property in {f.property for f in replayed.findings}


def test_a_missing_k_mask_is_one_cause_and_all_else_its_consequence():
    report = check(KernelUnderTest("matmul", flawed("no_k_mask")))
    roots = [(f.property, f.operand, f.axis) for f in report.findings if f.cause is None]
    assert roots == [("stays_in_bounds", "a", "K"), ("stays_in_bounds", "b", "K")]
    assert {f.property for f in report.findings if f.cause is not None} == {
        "undefined_lanes_never_stored",
        "exact_on_integers",
        "within_bound",
        "same_bits_on_dirty_outputs",
    }


def test_swapped_strides_are_told_by_the_values_too():
    report = check(KernelUnderTest("matmul", flawed("strides_of_b_assumed")))
    told = [f for f in report.findings if f.fault == "wrong_strides"]
    assert [f.operand for f in told] == ["b"]
    assert {f.cause for f in report.findings if f.property == "within_bound"} == {told[0].property}


def test_a_kernel_is_not_accused_of_layouts_that_it_never_promised():
    launch = flawed("strides_of_b_assumed")
    assert check(KernelUnderTest("matmul", launch)).verdict == "fail"
    dense = Contract(layouts="contiguous")
    assert check(KernelUnderTest("matmul", launch, dense), max_examples=20).verdict == "pass"


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8e4m3", "int8"])
def test_the_same_kernel_without_a_flaw_passes(dtype):
    report = check(KernelUnderTest("matmul", flawed("none"), Contract((dtype,))), max_examples=25)
    assert report.findings == ()
    assert report.verdict == "pass"
