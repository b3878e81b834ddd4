"""What a baseline has against a run is told in every form that CI reads: its kernels are green."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_project import project_folder  # noqa: F401
from reports_by_hand import report, reproduce

from gemmproof.cli import EXIT, main
from gemmproof.report.ci.github import list_annotations
from gemmproof.report.ci.lost import LostSince
from gemmproof.report.ci.sarif import make_document
from gemmproof.report.files import write_junit

CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import matmul, star

def pytest_gemm_kernels():
    contract = Contract(formats={formats})
    return [KernelUnderTest("matmul", matmul, contract), KernelUnderTest({name!r}, star, contract)]
"""
SEARCH = ["signoff", "--no-proof", "--max-examples", "2", "--quiet"]
LOST = [
    LostSince("matmul", "proof", "stays_in_bounds was proved; now\nnot", True),
    LostSince("matmul", "proof", "offsets_fit was proved; now that was not tried", False),
    LostSince("", "bits", "::error::<b>", False),
]


@pytest.mark.lane("full")
def test_a_refused_kernel_reaches_junit_sarif_annotations_and_the_summary(
    project, capsys, monkeypatch
):
    Path("conftest.py").write_text(CONFTEST.format(formats=("fp16", "bf16"), name="star"))
    assert main([*SEARCH, "--json", "base.json"]) == EXIT["pass"]
    Path("conftest.py").write_text(CONFTEST.format(formats=("fp16",), name="renamed"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    capsys.readouterr()
    forms = ["--junit", "r.xml", "--sarif", "r.sarif", "--codequality", "r.cq"]
    asked = [*SEARCH, "--baseline", "base.json", "--annotations", "github", *forms]
    assert main(asked) == EXIT["fail"]
    out = capsys.readouterr().out
    assert "signoff: fail (2 pass; against the baseline: 2 refused)" in out
    assert "--sarif and --codequality: without 2 changes against the baseline" in out
    gone, less = "star: gone: the baseline has it", "matmul: bf16 is promised no more"
    errors = [line for line in out.splitlines() if line.startswith("::error ")]
    assert [gone in errors[0], less in errors[1]] == [True, True]
    suite = next(s for s in ElementTree.parse("r.xml").iter("testsuite") if s.get("failures") > "0")
    assert suite.get("name") == "baseline"
    assert [case.get("classname") for case in suite.iter("testcase")] == ["star", "matmul"]
    (run,) = json.loads(Path("r.sarif").read_text())["runs"]
    told = run["invocations"][0]["toolExecutionNotifications"]
    assert [one["level"] for one in told] == ["error", "error"]
    assert gone in told[0]["message"]["text"]
    summary = Path("summary.md").read_text()
    assert "- **refused**: against the baseline" in summary
    assert main([*asked, "--accept", "kernel", "--accept", "promise"]) == EXIT["pass"]
    assert "::error" not in capsys.readouterr().out  # what was accepted is none
    assert "baseline" not in Path("r.xml").read_text()


def test_what_is_refused_fails_and_what_is_not_known_is_an_error(tmp_path):
    held = report()
    write_junit(tmp_path / "r.xml", [held], reproduce([held]), LOST)
    cases = list(ElementTree.parse(tmp_path / "r.xml").iter("testcase"))[-3:]
    assert [case[0].tag for case in cases] == ["failure", "error", "error"]
    assert len({(case.get("name"), case.get("classname")) for case in cases}) == 3
    notes = make_document([held], [], LOST)["runs"][0]["invocations"][0]
    levels = [one["level"] for one in notes["toolExecutionNotifications"]]
    assert levels == ["error", "warning", "warning"]


@pytest.mark.parametrize(("at", "begins"), [(0, "::error "), (1, "::warning "), (2, "::warning ")])
def test_annotations_are_a_line_each_of_their_weight(at, begins):
    line = list(list_annotations("signoff", [report()], [], LOST))[at]
    assert line.startswith(begins)
    assert "\n" not in line
