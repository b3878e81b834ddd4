"""`gemmproof signoff` judges every kernel in one table and says how to reproduce a finding."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

from cli_project import project_folder  # noqa: F401

from gemmproof.cli import EXIT, main

CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import leaves, matmul, star

def pytest_gemm_kernels():
    return [KernelUnderTest(f.__name__, f, Contract()) for f in (matmul, star, leaves)[:{}]]
"""


def test_signoff_judges_every_kernel_in_one_table(project, capsys):
    Path("conftest.py").write_text(CONFTEST.format(2))
    assert main(["signoff", "--max-examples", "3"]) == EXIT["pass"]
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines()]
    assert rows[:4] == [
        ["matmul", "star"],
        ["runs_to_completion", "3", "3"],
        ["stays_in_bounds", "3", "3"],
        ["verdict", "pass", "pass"],
    ]
    assert captured.out.splitlines()[-1] == "signoff: pass (2 pass)"
    assert "matmul: pass after " in captured.err


def test_signoff_reports_the_gravest_verdict_and_how_to_reproduce_it(project, capsys):
    Path("conftest.py").write_text(CONFTEST.format(3))
    command = ["signoff", "--json", "report.json", "--junit", "report.xml"]
    assert main([*command, "--max-examples", "5"]) == EXIT["fail"]
    out = capsys.readouterr().out
    assert "signoff: fail (1 fail, 2 pass)" in out
    report = json.loads(Path("report.json").read_text())
    assert [k["verdict"] for k in report["kernels"]] == ["pass", "pass", "fail"]
    words = shlex.split(report["kernels"][2]["findings"][0]["reproduce"])
    assert words[:4] == ["gemmproof", "signoff", "--kernel", "leaves"]
    assert main(words[1:]) == EXIT["fail"]
    assert len(list(ElementTree.parse("report.xml").iter("testsuite"))) == 3
