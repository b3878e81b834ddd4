"""Items of properties that no case covered, that follow from others, or that were not finished."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tests.report.reports_by_hand import notes
from tests.support.pytest_project import HEAD, read_outcomes, run_pytest, write_project
from tests.texts import line_with

from gemmproof import KernelUnderTest, suite
from gemmproof.plugin import GemmItem
from gemmproof.report.record import SCHEMA, PropertyResult, Report

IDLE = (
    "no case tested it: it applies to no case that was drawn, or only to cases that fail otherwise"
)


@pytest.fixture
def judge(tmp_path):
    """Return a function that runs pytest on one kernel, given as an expression."""

    def judge(kernel: str, *options: str) -> tuple[int, str]:
        write_project(tmp_path, f"{HEAD}import right\n    return [{kernel}]\n", "right")
        return run_pytest(tmp_path, "-v", "-rs", *options)

    return judge


@pytest.mark.lane("full")
def test_a_property_that_no_case_bears_on_is_skipped(judge):
    """Sums of integers have no special values, and a single case is not compared with others."""
    case = '{"M":1,"N":1,"K":1,"dtype":"fp16"}'
    status, out = judge("K('right', right.matmul)", "--gemm-case", case)
    assert status == 0, out
    skipped = {
        name for name, outcome in read_outcomes(out)["right"].items() if outcome == "SKIPPED"
    }
    assert {"special_values", "symmetries"} <= skipped
    assert "stays_in_bounds" not in skipped
    assert dict(re.findall(r": right-fp16-(\w+): (.*)", out))["symmetries"] == IDLE


@pytest.mark.lane("full")
def test_of_a_kernel_that_fails_everywhere_one_item_fails(judge):
    status, out = judge("K('raises', lambda a, b: 1 / 0)", "--gemm-max-examples", "3")
    assert status == 1
    outcomes = read_outcomes(out)["raises"]
    assert [name for name, outcome in outcomes.items() if outcome == "FAILED"] == [
        "runs_to_completion"
    ]
    assert list(outcomes.values()).count("SKIPPED") > 8


@pytest.mark.lane("full")
def test_what_follows_from_a_finding_says_so(judge, texts):
    double = "K('double', lambda a, b: right.matmul(a * 2, b))"
    status, out = judge(double, "-k", "exact_on or bound", "--gemm-max-examples", "10")
    assert status == 1
    exact, bound = out.split("double violates ")[1:]
    assert exact.startswith("exact_on_integers: ")
    assert "follows from" not in exact
    claim, got, follows, *_ = bound.splitlines()
    assert claim.startswith("within_bound: ")
    assert got.startswith("  c[0, 0]: got ")
    texts("the line of an item that follows from another", follows)


@pytest.mark.parametrize("verdict", ["error", "incomplete"])
@pytest.mark.parametrize(("others", "count"), [("pass", 1), ("not run", 2)])
def test_a_check_that_was_not_finished_fails_an_item(verdict, others, count):
    """This applies even if each property has held in some case."""
    names = ("runs_to_completion", "stays_in_bounds", "offsets_fit")
    statuses = ("pass", others, others)
    results = (PropertyResult(n, "claim", s, 3) for n, s in zip(names, statuses, strict=True))
    note = "not judged: M=1: no end"
    report = Report(SCHEMA, "k", tuple(results), (), 0.0, {}, notes(verdict, note))
    failures = []
    for name in names:
        item = GemmItem(KernelUnderTest("k", len), "fp16", name)
        try:
            suite.test_gemm(item, report, str, lambda name, value: None, None)
        except pytest.fail.Exception as failure:
            failures.append(str(failure))
    assert len(failures) == count
    assert all(text.endswith(f": {note}") for text in failures)


# -- expected failures: xfailed with the reason, failed if the property holds ----------------------
KERNELS = """
    import no_k_mask, right
    from gemmproof import Contract
    from reasons import BOUNDS

    def at_times(a, b):
        return (right if a.element_size() == 2 else no_k_mask).matmul(a, b)

    both = Contract(formats=("fp16", "fp32"), expected=BOUNDS)
    return [
        K("known", no_k_mask.matmul, Contract(expected=BOUNDS)),
        K("at_times", at_times, both),
        K("twice", right.matmul, both),
    ]
"""
FEW_ENOUGH = "from gemmproof.engine import sections\nsections.EXAMPLES = 1\n"
REASON = "reads past K, \x1b issue 12"
WHY = REASON.replace("\x1b", r"\x1b")  # as it is shown
ITEM = re.compile(r"::test_gemm\[(\S+)-stays_in_bounds\] (\w+)")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "reasons.py").write_text(f"BOUNDS = {{'stays_in_bounds': {REASON!r}}}\n")
    return write_project(tmp_path, f"{FEW_ENOUGH}{HEAD}{KERNELS}", "right", "no_k_mask")


# gemmproof is imported before the run, by the process from which the run is forked
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
STRICT = ("--junit-xml", "junit.xml", "-W", "error::pytest.PytestWarning", "-W", IMPORTED)
FEW = ("-v", "--gemm-in-process", "--gemm-max-examples", "1")


@pytest.mark.lane("full")
def test_items_are_those_of_strict_xfail(project, texts):
    status, out = run_pytest(project, *FEW, "-rx", "-k", "bounds or exact", *STRICT)
    assert status == 1
    assert dict(ITEM.findall(out)) == {
        "known-fp16": "XFAIL",
        # the expectation applies to the formats of a contract together
        "at_times-fp16": "PASSED",
        "at_times-fp32": "XFAIL",
        "twice-fp16": "FAILED",
        "twice-fp32": "FAILED",
    }
    reasons = dict(re.findall(r"^XFAIL \S+\[known-fp16-(\w+)\] - (?:reason: )?(.*)$", out, re.M))
    assert reasons["stays_in_bounds"] == WHY
    # properties that follow from it are excused with it
    texts("the reason of an item that follows", reasons["exact_on_integers"], reason=WHY)
    cases = {c.get("name"): c for c in ElementTree.parse(project / "junit.xml").iter("testcase")}
    skipped = cases["test_gemm[known-fp16-stays_in_bounds]"].find("skipped")
    assert (skipped.get("type"), skipped.get("message")) == ("pytest.xfail", WHY)
    held = cases["test_gemm[twice-fp16-stays_in_bounds]"].find("failure").text
    texts("an item that was expected to fail holds", held, reason=WHY)
    assert held in out


@pytest.mark.lane("full")
def test_runxfail_shows_the_finding(project, texts):
    status, out = run_pytest(project, *FEW, "--runxfail", "-k", "known and stays_in_bounds")
    assert (status, dict(ITEM.findall(out))) == (1, {"known-fp16": "FAILED"})
    shown = next(line for line in out.splitlines() if line.startswith("known "))
    texts("an expected finding that --runxfail shows", shown)


def test_what_is_no_property_fails_with_what_was_meant(project, texts):
    (project / "reasons.py").write_text("BOUNDS = {'stay_in_bounds': 'x'}\n")
    status, out = run_pytest(project, *FEW, "-k", "known")
    assert status == 2
    shown = re.sub(r"one of: .*;", "one of: <names>;", line_with(out, "did you mean"))
    texts("a property that is expected and unknown", shown)
