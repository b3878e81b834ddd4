"""Rows are compared at other M on both sides of tiles, thresholds and powers of two."""

import pytest
from tests.corpora.tiled import plain

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.properties.codec import dump
from gemmproof.properties.contract import Sizes
from gemmproof.properties.judges.determinism import ROWS, list_other_m
from gemmproof.report.text import lines


@pytest.mark.parametrize(
    ("sizes", "least"),
    [(Sizes(), 20), (Sizes(16, 8192, 16), 20), (Sizes(64, 65536, 64), 20), (Sizes(1, 8), 8)],
)
def test_at_least_20_other_m_are_admitted_sizes(sizes, least):
    others = list_other_m(sizes, {48})
    assert len(others) >= least
    assert all(n in sizes for n in others)
    if sizes == Sizes():
        assert {47, 48, 49, 95, 96, 97, 255, 257} <= {*others}


@pytest.mark.parametrize("M", ["1..", "16..:16", "1..8"])
def test_a_check_says_how_many_pairs_it_compared(M):
    contract = Contract(batch_invariant=True, M=M)
    report = check(KernelUnderTest("mine", plain, contract), max_examples=12)
    (result,) = [x for x in report.properties if x.name == ROWS]
    assert (report.verdict, result.status) == ("pass", "pass")
    assert result.pairs >= (20 if M != "1..8" else 2 * 7)
    (line,) = [text for text, _ in lines(report, str) if ROWS in text]
    assert line.endswith(f"{result.examples} cases, {result.pairs} pairs of M")
    assert f'"pairs":{result.pairs}' in dump(report).replace(" ", "")
    assert all(x.pairs is None for x in report.properties if x.name != ROWS)
