"""Limits decided by a solver: the exact sizes at which offsets wrap, and divisors of sizes."""

import gc
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.contract_search.limited_kernels import (
    advanced_by_trips,
    doubled_rows_of_c,
    rows_of_c_in_32_bits,
)
from tests.contract_search.limited_kernels import without_k_mask as unmasked
from tests.contract_search.limited_kernels import (
    without_k_mask_and_one_column_off as unmasked_and_shifted,
)
from tests.corpora.mutants.offsets import (
    k_offset_of_b_in_32_bits,
    right,
    row_offset_of_a_in_32_bits,
)
from tests.corpora.mutants.table import MUTANTS
from tests.texts import line_with

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.contract_search import limits as limits_module
from gemmproof.contract_search.limits import find_divisor, find_needed, try_proof
from gemmproof.properties import codec
from gemmproof.properties.address_map import explain_access
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import memory_use
from gemmproof.properties.judges.exact_values import EXACT
from gemmproof.properties.proof import offset_wraps as wraps_module
from gemmproof.properties.proof.offset_wraps import find_wraps
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.symbolic.terms import symbol
from gemmproof.reference.work import METER, counted_seconds
from gemmproof.report.record import Report
from gemmproof.report.text import list_limits
from gemmproof.target import load, parse

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "right.py"
SECONDS = 5.0
GROUPS = next(x.kernel for x in MUTANTS if x.name == "groups_of_k_rounded_down")
DECIDE = (
    lambda: prove(kernel(unmasked), seconds=SECONDS),
    lambda: find_wraps(kernel(rows_of_c_in_32_bits, huge=True), None, SECONDS),
)


def kernel(wrapper, **terms):
    return KernelUnderTest("matmul", wrapper, Contract(**terms))


def wraps_of(wrapper, **terms):
    return list(map(str, find_wraps(kernel(wrapper, huge=True, **terms), None, SECONDS)))


ROWS_OF_C = "c fits while (M - 1) * N < 2**31, wraps at "


@pytest.mark.parametrize(
    ("wrapper", "terms", "begin", "end"),
    [
        (rows_of_c_in_32_bits, {}, ROWS_OF_C, "at M=32769 N=65536"),
        (rows_of_c_in_32_bits, {"M": "..40000", "N": "16..:16"}, ROWS_OF_C, "at M=32769 N=65536"),
        # strides and tiles decide where offsets of views wrap
        (
            row_offset_of_a_in_32_bits,
            {"layouts": "any"},
            "a fits while (M - 1) * a.stride(0) < 2**31, wraps at M=",
            "",
        ),
        (
            k_offset_of_b_in_32_bits,
            {"layouts": "any"},
            "b fits while (min(K, 16) - 1) * b.stride(0) < 2**31",
            "",
        ),
    ],
)
def test_the_size_from_which_offsets_wrap(wrapper, terms, begin, end):
    (line,) = wraps_of(wrapper, **terms)
    assert line.startswith(begin)
    assert line.endswith(end)


def test_rows_in_32_bits_wrap_from_2_31_on():
    for M, verdict, broken in ((32769, "fail", {memory_use.FIT}), (32768, "pass", set())):
        report = check(kernel(rows_of_c_in_32_bits, huge=True), case=Case(M, 65536, 1))
        assert (report.verdict, {f.property for f in report.findings}) == (verdict, broken)


def test_nothing_is_said_of_offsets_that_never_wrap():
    assert wraps_of(right, layouts="any") == []
    # an intermediate that wraps before its offset is not called exact
    assert wraps_of(doubled_rows_of_c) == []


@pytest.mark.parametrize("guess", [lambda top: top - 1, lambda top: top + top], ids=["low", "high"])
def test_a_wrong_guess_is_not_called_exact(guess, monkeypatch):
    """A limit must hold for every smaller size: a guess that is too high is no limit."""
    find_top = wraps_module._find_top

    def find_another(access, step):
        top, text = find_top(access, step)
        return guess(top), text

    monkeypatch.setattr(wraps_module, "_find_top", find_another)
    assert wraps_of(rows_of_c_in_32_bits) == []


@pytest.mark.lane("full")
def test_what_a_trip_adds_wraps_by_itself(texts):
    """The path depends on M, and only a second trip wraps."""
    lines = wraps_of(advanced_by_trips, K="16..:16", layouts="any")
    wraps = [line_with("\n".join(lines), part) for part in ("a fits while 16 ", "b fits while 16 ")]
    texts("where the offsets of a second trip wrap", "\n".join(wraps))


def divisor_of(wrapper, axis, most):
    until = counted_seconds() + 2 * SECONDS
    prove_step = partial(try_proof, kernel(wrapper), target=None, until=until)
    return find_divisor(Contract(), axis, most, prove_step)


@pytest.mark.lane("full")
def test_the_least_divisor_is_what_the_tile_needs():
    divisor, less = divisor_of(unmasked, "K", 96)
    assert divisor == 16
    # no multiple of 16, and one of 8
    assert [(outcome.status, outcome.case.K) for outcome in less] == [("limit", 24)]


@pytest.mark.lane("full")
@pytest.mark.parametrize("decide", DECIDE)
def test_garbage_is_collected_once_and_after_a_proof(decide):
    """A collection in between changed the order of sets, and the proofs within the budget."""
    generations = []

    def count(phase, facts):
        if phase == "start":
            generations.append(facts["generation"])

    gc.collect()
    gc.callbacks.append(count)
    try:
        decide()
    finally:
        gc.callbacks.remove(count)
    assert generations == [0]
    assert gc.isenabled()


def count_work(decide):
    """Return the amount of each kind of work that it takes."""
    before = {name: getattr(METER, name) for name in METER.__slots__}
    decide()
    return {name: getattr(METER, name) - n for name, n in before.items()}


@pytest.mark.lane("full")
@pytest.mark.parametrize("decide", [lambda: prove(GROUPS), DECIDE[1]])
def test_the_same_work_is_done_again(decide):
    """A budget's end depends neither on earlier proofs nor on freed memory."""
    decide()  # the kernel is translated only once
    spent, symbols = [], []
    thresholds = gc.get_threshold()
    try:
        for threshold in (0, 20):
            gc.set_threshold(threshold)
            symbols += [symbol(f"x{n}") for n in range(37)]
            spent.append(count_work(decide))
    finally:
        gc.set_threshold(*thresholds)
    assert spent[0]["solver"] > 0
    assert spent[0] == spent[1]


@pytest.mark.lane("full")
def test_the_work_does_not_depend_on_where_a_file_lies(tmp_path, monkeypatch):
    """The cost of a kernel is the length of its TTIR, which contains paths of files."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    spent = []
    for folder in (tmp_path / "a", tmp_path / ("long" * 40)):
        folder.mkdir()
        shutil.copy(EXAMPLE, folder / f"copied_{len(folder.name)}.py")
        wrapper = load(parse(f"{folder}/copied_{len(folder.name)}.py:matmul"))
        spent.append(count_work(partial(prove, kernel(wrapper), seconds=SECONDS)))
    assert spent[0]["ttir"] > 0
    assert spent[0] == spent[1]


@pytest.mark.lane("full")
def test_no_divisor_mends_another_fault():
    assert divisor_of(unmasked_and_shifted, "K", 32) is None
    assert divisor_of(unmasked, "M", 32) is None
    assert divisor_of(unmasked, "K", 8) is None


def limits_of(wrapper, **terms):
    report = check(kernel(wrapper, **terms), max_examples=4, limits=True, proof=True)
    assert codec.parse(Report, codec.dump(report), "report") == report
    return report, {limit.name: limit for limit in report.limits}


@pytest.mark.lane("full")
def test_a_check_tells_where_offsets_wrap(texts):
    report, limits = limits_of(rows_of_c_in_32_bits)
    limit = limits["2**31 elements of c"]
    assert (limit.status, limit.option) == ("limit", "--huge")
    texts("where the offsets of a result wrap", limit.proof.partition(" M=")[0])
    assert any(limit.proof in text for text, _ in list_limits(report))
    assert {name for name, x in limits.items() if x.proof} <= {limit.name, "2**31 elements"}


MULTIPLES = "proved for every K that is a multiple of 16; K=8 fails"


@pytest.mark.lane("full")
def test_a_check_tells_what_sizes_beyond_the_contract_must_be_multiples_of():
    _, limits = limits_of(unmasked, K="64..:64")
    limit = limits["K not in 64..:64"]
    assert (limit.status, limit.proof) == ("limit", MULTIPLES)


@pytest.mark.lane("full")
def test_a_check_of_a_kernel_that_fails_tells_what_its_sizes_must_be_multiples_of():
    report, limits = limits_of(unmasked)
    assert report.verdict == "fail"
    (limit,) = limits.values()
    assert (limit.status, limit.option) == ("needed", "--sizes K=16..:16")
    assert [text for text, _ in list_limits(report)] == [f"{MULTIPLES}: --sizes K=16..:16"]
    assert limits_of(unmasked, K="16..:16")[0].verdict == "pass"


@pytest.mark.lane("full")
@pytest.mark.parametrize("proof", [False, True])
def test_no_multiple_is_told_without_a_proof(proof):
    wrong = kernel(unmasked_and_shifted if proof else unmasked)
    report = check(wrong, max_examples=4, limits=True, proof=proof)
    assert (report.verdict, report.limits) == ("fail", ())
    wrong = kernel(rows_of_c_in_32_bits)
    held = check(wrong, max_examples=4, limits=True, proof=False)
    assert not any(limit.proof for limit in held.limits)


@pytest.mark.lane("full")
def test_no_multiple_is_told_if_no_proof_is_about_what_fails():
    """Addresses are proved for every multiple of 2, and the result is wrong at M=2."""
    report = check(GROUPS, max_examples=8, limits=True, proof=True)
    assert EXACT in {finding.property for finding in report.findings}
    assert report.limits == ()


def test_sizes_at_which_a_case_fails_are_not_told_as_safe(monkeypatch):
    monkeypatch.setattr(limits_module, "find_divisor", lambda *given: (1, []))
    report = check(kernel(unmasked), limits=True, max_examples=8, proof=True)
    why = "a proof contradicts a case that fails"
    assert [(x.status, x.message) for x in report.limits] == [("not tried", why)]


@pytest.mark.parametrize(("K", "status"), [(0, "not tried"), (8, "needed"), (32, "not tried")])
def test_only_a_case_of_the_needed_sizes_contradicts_their_proof(K, status, monkeypatch):
    monkeypatch.setattr(limits_module, "_format_divisor", lambda *given: (16, "proved"))
    wrong = Finding(memory_use.BOUNDS, "out_of_bounds", "k.py:3", Case(1, 1, K), axis="K")
    subject = kernel(unmasked, K="0..")
    (limit,) = find_needed(subject, None, [wrong], [(16, 16, 16)], None)
    assert limit.status == status


def raises(*arguments):
    raise KeyError("x")


def test_a_proof_that_raises_is_told_beside_what_was_decided(monkeypatch, texts):
    """Neither the limit nor the finding is lost, and none looks as if nothing had been tried."""
    monkeypatch.setattr(wraps_module, "find_wraps", raises)
    limits = check(kernel(rows_of_c_in_32_bits), limits=True, max_examples=1, proof=True).limits
    (proof,) = {x.proof for x in limits} - {""}
    texts("a proof of a limit that raises", proof)


def test_a_search_for_needed_sizes_that_raises_is_told(monkeypatch):
    monkeypatch.setattr(limits_module, "find_divisor", raises)
    report = check(kernel(unmasked), limits=True, max_examples=8, proof=True)
    why = "the sizes that it needs are unknown: the proof raised KeyError: 'x'"
    assert [(x.status, x.message) for x in report.limits] == [("not tried", why)]


def test_a_search_for_a_missing_condition_that_raises_is_told(monkeypatch, texts):
    monkeypatch.setattr(explain_access, "find_missing", raises)
    report = check(kernel(unmasked), max_examples=8, proof=True)
    (finding,) = [f for f in report.findings if f.property == memory_use.BOUNDS][:1]
    missing = finding.message.rpartition("; ")[2]
    texts("a search for a missing condition that raises", missing)
