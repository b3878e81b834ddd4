"""Limits that a solver decides: where exactly offsets wrap, and what sizes must be multiples of."""

from __future__ import annotations

import pytest
from limited_kernels import (
    advanced_by_trips,
    doubled_rows_of_c,
    rows_of_c_in_32_bits,
    without_k_mask,
    without_k_mask_and_one_column_off,
)
from mutants.offsets import k_offset_of_b_in_32_bits, right, row_offset_of_a_in_32_bits

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.properties import memory
from gemmproof.properties.cases.case import Case
from gemmproof.properties.proof import wraps as wraps_module
from gemmproof.properties.proof.divisor import find_divisor
from gemmproof.properties.proof.wraps import find_wraps
from gemmproof.report.report import Report
from gemmproof.report.text import list_limits

SECONDS = 5.0


def kernel(wrapper, **words):
    return KernelUnderTest("matmul", wrapper, Contract(**words))


def wraps_of(wrapper, **words):
    return list(map(str, find_wraps(kernel(wrapper, huge=True, **words), None, SECONDS)))


def test_rows_in_32_bits_wrap_from_2_31_on():
    assert wraps_of(rows_of_c_in_32_bits) == [
        "c fits while (M - 1) * N < 2**31, wraps at M=32769 N=65536"
    ]
    at, below = Case(32769, 65536, 1), Case(32768, 65536, 1)
    for case, verdict in ((at, "fail"), (below, "pass")):
        report = check(kernel(rows_of_c_in_32_bits, huge=True), case=case)
        assert (report.verdict, {f.property for f in report.findings}) == (
            verdict,
            {memory.FIT} if verdict == "fail" else set(),
        )


def test_strides_and_tiles_decide_where_offsets_of_views_wrap():
    (said,) = wraps_of(row_offset_of_a_in_32_bits, layouts="any")
    assert said.startswith("a fits while (M - 1) * a.stride(0) < 2**31, wraps at M=")
    (said,) = wraps_of(k_offset_of_b_in_32_bits, layouts="any")
    assert said.startswith("b fits while (min(K, 16) - 1) * b.stride(0) < 2**31")


def test_what_a_trip_adds_wraps_by_itself():
    """On a path that M decides, and only where there is a second trip."""
    said = wraps_of(advanced_by_trips, K="16..:16")
    assert "b fits while 16 * N < 2**31, wraps at N=134217728" in said
    assert "a fits while (M - 1) * K < 2**31, wraps at M=32769 K=65536" in said


def test_sizes_of_the_contract_reach_what_wraps():
    (said,) = wraps_of(rows_of_c_in_32_bits, M="..5000", N="16..:16")
    assert said.endswith(", wraps at M=4097 N=524288")


def test_nothing_is_said_of_offsets_that_never_wrap():
    assert wraps_of(right, layouts="any") == []


def test_an_intermediate_that_wraps_before_its_offset_is_not_called_exact():
    assert wraps_of(doubled_rows_of_c) == []


def test_an_offset_that_fits_is_not_asked_where_it_wraps(monkeypatch):
    # what holds below must hold of every size: a guess that is too high is no limit
    find_top = wraps_module._find_top

    def find_less(access, step):
        top, words = find_top(access, step)
        return top - 1, words

    monkeypatch.setattr(wraps_module, "_find_top", find_less)
    assert wraps_of(rows_of_c_in_32_bits) == []


def test_a_guess_at_which_nothing_wraps_is_not_called_exact(monkeypatch):
    find_top = wraps_module._find_top

    def find_more(access, step):
        top, words = find_top(access, step)
        return top + top, words

    monkeypatch.setattr(wraps_module, "_find_top", find_more)
    assert wraps_of(rows_of_c_in_32_bits) == []


def test_the_least_divisor_is_what_the_tile_needs():
    found = find_divisor(kernel(without_k_mask), None, "K", 96, 2 * SECONDS)
    assert (found.step, found.is_least, found.sizes) == (16, True, "16..:16")
    assert [case.K for case in found.below] == [24]  # no multiple of 16, and one of 8


@pytest.mark.lane("full")
def test_no_divisor_mends_another_fault():
    wrong = kernel(without_k_mask_and_one_column_off)
    assert find_divisor(wrong, None, "K", 32, SECONDS) is None
    assert find_divisor(kernel(without_k_mask), None, "M", 32, SECONDS) is None
    assert find_divisor(kernel(without_k_mask), None, "K", 8, SECONDS) is None


def limits_of(wrapper, **words):
    report = check(kernel(wrapper, **words), max_examples=4, limits=True, proof=True)
    assert Report.from_json(report.to_json()) == report
    return report, {limit.name: limit for limit in report.limits}


def test_a_check_tells_where_offsets_wrap():
    report, limits = limits_of(rows_of_c_in_32_bits)
    limit = limits["2**31 elements of c"]
    assert (limit.status, limit.option) == ("limit", "--huge")
    assert limit.proof.startswith("proved of offsets: c fits while (M - 1) * N < 2**31, wraps at")
    assert any(limit.proof in text for text, _ in list_limits(report))
    assert {name for name, x in limits.items() if x.proof} <= {limit.name, "2**31 elements"}


@pytest.mark.lane("full")
def test_a_check_tells_what_sizes_beyond_the_contract_must_be_multiples_of():
    _, limits = limits_of(without_k_mask, K="64..:64")
    limit = limits["K not in 64..:64"]
    said = "proved for every K that is a multiple of 16, and not of less: K=8 fails"
    assert (limit.status, limit.proof) == ("limit", said)


@pytest.mark.lane("full")
def test_a_check_of_a_kernel_that_fails_tells_what_its_sizes_must_be_multiples_of():
    report, limits = limits_of(without_k_mask)
    assert report.verdict == "fail"
    (limit,) = limits.values()
    assert (limit.status, limit.option) == ("needed", "--sizes K=16..:16")
    said = "proved for every K that is a multiple of 16, and not of less: K=8 fails"
    assert [text for text, _ in list_limits(report)] == [f"{said}: --sizes K=16..:16"]
    kept, _ = limits_of(without_k_mask, K="16..:16")
    assert kept.verdict == "pass"


@pytest.mark.lane("full")
@pytest.mark.parametrize("proof", [False, True])
def test_no_multiple_is_told_without_a_proof(proof):
    wrong = kernel(without_k_mask_and_one_column_off if proof else without_k_mask)
    report = check(wrong, max_examples=4, limits=True, proof=proof)
    assert (report.verdict, report.limits) == ("fail", ())
    wrong = kernel(rows_of_c_in_32_bits)
    held = check(wrong, max_examples=4, limits=True, proof=False)
    assert not any(limit.proof for limit in held.limits)
