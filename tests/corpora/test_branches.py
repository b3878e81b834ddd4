"""A fault behind a branch that few calls take is found, or the branch is named in the report."""

from __future__ import annotations

import numpy as np
import pytest
from tests.corpora.branches import right, wrong

from gemmproof import Contract, KernelUnderTest, check

ANY = Contract(layouts="any")
INVARIANT = Contract(batch_invariant=True)
LENGTHS = {
    "spec": lambda a, b: (a @ b) / np.sqrt((a * a).sum(axis=-1, keepdims=True) + 1e-30),
}

# name, the property that fails, the contract, the lane of tests
FOUND = (
    ("undefined_above_a_million_elements", "stores_each_element_once", Contract(), "default"),
    ("wrong_at_4321_rows", "exact_on_integers", Contract(), "full"),
    ("wrong_before_multiples_of_32", "exact_on_integers", Contract(), "full"),
    ("wrong_where_two_sizes_agree", "exact_on_integers", Contract(), "full"),
    ("another_sum_at_1531_rows", "row_bits_at_any_m", INVARIANT, "full"),
    ("one_row_taken_to_be_dense", "stays_in_bounds", ANY, "default"),
    ("aligned_by_its_pitch_alone", "stays_in_bounds", ANY, "full"),
    ("rows_of_zeros_left_out", "special_values", Contract(), "default"),
    ("rows_of_equal_elements_summed_once", "exact_on_integers", Contract(), "full"),
    ("rows_of_zeros_without_a_length", "within_bound", Contract(), "full"),
    ("wrong_beyond_5000_products", "exact_on_integers", Contract(), "full"),
    ("wrong_in_a_late_program", "exact_on_integers", Contract(), "full"),
    ("wrong_in_a_loop_of_long_sums", "exact_on_integers", Contract(), "full"),
)
# name, the lines of the report, the lane of tests
NAMED = (
    (
        "wrong_above_a_hundred_million_elements",
        ("wrong.py:{line} needs M * N >= 100000001",),
        "default",
    ),
    ("wrong_at_one_value", ("wrong.py:{line} was never true",), "default"),
    ("wrong_for_equal_elements_of_one_kind", ("wrong.py:{line} was never true",), "full"),
    ("wrong_after_a_day", ("wrong.py:{line} was never true",), "default"),
    ("wrong_for_negative_elements", ("wrong.py:{line} was never true",), "full"),
    ("wrong_on_one_host", ("wrong.py:{line} was never true",), "full"),
    ("wrong_after_many_calls", ("wrong.py:{line} was never true",), "full"),
    ("wrong_on_other_devices", ("wrong.py:{line} runs only on another GPU",), "default"),
)
CONTRACTS = {
    "another_kernel_for_an_empty_k": Contract(K="0.."),
    "one_row_with_its_strides": ANY,
    "aligned_by_pitch_and_base": ANY,
    "other_tiles_at_4321_rows": Contract(M="0..", N="0..", K="0.."),
}
RIGHT = (
    ("wide_tiles_above_a_million_elements", "full"),
    ("other_tiles_at_4321_rows", "full"),
    ("other_tiles_before_multiples_of_32", "full"),
    ("one_row_with_its_strides", "full"),
    ("aligned_by_pitch_and_base", "full"),
    ("rows_of_zeros_left_out_of_finite_products", "full"),
    ("rows_of_zeros_with_a_length", "full"),
    ("sizes_that_no_call_has", "default"),
    ("options_that_no_call_has", "default"),
    ("tiles_from_a_cache", "full"),
    ("checked_sizes", "full"),
    ("other_tiles_beyond_5000_products", "full"),
    ("rest_of_products_by_itself", "default"),
    ("another_kernel_for_an_empty_k", "default"),
)


def judge(wrapper, contract):
    options = LENGTHS if "zeros_with" in wrapper.__name__ else {}
    kernel = KernelUnderTest(wrapper.__name__, wrapper, contract, **options)
    return check(kernel, proof=True)


def marked(rows):
    return [pytest.param(*row[:-1], id=row[0], marks=pytest.mark.lane(row[-1])) for row in rows]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "claim", "contract"), marked(FOUND))
def test_a_fault_behind_a_rare_branch_is_found(name, claim, contract):
    report = judge(getattr(wrong, name), contract)
    assert (report.verdict, report.note) == ("fail", None)
    assert claim in {finding.property for finding in report.findings}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "lines"), marked(NAMED))
def test_a_branch_that_no_case_took_is_named(name, lines):
    report = judge(getattr(wrong, name), Contract())
    assert (report.verdict, report.note) == ("pass", None)
    with open(wrong.__file__) as source:
        text = source.read().splitlines()
    numbers = [line.partition(":")[2].partition(" ")[0] for line in report.unvisited]
    assert [line.format(line=n) for line, n in zip(lines, numbers, strict=True)] == [
        *report.unvisited
    ]
    assert all("if " in text[int(n) - 1] for n in numbers)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", marked(RIGHT))
def test_no_branch_of_a_right_kernel_is_named(name):
    report = judge(getattr(right, name), CONTRACTS.get(name, Contract()))
    assert (report.verdict, report.note, report.findings) == ("pass", None, ())
    assert report.unvisited == ()


def test_a_loop_that_turns_only_on_another_gpu_is_named():
    report = judge(right.another_kernel_without_an_engine, Contract(K="0.."))
    assert (report.verdict, report.note) == ("pass", None)
    (text,) = report.unvisited
    assert text.startswith("tiled.py:")
    assert text.endswith(" runs only on another GPU")


def test_no_kernel_of_these_corpora_is_left_out():
    rows = {row[0] for row in (*FOUND, *NAMED, *RIGHT)} | {"another_kernel_without_an_engine"}
    public = {
        name
        for module in (wrong, right)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
        and hasattr(value, "__code__")
        and not name.startswith("_")
    }
    assert rows == public
