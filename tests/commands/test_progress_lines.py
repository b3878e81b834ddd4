"""The progress of a command without a terminal: a line now and then."""

import threading

import pytest
from tests.support.cli_project import project_folder  # noqa: F401
from tests.support.pytest_project import HEAD

from gemmproof import terminal as shown
from gemmproof.cli import main
from gemmproof.contract_search import widest as search
from gemmproof.contract_search.widest import Checks
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.contract import Contract
from gemmproof.report.record import SCHEMA, Report
from gemmproof.target import KernelRef
from gemmproof.terminal import say
from gemmproof.worker.protocol import CaseStarted, PartialReport, Started
from gemmproof.worker.supervisor import Limits

SLOW = """
import time

def slow(a, b):
    time.sleep(0.1)

def matmul(a, b):
    pass
"""
CONFTEST = (
    f"{HEAD}import slow_kernels as k\n    return [K('slow', k.slow), K('matmul', k.matmul)]\n"
)


@pytest.fixture(name="slow")
def project_with_a_slow_kernel(project):
    (project / "slow_kernels.py").write_text(SLOW)
    (project / "conftest.py").write_text(CONFTEST)
    return project


CHECK = ["check", "slow_kernels.py:slow", "--max-examples", "20"]


@pytest.mark.lane("full")
def test_without_a_terminal_a_line_comes_now_and_then(slow, monkeypatch, capsys):
    monkeypatch.setattr(shown, "EVERY", 0.25)
    assert main(CHECK) == 0
    lines = capsys.readouterr().err.splitlines()
    assert 3 < len(lines) < 40
    assert all(line.startswith("slow: ") for line in lines)
    assert any(" of 20 cases, about " in line and line.endswith(" s left") for line in lines)


@pytest.mark.lane("full")
@pytest.mark.parametrize("more", [["--quiet"], []])
def test_nothing_is_said_where_it_is_quiet_or_soon_over(slow, monkeypatch, capsys, more):
    monkeypatch.setattr(shown, "EVERY", 0.25 if more else 3600)
    assert main([*CHECK, *more]) == 0
    assert capsys.readouterr().err == ""
    assert [t for t in threading.enumerate() if t is not threading.main_thread()] == []


@pytest.mark.lane("full")
def test_signoff_says_how_far_it_is(slow, monkeypatch, capsys):
    monkeypatch.setattr(shown, "EVERY", 0.25)
    assert main(["signoff", "--jobs", "1", "--max-examples", "10"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("signoff: 0 of 2 kernels; ") for line in lines)
    assert any(line.startswith("slow: pass after ") for line in lines)


def test_the_formats_of_a_contract_are_parts(monkeypatch, capsys):
    printed = threading.Event()

    def tell(line):
        say(line)
        printed.set()

    def judge(request, limits, listener):
        listener(Started(20))
        for _ in range(10):
            listener(CaseStarted("{}", "draw"))
            listener(PartialReport({}))
        return Report(SCHEMA, request.name, (), (), 0.0, {}), None

    def judge_until_printed(*args):
        result = judge(*args)
        printed.clear()
        assert printed.wait(60)
        return result

    monkeypatch.setattr(shown, "EVERY", 0.1)
    monkeypatch.setattr(shown, "say", tell)
    monkeypatch.setattr(search, "judge", judge_until_printed)
    contract = Contract(formats=("fp16", "bf16"))
    checks = Checks(CheckRequest(KernelRef("matmul")), Limits(), jobs=1)
    assert set(checks.check(contract, "matmul as it is")) == {"fp16", "bf16"}
    lines = capsys.readouterr().err.splitlines()
    assert "matmul as it is: 0 of 2 formats; 10 of 20 cases" in lines
    assert any(line.startswith("matmul as it is: 1 of 2 formats; 10 of 20 c") for line in lines)
    monkeypatch.setattr(search, "judge", judge)
    checks = Checks(CheckRequest(KernelRef("matmul")), Limits(), jobs=1, quiet=True)
    checks.check(contract, "matmul")
    assert capsys.readouterr().err == ""
