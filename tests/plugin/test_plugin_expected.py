"""Items of what a contract expects to fail: xfailed with the reason, and failed where it holds."""

from __future__ import annotations

import re
import shutil
from xml.etree import ElementTree

import pytest
from test_plugin import HEAD, ROOT, run

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
FEW_ENOUGH = "from gemmproof.engine import tally\ntally.EXAMPLES = 1\n"
REASON = "reads past K, \x1b issue 12"
WHY = REASON.replace("\x1b", r"\x1b")  # as it is shown
ITEM = re.compile(r"::test_gemm\[(\S+)-stays_in_bounds\] (\w+)")


@pytest.fixture
def project(tmp_path):
    for name in ("right", "no_k_mask"):
        shutil.copy(ROOT / "docs" / "examples" / f"{name}.py", tmp_path)
    (tmp_path / "reasons.py").write_text(f"BOUNDS = {{'stays_in_bounds': {REASON!r}}}\n")
    (tmp_path / "conftest.py").write_text(f"{FEW_ENOUGH}{HEAD}{KERNELS}")
    (tmp_path / "test_kernels.py").write_text("from gemmproof.suite import *\n")
    return tmp_path


STRICT = ("--junit-xml", "junit.xml", "-W", "error::pytest.PytestWarning")
FEW = ("-v", "--gemm-in-process", "--gemm-max-examples", "1")


def test_items_are_those_of_strict_xfail(project):
    status, out = run(project, *FEW, "-rx", "-k", "bounds or exact", *STRICT)
    assert status == 1
    assert dict(ITEM.findall(out)) == {
        "known-fp16": "XFAIL",
        # a contract expects it of its formats together
        "at_times-fp16": "PASSED",
        "at_times-fp32": "XFAIL",
        "twice-fp16": "FAILED",
        "twice-fp32": "FAILED",
    }
    assert f"[known-fp16-stays_in_bounds] - {WHY}" in re.sub(r"reason: ", "", out)
    assert "twice keeps stays_in_bounds, which its contract expects to fail" in out
    assert f"got 1 case that held, expected it to fail: {WHY}" in out
    # what follows from it goes with it
    assert f"[known-fp16-exact_on_integers] - follows from stays_in_bounds: {WHY}" in out
    cases = {c.get("name"): c for c in ElementTree.parse(project / "junit.xml").iter("testcase")}
    skipped = cases["test_gemm[known-fp16-stays_in_bounds]"].find("skipped")
    assert (skipped.get("type"), skipped.get("message")) == ("pytest.xfail", WHY)


def test_runxfail_shows_the_finding(project):
    status, out = run(project, *FEW, "--runxfail", "-k", "known and stays_in_bounds")
    assert (status, dict(ITEM.findall(out))) == (1, {"known-fp16": "FAILED"})
    assert "known does not stay in bounds: " in out


def test_what_is_no_property_fails_with_what_was_meant(project):
    (project / "reasons.py").write_text("BOUNDS = {'stay_in_bounds': 'x'}\n")
    status, out = run(project, *FEW, "-k", "known")
    assert status == 2
    said = "contract expected: got 'stay_in_bounds', expected one of"
    assert f"pytest_gemm_kernels: known: {said}" in out
    assert "did you mean 'stays_in_bounds'?" in out
