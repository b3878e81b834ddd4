"""What an item of a property says that no case bore on, that follows, or that was not finished."""

from __future__ import annotations

import re
import shutil

import pytest
from test_plugin import HEAD, ROOT, outcomes, run

from gemmproof import KernelUnderTest, suite
from gemmproof.plugin import GemmItem
from gemmproof.report.report import SCHEMA, PropertyResult, Report

IDLE = "no case bore on it: it applies to none that was drawn, or to none that holds otherwise"


@pytest.fixture
def judge(tmp_path):
    """Runs pytest on one kernel, of which the expression is given."""
    shutil.copy(ROOT / "docs" / "examples" / "right.py", tmp_path)
    (tmp_path / "test_kernels.py").write_text("from gemmproof.suite import *\n")

    def judge(kernel: str, *options: str) -> tuple[int, str]:
        (tmp_path / "conftest.py").write_text(f"{HEAD}import right\n    return [{kernel}]\n")
        return run(tmp_path, "-v", "-rs", *options)

    return judge


def test_a_property_that_no_case_bears_on_is_skipped(judge):
    """Of sums of integers none is special, and one case alone is not drawn to be compared."""
    case = '{"M":1,"N":1,"K":1,"dtype":"fp16"}'
    status, out = judge("K('right', right.matmul)", "--gemm-case", case)
    assert status == 0, out
    skipped = {name for name, outcome in outcomes(out)["right"].items() if outcome == "SKIPPED"}
    assert {"special_values", "symmetries"} <= skipped
    assert "stays_in_bounds" not in skipped
    assert f": right-fp16-symmetries: {IDLE}" in out


def test_of_a_kernel_that_fails_everywhere_one_item_fails(judge):
    status, out = judge("K('raises', lambda a, b: 1 / 0)", "--gemm-max-examples", "3")
    assert status == 1
    found = outcomes(out)["raises"]
    assert [name for name, outcome in found.items() if outcome == "FAILED"] == [
        "runs_to_completion"
    ]
    assert list(found.values()).count("SKIPPED") > 8


@pytest.mark.lane("full")
def test_what_follows_from_a_finding_says_so(judge):
    double = "K('double', lambda a, b: right.matmul(a * 2, b))"
    status, out = judge(double, "-k", "exact_on or bound", "--gemm-max-examples", "10")
    assert status == 1
    exact, bound = out.split("double violates ")[1:]
    assert exact.startswith("exact_on_integers: ")
    assert "follows from" not in exact
    assert re.match(r"within_bound: .*\n  c\[0, 0\]: got .*\n  follows from exact_on_int", bound)
    assert "\n  follows from exact_on_integers: it goes when that is mended\n" in bound


@pytest.mark.parametrize("verdict", ["error", "incomplete"])
@pytest.mark.parametrize(("others", "count"), [("pass", 1), ("not run", 2)])
def test_a_check_that_was_not_finished_fails_an_item(verdict, others, count):
    """Also where each property has held in some case."""
    names = ("runs_to_completion", "stays_in_bounds", "offsets_fit")
    statuses = ("pass", others, others)
    results = (PropertyResult(n, "claim", s, 3) for n, s in zip(names, statuses, strict=True))
    note = "not judged: M=1: no end"
    report = Report(SCHEMA, "k", verdict, tuple(results), (), 0.0, {}, note)
    said = []
    for name in names:
        item = GemmItem(KernelUnderTest("k", len), "fp16", name)
        try:
            suite.test_gemm(item, report, str, lambda name, value: None, None)
        except pytest.fail.Exception as failure:
            said.append(str(failure))
    assert len(said) == count
    assert all(text.endswith(f": {note}") for text in said)
