"""Residues of the cases modulo the tiles, and the bits that a sign-off keeps."""

from types import SimpleNamespace

import pytest
from tests.corpora.tiled import plain

from gemmproof.engine.kernel_check import check
from gemmproof.engine.sections import KEPT, cover
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import dump, parse
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import Coverage, Report


def launch(tiles=((1, 1, 1),), **blocks):
    return SimpleNamespace(tiles=tiles, constexprs=blocks)


def judged(case, *launches, bits="", applied=("compiles",)):
    return SimpleNamespace(case=case, launches=launches, bits=bits, applied=applied)


@pytest.mark.parametrize(
    ("size", "block", "word"),
    [
        (64, 32, "0"), (0, 32, "0"), (33, 32, "1"), (31, 32, "BLOCK-1"), (40, 32, "other"),
        (5, 1, "0"), (5, 2, "1"), (5, 3, "BLOCK-1"),
        (5, "wide", "not known"), (5, True, "not known"),
    ],
)  # fmt: skip
def test_a_residue_is_what_a_size_leaves(size, block, word):
    coverage = cover(Contract(), [judged(Case(size, 1, 1), launch(BLOCK_M=block))])
    assert coverage.residues == {f"{word}, not known, not known": 1}


def test_the_tile_is_that_of_the_launch_that_multiplies():
    adds = launch((), BLOCK_SIZE_M=7, BLOCK_SIZE_N=7)
    dots = launch(BLOCK_SIZE_M=4, BLOCK_SIZE_K=4)
    coverage = cover(Contract(), [judged(Case(8, 8, 6), adds, dots)] * 2)
    assert coverage.residues == {"0, 1, other": 2}
    assert coverage.count("N") == {"0": 0, "1": 2, "BLOCK-1": 0, "other": 0, "not known": 0}


def test_a_case_that_nothing_was_judged_of_does_not_count():
    assert cover(Contract(), [judged(Case(8, 8, 6), bits="aa", applied=())]) == Coverage()


def test_the_bits_kept_do_not_depend_on_the_order_of_cases():
    cases = [Case(n, 2, 3, fill="normal", seed=n) for n in range(2, 12)]
    cases += [Case(1, 1, 1), Case(160, 150, 140), Case(2, 2, 2, fill="special")]
    every = [judged(case, bits=f"bits of {case}") for case in cases]
    kept = cover(Contract(), every).bits["fp16"]
    assert len(kept) == 2 + KEPT
    assert [Case.from_json(x.case) for x in kept[:2]] == cases[10:12]
    assert cover(Contract(), every[::-1]).bits["fp16"] == kept
    assert "special" not in str(kept)


@pytest.mark.lane("full")
def test_a_check_tells_both_and_the_same_again():
    kernel = KernelUnderTest("plain", plain, Contract(formats=("fp16", "fp32")))
    first, again = (check(kernel, max_examples=6) for _ in range(2))
    assert first.coverage == again.coverage
    assert sorted(first.coverage.bits) == ["fp16", "fp32"]
    assert sum(first.coverage.residues.values()) == 12
    assert parse(Report, dump(first), "report").coverage == first.coverage


def test_checks_of_a_format_each_are_one():
    coverage = Coverage({"0, 0, 0": 2}, {"fp16": ()})
    other = Coverage({"0, 0, 0": 1, "1, 0, 0": 3}, {"bf16": ()})
    merged = Coverage.merge([coverage, None, other])
    assert merged == Coverage({"0, 0, 0": 3, "1, 0, 0": 3}, {"fp16": (), "bf16": ()})
