"""Failing cases are saved, and tried first the next time; they have no other effect."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pytest_project import EXAMPLES, HEAD, run_pytest, write_project

from gemmproof.cli import main
from gemmproof.engine import saved_cases
from gemmproof.engine.kernel_check import check
from gemmproof.engine.saved_cases import MOST, Store
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.target import load_file
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import CaseStarted, Event, PartialResult

# wrong at sizes that no smallest case and no probe has
WRONG = """
import right

def matmul(a, b):
    c = right.matmul(a, b)
    c[33:] += 1
    return c
"""
FEW = ("--no-proof", "--max-examples")


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved_cases._warn_once.cache_clear()
    shutil.copy(EXAMPLES / "right.py", tmp_path)
    Path("pyproject.toml").touch()
    Path("wrong.py").write_text(WRONG)


def judge(*options, target="wrong.py:matmul"):
    return main(["check", target, *FEW, *options])


def stored() -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(Path(".gemmproof").glob("*.json"))]


@pytest.mark.parametrize(("tried", "text"), [(0, ""), (1, "1 saved case tried first")])
def test_saved_cases_that_were_dropped_untried_are_not_counted(tried, text):
    saved = encode(saved_cases.SavedTried(tried, ('{"M": 1}',)))
    assert saved_cases.format_saved(WorkerExit(parts={"saved": saved})) == text


@pytest.mark.lane("full")
def test_a_failing_case_is_tried_first_and_dropped_when_it_holds(capsys, texts):
    assert judge("60") == 1
    (document,) = stored()
    assert [case["M"] for case in document["cases"]] == [34, 35]
    assert Path(".gemmproof/.gitignore").read_text().endswith("*\n")
    capsys.readouterr()
    assert judge("1") == 1  # no drawn case shows it
    texts("the verdict after a saved case", capsys.readouterr().out.splitlines()[-1])
    assert stored() == [document]
    Path("wrong.py").write_text(WRONG.replace("+= 1", "+= 0"))
    assert judge("1", "--no-saved-cases") == 0
    assert stored() == [document]
    assert judge("1") == 0
    assert stored() == []


@pytest.mark.lane("full")
def test_what_is_drawn_does_not_depend_on_what_is_kept():
    launch = load_file(Path("wrong.py")).matmul
    kernel = KernelUnderTest("matmul", launch, Contract())

    def run(*first: Case):
        events: list[Event] = []
        report = check(kernel, max_examples=30, first=first, listener=events.append)
        started = [e for e in events if isinstance(e, CaseStarted)]
        drawn, kept = ([e.case for e in started if e.phase == p] for p in ("draw", "kept"))
        return report, drawn, kept, [e for e in events if isinstance(e, PartialResult)]

    report, drawn, none, silent = run()
    fails, holds = report.findings[0].case, Case(2, 1, 1)
    foreign = (Case(1, 1, 1, "bf16"), Case(1, 1, 1, arguments=(("x", "1"),)))
    again, same, tried, (event,) = run(fails, holds, *foreign)
    assert (none, silent) == ([], [])
    assert drawn == same
    assert tried == [fails.to_json(), holds.to_json()]
    assert event.value.tried == 2
    assert list(event.value.dropped) == [case.to_json() for case in (holds, *foreign)]
    assert [p.examples for p in report.properties] == [p.examples for p in again.properties]
    assert [f.message for f in report.findings] == [f.message for f in again.findings]


HARMS = {
    "bytes": lambda path: path.write_bytes(b"\xff\x00"),
    "broken": lambda path: path.write_text("["),
    "nested": lambda path: path.write_text("[" * 100_000),
    "other": lambda path: path.write_text("{}"),
    "edited": lambda path: path.write_text(path.read_text().replace('"M": 34', '"M": 1')),
    "large": lambda path: path.write_text(" " * (2 << 20)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_not_ours_is_one_line_and_nothing_else(harm, tmp_path, capsys):
    store = Store(tmp_path / "kept", "f", "code")
    store.update((), [Case(34, 1, 1)])
    path = store.locate("fp16")
    assert store.read(["fp16", "bf16"]) == (Case(34, 1, 1).to_json(),)
    HARMS[harm](path)
    assert (store.read(["fp16"]), store.read(["fp16"])) == ((), ())
    err = capsys.readouterr().err
    assert err.startswith(f"gemmproof: {path}: got ")
    assert err.count("\n") == 1
    store.update((), [Case(35, 1, 1)])
    assert store.read(["fp16"]) == ((Case(35, 1, 1).to_json(),) if path.is_file() else ())


def test_the_newest_cases_stay(tmp_path):
    store = Store(tmp_path / "kept", "f", "code")
    for first in range(1, 41, 10):
        store.update((), [Case(M, 1, 1) for M in range(first, first + 10)])
    sides = [json.loads(text)["M"] for text in store.read(["fp16"])]
    assert (sides, len(sides)) == ([*range(31, 41), *range(21, 31)], MOST)
    store.update([Case(31, 1, 1).to_json()], [Case(40, 1, 1)])
    sides = [json.loads(text)["M"] for text in store.read(["fp16"])]
    assert sides == [40, *range(32, 40), *range(21, 31)]


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    code = """
import sys
from pathlib import Path
from gemmproof.properties.cases.case import Case
from gemmproof.engine.saved_cases import Store
for M in range(1, 6):
    Store(Path("kept"), "f", "code").update((), [Case(M, int(sys.argv[1]), 1)])
"""
    started = [subprocess.Popen([sys.executable, "-c", code, str(n)]) for n in (1, 2, 3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    cases = [json.loads(text) for text in Store(Path("kept"), "f", "code").read(["fp16"])]
    assert sorted((case["N"], case["M"]) for case in cases) == [
        (N, M) for N in (1, 2, 3) for M in range(1, 6)
    ]


@pytest.mark.lane("full")
def test_a_project_that_cannot_be_written_is_one_line(capsys):
    Path(".gemmproof").touch()  # a file: it fails for root too, who may write everywhere
    assert judge("60") == 1
    message = "File exists: no failing case is saved"
    assert capsys.readouterr().err == f"gemmproof: {Path.cwd()}/.gemmproof: {message}\n"


def test_a_case_that_is_replayed_is_neither_kept_nor_dropped():
    assert judge("1", "--case", '{"M":34,"N":1,"K":1}') == 1
    assert not Path(".gemmproof").exists()


@pytest.mark.lane("full")
def test_a_folder_may_be_named(tmp_path):
    Path("mine").mkdir()
    assert judge("60", "--saved-cases", "mine") == 1
    assert sorted(path.suffix for path in Path("mine").iterdir()) == ["", ".json"]  # no .gitignore
    Path("pyproject.toml").write_text('[tool.gemmproof]\nsaved-cases = "mine"\n')
    assert judge("1") == 1


@pytest.mark.lane("full")
def test_signoff_and_pytest_keep_the_same_cases(capsys):
    write_project(Path(), f"{HEAD}import wrong\n    return [K('matmul', wrong.matmul)]\n")
    assert main(["signoff", *FEW, "60"]) == 1
    assert [case["M"] for document in stored() for case in document["cases"]] == [34, 35]
    options = ("-q", "-x", "--gemm-max-examples", "1", "-k", "exact")
    for more, status, expected in (
        ((), 1, "2 saved cases tried first"),
        (("--gemm-no-saved-cases",), 0, "1 passed"),
    ):
        ended, out = run_pytest(Path.cwd(), *options, *more)
        assert (ended, expected in out) == (status, True)


@pytest.mark.lane("full")
def test_what_holds_though_it_was_expected_to_fail_is_no_failing_case():
    assert judge("100", "--expect", "no_races=issue 12", target="right.py:matmul") == 1
    assert not Path(".gemmproof").exists()
