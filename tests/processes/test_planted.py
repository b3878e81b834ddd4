"""The fault table: whatever a kernel does to its process, no result is lost and none is changed.

One `signoff` judges them all: each that is planted, and right kernels between them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_process import find_left, run
from planted import CALLS, KINDS, list_planted

pytestmark = pytest.mark.timeout(900)  # that of the one run which they share

PLANTED = list_planted()
EVERY = 20  # so many faults, then a right kernel
CONFTEST = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from planted import list_planted, make_kernel
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


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The folder, how the command ended, and the report of each kernel by its name."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "conftest.py").write_text(CONFTEST)
    words = ("--json", "report.json", "--junit", "report.xml", "--jobs", "2", "--time-limit", "1")
    ended = run(folder, "signoff", "--max-examples", str(CALLS), *words, seconds=800)
    report = json.loads((folder / "report.json").read_text())
    return folder, ended, {kernel["target"]: kernel for kernel in report["kernels"]}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_is_told_and_loses_nothing(judged, planted):
    report = judged[2][planted.name]
    found = {finding["fault"]: finding["case"]["M"] for finding in report["findings"]}
    verdict, expected = VERDICTS[planted.kind], dict.fromkeys(FAULTS[planted.kind], planted.at)
    if planted.found:
        verdict, expected = "fail", {**expected, "out_of_bounds": planted.at - 1}
    assert (report["verdict"], found) == (verdict, expected)


def test_right_kernels_between_them_pass(judged):
    right = {name: report for name, report in judged[2].items() if name.startswith("right-")}
    assert len(right) == -(-len(PLANTED) // EVERY)
    for report in right.values():
        assert (report["verdict"], report["findings"]) == ("pass", [])
        assert {p["name"]: (p["status"], p["examples"]) for p in report["properties"]} == {
            "runs_to_completion": ("pass", CALLS),
            "stays_in_bounds": ("pass", CALLS),
        }


def test_the_command_tells_all_and_leaves_nothing(judged):
    folder, (code, out, err), reports = judged
    assert code == 1
    assert len(reports) == len(PLANTED) + -(-len(PLANTED) // EVERY)
    assert out.splitlines()[-1].startswith("signoff: fail (")
    assert "Traceback" not in out + err
    suites = ElementTree.parse(folder / "report.xml").iter("testsuite")
    assert {suite.get("name") for suite in suites} == set(reports)
    assert find_left(folder) == ([], [])


def test_the_page_counts_them():
    page = (Path(__file__).parents[2] / "docs" / "planted-faults.md").read_text()
    counted = Counter(planted.kind for planted in PLANTED)
    for kind, acts in KINDS.items():
        assert f"| {len(acts)} | {counted[kind]} |" in page, kind
    assert f"{len(PLANTED)} faults" in page
