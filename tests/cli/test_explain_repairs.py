"""A line that explain suggests, pasted into a copy of the kernel, makes `check` pass."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gemmproof.engine.check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.explanation.explain import explain
from gemmproof.properties.kernel import KernelUnderTest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MUTANTS = ROOT / "tests" / "corpora" / "mutants"
BROKEN = [
    (EXAMPLES / "no_k_mask.py", "matmul"),
    (EXAMPLES / "unmasked_row.py", "matmul"),
    (MUTANTS / "k_tail.py", "no_k_mask_on_b"),
    (MUTANTS / "coverage.py", "no_column_mask_on_store"),
]
CONTRACT = Contract(M="1..200", N="1..200", K="1..200")


def load(path: Path, function: str) -> KernelUnderTest:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return KernelUnderTest(function, getattr(module, function), CONTRACT)


@pytest.mark.parametrize(("path", "function"), BROKEN, ids=[name for _, name in BROKEN])
def test_a_pasted_line_mends_the_kernel(path, function, tmp_path):
    found = explain(load(path, function))
    lines = path.read_text().splitlines(keepends=True)
    fixes = {x.line: x.fix for kernel in found.kernels for x in kernel.accesses if x.fix}
    assert fixes
    for number, fix in fixes.items():
        assert fix.proved
        old = lines[number - 1]
        begin = min(old.index(word) for word in ("tl.load", "tl.store") if word in old)
        lines[number - 1] = f"{old[:begin]}{fix.call}\n"
    mended = tmp_path / f"{path.stem}_{function}.py"
    mended.write_text("".join(lines))
    kernel = load(mended, function)
    assert all(x.status == "proved" for one in explain(kernel).kernels for x in one.accesses)
    assert check(kernel, max_examples=15, proof=False).verdict == "pass"


def test_a_finding_says_what_is_missing():
    kernel = load(EXAMPLES / "no_k_mask.py", "matmul")
    report = check(kernel, max_examples=2, proof=True)
    said = {f.where: f.message for f in report.findings if f.property == "stays_in_bounds"}
    assert said["no_k_mask.py:21"].endswith("; missing: & (offs_k[None, :] < K)")
    assert said["no_k_mask.py:22"].endswith("; missing: & (offs_k[:, None] < K)")
    report = check(kernel, max_examples=2, proof=False)
    assert not any("; missing: " in f.message for f in report.findings)


def test_nothing_is_said_where_the_index_may_be_wrong():
    """Its mask tests rows against N: a condition more would leave rows out."""
    kernel = load(MUTANTS / "coverage.py", "store_mask_of_the_other_axis")
    report = check(kernel, max_examples=2, proof=True)
    stray = [f for f in report.findings if f.property == "stays_in_bounds"]
    assert stray
    assert not any("; missing: " in f.message for f in stray)
    (store,) = (x for one in explain(kernel).kernels for x in one.accesses if x.kind == "store")
    assert store.fix.besides == "row < N and column < M"
