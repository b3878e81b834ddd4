"""Sums, roundings and counters that are too narrow, some of them for a few sizes alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.families import moe_experts
from tests.corpora.mutants import precision
from tests.corpora.tiled import launch, plain, product, store

from gemmproof import Contract, KernelUnderTest, check


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("launch", "dtype", "target", "property_name", "sizes"),
    [
        (precision.sums_cut_at_23_bits, "bf16", None, "exact_on_integers", (11, 1, 3)),
        (precision.result_rounded_through_20_bits, "bf16", None, "exact_on_integers", (11, 1, 3)),
        (precision.sums_cut_at_23_bits, "fp16", None, "exact_on_integers", (12, 1, 3)),
        (precision.result_rounded_through_20_bits, "fp16", None, "exact_on_integers", (12, 1, 3)),
        (precision.half_sums_of_a_long_k, "fp16", None, "within_bound", (17, 17, 1024)),
        (precision.fp8_long_sums, "fp8e4m3", "sm_90", "within_bound", (17, 17, 4096)),
    ],
)
def test_narrow_sums_and_roundings_are_found(launch, dtype, target, property_name, sizes):
    kernel = KernelUnderTest("narrow", launch, Contract((dtype,)))
    (finding,) = (f for f in check(kernel, target=target).findings if f.cause is None)
    case = finding.case
    assert (finding.property, finding.fault) == (property_name, "rounding")
    assert (case.M, case.N, case.K) == sizes


@pytest.mark.lane("full")
@pytest.mark.parametrize(("bits", "rows"), [(8, 249), (16, 65120), (32, None)])
def test_counters_of_8_and_16_bits_are_found(bits, rows):
    """Tokens are counted for each expert: with 4 experts and 2 choices the 249th row wraps."""
    launch = getattr(moe_experts, f"slots_counted_in_{bits}_bits")
    report = check(replace(moe_experts.FAMILY.right, launch=launch, name="counted"))
    lost = {(f.property, f.case.M) for f in report.findings if f.fault == "never_stored"}
    assert lost == (set() if rows is None else {("stores_each_element_once", rows)})
    assert report.verdict == ("pass" if rows is None else "fail")


@triton.jit
def indexed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if BITS == 8:
        offs_m = offs_m.to(tl.int8)
    elif BITS == 16:
        offs_m = offs_m.to(tl.int16)
    acc = product(a_ptr, b_ptr, offs_m.to(tl.int64), offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m.to(tl.int64), offs_n, M, N, sc)


@pytest.mark.lane("full")
@pytest.mark.parametrize(("bits", "rows"), [(8, 129), (16, 32769), (32, None)])
def test_an_index_that_is_cast_to_8_or_16_bits_is_found(bits, rows):
    """Without a proof, which finds the size for 8 bits by itself."""
    kernel = KernelUnderTest("indexed", partial(launch, indexed_kernel, BITS=bits), Contract())
    report = check(kernel, proof=False, max_examples=20)
    assert report.verdict == ("fail" if rows else "pass")
    assert {finding.case.M for finding in report.findings} == ({rows} if rows else set())


def sums_of_a_long_k_in_two_parts(a, b, dtype=torch.float32):
    """The parts are kept in `dtype`; each is the work of the same kernel."""
    if a.shape[1] <= 4096:
        return plain(a, b)
    slices = (slice(0, 4096), slice(4096, None))
    first, second = (plain(a[:, k].contiguous(), b[k], dtype=dtype) for k in slices)
    return (first + second).to(a.dtype)


@pytest.mark.lane("full")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_result_of_a_long_k_that_is_rounded_in_parts_is_found(dtype):
    """Few elements are wrong, so that one is not enough to see it."""
    launch = partial(sums_of_a_long_k_in_two_parts, dtype=dtype)
    report = check(KernelUnderTest("parts", launch, Contract()), proof=True)
    expected = {"within_bound"} if dtype == torch.float16 else set()
    assert {finding.property for finding in report.findings} == expected
