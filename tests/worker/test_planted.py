"""The fault table: whatever a kernel does to its process, no result is lost or changed.

One `signoff` judges them all: each planted fault, and right kernels between them.
"""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.worker.cli_process import find_left, run
from tests.worker.planted import CALLS, KINDS, list_planted

PLANTED = list_planted()
EVERY = 20  # so many faults, then a right kernel
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.worker.planted import list_planted, make_kernel
from gemmproof import Contract, KernelUnderTest

def pytest_gemm_kernels():
    kernels = []
    for number, planted in enumerate(list_planted()):
        if number % {EVERY} == 0:
            right = KernelUnderTest(f"right-{{number}}", lambda a, b: None, Contract())
            kernels.append(right)
        kernels.append(KernelUnderTest(planted.name, make_kernel(planted), Contract()))
    return kernels
"""
VERDICTS = {"crash": "fail", "left": "fail", "hang": "fail", "killed": "incomplete", "none": "pass"}
FAULTS = {"crash": {"crash"}, "left": {"exit"}, "hang": {"hang"}, "killed": set(), "none": set()}


@pytest.mark.lane("full")
@pytest.mark.timeout(900)
def test_planted_faults_are_told_and_lose_nothing(tmp_path):
    """This is one test, since two that share a run may be given to two of pytest's workers."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    options = ("--json", "report.json", "--junit", "report.xml", "--jobs", "2", "--time-limit", "1")
    code, out, err = run(tmp_path, "signoff", "--max-examples", str(CALLS), *options, seconds=800)
    report = json.loads((tmp_path / "report.json").read_text())
    reports = {kernel["target"]: kernel for kernel in report["kernels"]}

    assert {planted.name: judge(reports[planted.name]) for planted in PLANTED} == {
        planted.name: expect(planted) for planted in PLANTED
    }
    right = {name: kernel for name, kernel in reports.items() if name.startswith("right-")}
    assert len(right) == -(-len(PLANTED) // EVERY)
    for kernel in right.values():
        assert judge(kernel) == ("pass", {})
        assert {p["name"]: (p["status"], p["examples"]) for p in kernel["properties"]} == {
            "runs_to_completion": ("pass", CALLS),
            "stays_in_bounds": ("pass", CALLS),
        }

    assert (code, len(reports)) == (1, len(PLANTED) + len(right))
    assert out.splitlines()[-1].startswith("signoff: fail (")
    assert "Traceback" not in out + err
    suites = ElementTree.parse(tmp_path / "report.xml").iter("testsuite")
    assert {suite.get("name") for suite in suites} == set(reports)
    assert find_left(tmp_path) == ([], [])


def judge(report):
    """Return the verdict on a kernel, and the call of each finding."""
    return report["verdict"], {f["fault"]: f["case"]["M"] for f in report["findings"]}


def expect(planted):
    """Return the expected verdict and findings of a planted fault."""
    verdict, calls = VERDICTS[planted.kind], dict.fromkeys(FAULTS[planted.kind], planted.at)
    if planted.after_finding:
        return "fail", {**calls, "out_of_bounds": planted.at - 1}
    return verdict, calls


def test_the_page_counts_them():
    page = (Path(__file__).parents[2] / "docs" / "results" / "planted-faults.md").read_text()
    counted = Counter(planted.kind for planted in PLANTED)
    for kind, acts in KINDS.items():
        assert f"| {len(acts)} | {counted[kind]} |" in page, kind
    assert f"{len(PLANTED)} faults" in page
