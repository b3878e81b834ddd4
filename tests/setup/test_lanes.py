"""The lanes of this repository's tests: what runs, the last line's text, and wrong marks."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.support.warm_process import run_module

from gemmproof import terminal
from gemmproof.cli import main

TESTS = Path(__file__).parents[1]
FILE = """
import pytest

def test_plain(): pass

@pytest.mark.lane("default")
def test_marked(): pass

@pytest.mark.lane("full")
@pytest.mark.parametrize("n", [1, 2])
def test_long(n): pass
"""


FULL, DEFAULT = "pytest.mark.lane('full')", "pytest.mark.lane('default')"


@pytest.fixture(name="run")
def run_pytest(tmp_path):
    """Runs a file of tests with the settings of ours; returns the status and the lines printed."""
    shutil.copy(TESTS / "conftest.py", tmp_path)
    markers = "".join(f"    {name}: x\n" for name in ("lane(name)", "proves", "triton(name)"))
    settings = f"[pytest]\naddopts = --strict-markers\nmarkers =\n{markers}"
    (tmp_path / "pytest.ini").write_text(settings)
    folders = [TESTS.parent, TESTS.parent / "src", os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(map(str, folders))

    def run(text, *options):
        (tmp_path / "test_it.py").write_text(text)
        options = ("-p", "no:cacheprovider", *options)
        env = {**os.environ, "PYTHONPATH": path}
        status, out = run_module("pytest", *options, cwd=tmp_path, env=env)
        return status, out.splitlines()

    return run


@pytest.mark.lane("full")
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_the_default_lane_says_last_how_many_tests_it_left_out(run, workers, texts):
    status, lines = run(FILE, "-q", *workers)
    assert (status, "2 passed" in lines[-2]) == (0, True)
    texts("several tests are deselected", lines[-1])


@pytest.mark.lane("full")
def test_the_full_lane_leaves_none_out(run):
    status, lines = run(FILE, "-q", "--full")
    assert (status, lines[-1][:8]) == (0, "4 passed")


@pytest.mark.lane("full")
def test_the_lane_holds_for_tests_that_are_named(run, texts):
    status, lines = run(FILE, "test_it.py::test_long[1]")
    assert status == 5
    texts("one test is deselected", lines[-1])
    for options in (["test_it.py::test_long[1]", "--full"], ["test_it.py::test_plain"]):
        status, lines = run(FILE, *options)
        assert (status, "1 passed" in lines[-1]) == (0, True)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("line", "message", "workers"),
    [
        ("pytest.mark.lane('ful')", "got 'ful', expected default or full", []),
        ("pytest.mark.lane()", "got nothing, expected default or full", ["-n", "1"]),
        ("pytest.mark.lane('full', 'x')", "got 'full', 'x', expected default or full", []),
        (f"[{FULL}, {DEFAULT}]", "got default and full, expected one of them", []),
    ],
)
def test_a_wrong_lane_is_one_line(run, line, message, workers):
    status, lines = run(f"import pytest\npytestmark = {line}\ndef test(): pass\n", *workers)
    assert status == (pytest.ExitCode.TESTS_FAILED if workers else pytest.ExitCode.INTERRUPTED)
    start = next(n for n, text in enumerate(lines) if "ERROR collecting" in text)
    assert lines[start + 1] == f"test: lane: {message}"
    assert lines[start + 2].startswith("=")


NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(name="_signals_end_the_process")
def take_signals():
    """Give signals their default action: a process in the background ignores some of them."""
    before = [signal.signal(number, signal.SIG_DFL) for number in NUMBERS]
    yield
    for number, action in zip(NUMBERS, before, strict=True):
        signal.signal(number, action)


@pytest.mark.usefixtures("_signals_end_the_process")
def test_a_command_that_runs_within_a_test_leaves_signals_to_pytest(monkeypatch):
    """SIGTERM is to end pytest, whatever the test is about."""
    before, during = [signal.getsignal(number) for number in NUMBERS], []

    def note(options, top):
        during.extend(signal.getsignal(number) for number in NUMBERS)
        return 0

    monkeypatch.setattr("gemmproof.commands.completion.run", note)
    assert main(["completion", "bash"]) == 0
    assert during == before
    monkeypatch.setattr(terminal, "ENDING", NUMBERS)
    during.clear()
    assert main(["completion", "bash"]) == 0
    assert not set(during) & set(before)
