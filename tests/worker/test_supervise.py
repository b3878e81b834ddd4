"""Whatever a target does to its process, there is a verdict, and no process is left running."""

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.support.lanes import first_of_each
from tests.support.pytest_project import EXAMPLES
from tests.support.supervised import LIMITS, each_way, judging  # noqa: F401
from tests.worker.cli_process import wait_for

from gemmproof import Contract
from gemmproof.engine.assemble import judge
from gemmproof.engine.request import CheckRequest
from gemmproof.target import KernelRef, parse
from gemmproof.worker import entry_points, supervisor
from gemmproof.worker.processes import _numbers, environment
from gemmproof.worker.supervisor import Limits


@pytest.mark.parametrize(
    ("name", "fault", "got", "line"),
    first_of_each(
        [
            ("exits", "exit", "SystemExit(7)", 9),
            ("ends", "crash", "os._exit(0) was called", 13),
            ("faults", "crash", "the process died of SIGSEGV", 17),
            ("hangs", "hang", "it timed out after 1 s", 21),
            ("hangs_deaf", "hang", "it timed out after 1 s", 27),
        ],
        lambda row: row[1],
    ),
)
def test_a_death_is_a_finding_with_its_case_and_line(run, name, fault, got, line):
    report, outcome = run(name)
    (finding,) = report.findings
    summary = (report.verdict, finding.property, finding.fault, finding.case.M, outcome.cases)
    assert summary == ("fail", "runs_to_completion", fault, 3, 4)
    assert finding.got.endswith(got)
    # The engine drew N=9 K=9. It shrinks an exit itself, which is no death; no hang is shrunk.
    left = 1 if fault == "crash" else 9
    assert (finding.case.N, finding.case.K) == (left, left)
    # A loop is caught at its head or in its body.
    lines = (line, line - 1) if fault == "hang" else (line,)
    assert finding.where in [line and f"targets.py:{line}" for line in lines]
    assert finding.file == (line and "targets.py")
    assert {p.name: (p.status, p.examples) for p in report.properties} == {
        "runs_to_completion": ("fail", 0),
        "stays_in_bounds": ("pass", 3),
    }


@pytest.mark.parametrize("name", ["returns", "prints", "forks", "wrecks", "daemons", "strays"])
def test_a_target_that_answers_passes_whatever_else_it_does(run, name):
    report, outcome = run(name)
    assert (report.verdict, outcome.cases) == ("pass", 6)
    assert report.seconds < 10


@pytest.mark.lane("full")
def test_a_target_that_waits_for_its_output_to_be_read_does_not_hang(run, monkeypatch):
    """A busy machine reads megabytes so slowly that it takes longer than the limit of a call."""

    def drain_slowly(output, kept, worker):
        time.sleep(0.02)
        chunk = os.read(output, 1 << 15)
        worker.output_bytes += len(chunk)
        return bool(chunk)

    monkeypatch.setattr(supervisor, "_drain", drain_slowly)
    report, outcome = run("prints", max_examples=1)
    assert (report.verdict, outcome.cases) == ("pass", 1)


def test_output_is_counted_and_its_end_kept(run):
    _, outcome = run("prints")
    assert outcome.output_bytes > 6 * 2**22
    assert outcome.output.endswith("last words\n")
    assert len(outcome.output) <= supervisor.KEPT_OUTPUT


@pytest.mark.lane("full")
def test_nothing_is_left_running(run, monkeypatch):
    marks, start = [], supervisor._start

    def note(folder, token, *more):
        marks.append(token)
        return start(folder, token, *more)

    monkeypatch.setattr(supervisor, "_start", note)
    for name in ("daemons", "strays", "forks", "hangs"):
        run(name)
    assert len(marks) == 4
    assert wait_for(lambda: not _marked(marks), seconds=5)


def _marked(marks):
    return [n for n in _numbers() if any(mark.encode() in environment(n) for mark in marks)]


def test_memory_beyond_the_limit_is_not_judged_and_the_limit_is_named(run):
    report, _ = run("eats")
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert report.note.startswith("stopped after 4 cases: it used 0.")
    assert "(0.25 allowed by --memory-limit; 0." in report.note
    assert report.note.endswith((", at targets.py:37", ", at targets.py:36"))


def listen_slowly(event):
    time.sleep(0.002)


def test_too_long_in_all_is_incomplete_also_where_events_come_faster_than_they_are_read(run):
    report, _ = run("returns", Limits(total=0, each=0), listen_slowly, max_examples=20_000)
    assert report.verdict == "incomplete"
    assert report.note.startswith("stopped after ")


def test_what_a_worker_said_before_its_end_is_read_to_the_end(run):
    report, worker = run("returns", LIMITS, listen_slowly, max_examples=100)
    assert (report.verdict, worker.cases) == ("pass", 100)


@pytest.mark.lane("full")
def test_a_run_cut_short_lists_what_the_kernel_is_held_to(run, monkeypatch):
    monkeypatch.setattr(entry_points, "ENGINE", "gemmproof.engine.kernel_check:check")
    report, _ = run("ends", Limits(load=60, case=9))
    assert report.names == {"a": "a", "b": "b"}  # the wrapper's names of its operands
    names = {p.name for p in report.properties}
    assert {"runs_to_completion", "stays_in_bounds", "within_bound"} < names
    assert not {"mirror_equals_source", "row_bits_at_any_m"} & names  # not in the contract


REMEDY = 'put the code that a script runs under `if __name__ == "__main__":`'


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("text", "limits", "note"),
    [
        (
            "import os\nos._exit(3)\n",
            LIMITS,
            "targets.py:2: while loading it, os._exit(3) was called",
        ),
        (
            "import time\n\ntime.sleep(60)\n",
            Limits(load=1),
            f"targets.py:3: while loading it, it timed out after 1 s; {REMEDY}",
        ),
    ],
    ids=["death", "hang"],
)
def test_an_end_while_loading_is_an_error_not_a_finding(run, text, limits, note):
    Path("targets.py").write_text(text)
    report, _ = run("returns", limits)
    assert (report.verdict, report.note) == ("error", note)


def test_a_mistake_of_the_engine_is_not_blamed_on_the_target(run):
    report, outcome = run("returns", engine="fake_engine:no_such_engine")
    assert report.verdict == "error"
    assert "gemmproof itself failed" in report.note
    assert "Traceback" in outcome.output


@pytest.mark.lane("full")
def test_a_worker_dies_with_its_supervisor(run, monkeypatch):
    token = os.urandom(16).hex()
    monkeypatch.setattr(supervisor.secrets, "token_hex", lambda length: token)
    child = os.fork()
    if child == 0:
        try:
            run("hangs", Limits(case=60))
        finally:
            os._exit(0)
    time.sleep(1)
    before = _marked([token])
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert before
    assert wait_for(lambda: not _marked([token]), seconds=5)


SPINS = """import right
def spins(a, b):
    M, K = a.shape
    while M > 2:
        pass
    return right.matmul(a, b)
"""


@pytest.mark.lane("full")
def test_a_wrapper_that_hangs_takes_the_time_limit_of_one_call(tmp_path, monkeypatch):
    """A proof calls the wrapper too, and gives up early; no smaller case that hangs is tried."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "right.py", tmp_path)
    Path("spinning.py").write_text(SPINS)
    started, start = [], supervisor._start
    monkeypatch.setattr(supervisor, "_start", lambda *given: started.append(1) or start(*given))
    kernel = KernelRef("spins", target=parse("spinning.py:spins"), contract=Contract())
    report, _ = judge(CheckRequest(kernel, max_examples=4, proof=True), Limits(case=4))
    (finding,) = report.findings
    assert finding.fault == "hang"
    assert finding.where in ("spinning.py:4", "spinning.py:5")
    assert len(started) == 1
