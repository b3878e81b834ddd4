"""`gemmproof signoff` judges every kernel in one table and says how to reproduce a finding."""

import json
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.cli_project import project_folder, refuse, register  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.worker import fork_server
from gemmproof.worker.fork_server import ForkServer


def test_signoff_judges_every_kernel_in_one_table(project, capsys):
    register("matmul", "star")
    assert main(["signoff", "--max-examples", "3"]) == EXIT["pass"]
    captured = capsys.readouterr()
    rows = [" ".join(line.split()) for line in captured.out.splitlines()]
    table = ["matmul star", "runs_to_completion 3 3", "stays_in_bounds 3 3", "verdict pass pass"]
    assert (rows[:4], rows[-1]) == (table, "signoff: pass (2 pass)")
    assert "matmul: pass after " in captured.err


def test_signoff_reports_the_gravest_verdict_and_how_to_reproduce_it(project, capsys, texts):
    register("matmul", "star", "leaves")
    command = ["signoff", "--json", "report.json", "--junit", "report.xml"]
    assert main([*command, "--max-examples", "5"]) == EXIT["fail"]
    verdict = capsys.readouterr().out.splitlines()[-1]
    texts("the verdict of a sign-off that fails", verdict)
    report = json.loads(Path("report.json").read_text())
    assert [k["verdict"] for k in report["kernels"]] == ["pass", "pass", "fail"]
    args = shlex.split(report["kernels"][2]["findings"][0]["reproduce"])
    assert args[:4] == ["gemmproof", "signoff", "--kernel", "leaves"]
    assert main(args[1:]) == EXIT["fail"]
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
# forks have a single thread: the server, the list and each kernel's worker import it
@pytest.mark.parametrize(("extra", "imports"), [("", 1), (THREAD, 4)], ids=["plain", "thread"])
def test_signoff_imports_a_conftest_once_unless_it_starts_threads(
    project, monkeypatch, capsys, extra, imports
):
    monkeypatch.setattr(fork_server, "ForkServer", ForkServer)  # as for users: not a shared one
    monkeypatch.setattr(fork_server, "find_server", lambda: fork_server._server)
    register("matmul", "star", more=COUNTS + extra)
    assert main(["signoff", "--max-examples", "1"]) == EXIT["pass"], capsys.readouterr().err
    assert Path("imports.txt").read_text().split() == ["once"] * imports


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 / 0", "conftest.py:9: importing it raised ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(0)", "conftest.py:9: importing it raised SystemExit: 0"),
        ("import os; os.abort()", "conftest.py:9: while loading it, the process died of SIGABRT"),
        ("import os; os._exit(0)", "os._exit(0) was called"),
    ],
)
def test_a_conftest_that_cannot_be_imported_is_one_line(project, capsys, line, message):
    register("matmul", "star", more=COUNTS + line)
    assert message in refuse(["signoff"], capsys)
