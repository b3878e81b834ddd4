"""`gemmproof signoff` judges every kernel in one table and says how to reproduce a finding."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_project import project_folder  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.worker import fork_client
from gemmproof.worker.fork_client import ForkServer

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


COUNTS = """
with open("imports.txt", "a") as imports:
    imports.write("once\\n")
"""
THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("extra", "imports"),
    [
        ("", 1),
        # forks have no thread but one: the server, the list and each kernel's worker import it
        (THREAD, 4),
    ],
    ids=["plain", "thread"],
)
def test_signoff_imports_a_conftest_once_unless_it_starts_threads(
    project, monkeypatch, capsys, extra, imports
):
    monkeypatch.setattr(fork_client, "ForkServer", ForkServer)  # as for users: one of its own
    monkeypatch.setattr(fork_client, "find_server", lambda: fork_client._server)
    Path("conftest.py").write_text(CONFTEST.format(2) + COUNTS + extra)
    assert main(["signoff", "--max-examples", "1"]) == EXIT["pass"], capsys.readouterr().err
    assert Path("imports.txt").read_text().split() == ["once"] * imports


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1 / 0", "conftest.py:10: importing it raised ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(0)", "conftest.py:10: importing it raised SystemExit: 0"),
        ("import os; os.abort()", "conftest.py:10: loading it: a process that died of SIGABRT"),
        ("import os; os._exit(0)", "a process that ended itself with status 0"),
    ],
)
def test_a_conftest_that_cannot_be_imported_is_one_line(project, capsys, line, said):
    Path("conftest.py").write_text(CONFTEST.format(2) + COUNTS + line)
    assert main(["signoff"]) == EXIT["error"]
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("gemmproof signoff: ")
    assert said in told.err
