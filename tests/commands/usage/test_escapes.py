"""Names of kernels and files with control characters, or with bytes that are no text."""

import os
import subprocess
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.cli_project import project_folder  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.spelling import write_command

NAMES = ("red\x1b[31m", "two\nlines\r", "bytes\udcff9", "turned\u202ex", "it's\ta\\b\x07")
CONFTEST = f"""
from gemmproof import Contract, KernelUnderTest
from my_kernels import leaves

def pytest_gemm_kernels():
    return [KernelUnderTest(name, leaves, Contract()) for name in {NAMES!r}]
"""


def require_tame(text):
    """Return whether a text has only line ends and printable characters."""
    assert {unicodedata.category(c)[0] for c in text.replace("\n", "")} <= set("LNPSZM")
    assert not any(unicodedata.category(c) in ("Zl", "Zp") for c in text)


def paste(line):
    """Return the arguments into which bash splits a line."""
    command = ["bash", "-c", f"printf '%s\\0' {line}"]
    output = subprocess.run(command, capture_output=True, check=True).stdout
    return [os.fsdecode(word) for word in output.split(b"\0")[:-1]]


@pytest.mark.parametrize("name", [*NAMES, "plain", "two words", "", "$x`y`\"'"])
def test_a_command_can_be_pasted(name):
    line = write_command(["check", name])
    require_tame(line)
    assert paste(line) == ["check", name]


@pytest.mark.lane("full")
def test_the_names_of_kernels(project, capsys):
    Path("conftest.py").write_text(CONFTEST, encoding="utf-8")
    command = ["signoff", "--max-examples", "5", "--no-proof", "--junit", "report.xml"]
    assert main(command) == EXIT["fail"]
    captured = capsys.readouterr()
    require_tame(captured.out)
    require_tame(captured.err)
    assert len(captured.err.splitlines()) == len(NAMES)
    lines = [x for x in captured.out.splitlines() if x.startswith("  reproduce:  ")]
    assert {paste(line.partition(":  ")[2])[3] for line in lines} == set(NAMES)
    suites = list(ElementTree.parse("report.xml").iter("testsuite"))
    assert len({suite.get("name") for suite in suites}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_files(project, name, capfd):
    Path(f"{name}.py").write_bytes(Path("my_kernels.py").read_bytes())
    target = f"./{name}.py:leaves"
    command = ["check", target, "--max-examples", "5", "--no-proof", "--junit", "report.xml"]
    assert main(command) == EXIT["fail"]
    captured = capfd.readouterr()
    require_tame(captured.out + captured.err)
    line = next(x for x in captured.out.splitlines() if x.startswith("  reproduce:  "))
    assert paste(line.partition(":  ")[2])[2] == target
    assert ElementTree.parse("report.xml").find(".//failure") is not None
