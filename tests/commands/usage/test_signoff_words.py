"""`gemmproof signoff` reads arguments as they were meant, or reports what is wrong with them."""

import shlex
from pathlib import Path

import pytest
from tests.support.cli_project import project_folder, refuse  # noqa: F401
from tests.texts import line_with

from gemmproof.cli import EXIT, main

CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import matmul, star, leaves

def pytest_gemm_kernels():
    names = ["matmul:fp16", "star:fp16", "-odd", "::star"]
    wrappers = [matmul, star, leaves, star]
    return [KernelUnderTest(n, f, Contract()) for n, f in zip(names, wrappers)]
"""
SEARCH = ["signoff", "--no-proof", "--max-examples", "4", "--quiet", "--jobs", "1"]
ONE = [*SEARCH, "--kernel", "matmul:fp16"]


@pytest.fixture(autouse=True)
def _in_a_project(project):
    Path("conftest.py").write_text(CONFTEST)


def test_a_registered_name_keeps_its_colon_and_is_judged_once(capsys):
    named = ["--kernel", "star:fp16", "--kernel", "matmul:fp16", "--kernel", "::star"]
    assert main([*ONE, *named]) == EXIT["pass"]
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["matmul:fp16", "star:fp16", "::star"]
    assert out.endswith("signoff: pass (3 pass)\n")
    assert main(ONE) == EXIT["pass"]
    assert capsys.readouterr().out.split()[0] == "matmul:fp16"


def test_a_name_like_an_option_can_be_pasted(capsys, texts):
    case = '{"M":3,"N":1,"K":1}'
    assert main([*SEARCH, "--kernel=-odd", "--case", case]) == EXIT["fail"]
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "reproduce:" in x)
    args = shlex.split(line.partition("reproduce:")[2])[1:]
    assert main(args) == EXIT["fail"]
    texts("the finding of a kernel named like an option", capsys.readouterr().out.splitlines()[0])


@pytest.mark.parametrize("option", ["html", "markdown", "json", "junit", "sarif", "codequality"])
def test_an_empty_name_of_a_report_is_refused(option, capsys):
    message = refuse([*ONE, f"--{option}", ""], capsys)
    assert message.startswith(f"gemmproof signoff: --{option}: got '' (")


def test_a_terminal_of_no_width_shows_the_answer(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert main(ONE) == EXIT["pass"]
    assert "signoff: pass (1 pass)" in capsys.readouterr().out


def test_measurements_that_do_not_count_are_told(capsys):
    Path("mutants.json").write_text('{"schema": 1, "kernels": []}')
    assert main([*ONE, "--mutation", "mutants.json"]) == EXIT["pass"]
    why = "matmul:fp16: mutants.json has no mutants for it"
    note = f"note: --mutation is ignored for 1 of 1 kernel: {why}"
    assert note in capsys.readouterr().out.splitlines()


def test_what_was_accepted_and_is_not_there_is_told(capsys, texts):
    assert main([*ONE, "--accept", "proof"]) == EXIT["pass"]
    note = "note: --accept proof: no --baseline to accept"
    assert note in capsys.readouterr().out
    assert main([*ONE, "--json", "base.json"]) == EXIT["pass"]
    Path("conftest.py").write_text(CONFTEST.replace("-odd", "odd"))
    compared = [*SEARCH, "--kernel", "matmul:fp16", "--baseline", "base.json"]
    assert main([*compared, "--accept", "kernel:mat", "--accept", "proof"]) == EXIT["pass"]
    out = capsys.readouterr().out
    texts("a kernel is accepted that is not refused", line_with(out, "--accept kernel:mat"))
    texts("a proof is accepted that is not refused", line_with(out, "--accept proof"))
