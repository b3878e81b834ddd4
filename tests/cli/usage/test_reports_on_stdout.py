"""`--json -`: the report on stdout, and the answer on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_project import project_folder  # noqa: F401

from gemmproof import kernels
from gemmproof.cli import EXIT, main

MATMUL = str(Path(kernels.__file__).parent / "matmul.py:matmul")


def test_json_and_nothing_else(project, capsys):
    assert main(["check", "my_kernels.py:leaves", "--max-examples", "5", "--json", "-"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "fail"
    assert captured.err.splitlines()[-1].startswith("leaves: fail: ")
    assert not Path("-").exists()


def test_junit_and_nothing_else(project, capsys):
    Path("conftest.py").write_text(
        "from gemmproof import KernelUnderTest\nfrom my_kernels import matmul\n"
        "def pytest_gemm_kernels():\n    return [KernelUnderTest('matmul', matmul)]\n"
    )
    command = ["signoff", "--max-examples", "3", "--junit", "-", "--json", "report.json"]
    assert main(command) == EXIT["pass"]
    captured = capsys.readouterr()
    assert ElementTree.fromstring(captured.out).tag == "testsuites"
    assert captured.err.splitlines()[-1] == "signoff: pass (1 pass)"
    assert json.loads(Path("report.json").read_text())["verdict"] == "pass"


@pytest.mark.lane("full")
def test_an_address_map_or_its_picture(capsys):
    assert main(["explain", MATMUL, "--json", "-"]) == EXIT["pass"]
    captured = capsys.readouterr()
    assert json.loads(captured.out)
    assert "store c" in captured.err
    assert main(["explain", MATMUL, "--svg", "-"]) == EXIT["pass"]
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")
