"""Mutants of this repository's kernels stay killed: a sample, and the record of all."""

import json
from pathlib import Path

import pytest
from scripts.docs import mutation

from gemmproof.cli import main

ROOT = Path(__file__).parents[2]
EVIDENCE = "docs/evidence/mutation.json"
# of three families: what is read, how a sum is kept, what is launched
OPERATORS = ["mask term dropped", "sum not accumulated", "dimension of an operand"]


@pytest.mark.lane("full")
def test_a_sample_is_killed_as_in_the_record(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    words = [word for name in OPERATORS for word in ("--operator", name)]
    place = tmp_path / "now.json"
    code = main([
        "mutate", "--kernel", "matmul", "--dtype", "fp16", *words, "--max-mutants", "6",
        "--max-examples", "12", "--no-proof", "--min-score", "1", "--baseline", EVIDENCE,
        "--json", str(place),
    ])  # fmt: skip
    (kernel,) = json.loads(place.read_text())["kernels"]
    assert code == 0, kernel["mutants"]
    assert kernel["counts"]["killed"] == len(kernel["mutants"]) == 6


@pytest.mark.parametrize(
    "kernel", json.loads((ROOT / EVIDENCE).read_text())["kernels"], ids=lambda one: one["target"]
)
def test_the_record_has_no_survivor(kernel):
    assert len(kernel["mutants"]) == kernel["asked"]
    assert kernel["score"] == 1.0
    assert kernel["counts"]["killed"] >= 10


def test_the_page_shows_the_record():
    assert mutation.make_page(check=True) == 0
