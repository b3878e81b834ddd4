"""On a terminal: progress is one line that is updated and cleared at the end; a hint at more."""

import os
import pty
import time

import pytest
from tests.worker.cli_process import finish, start

KERNELS = """
import os, time

def slow(a, b):
    time.sleep(0.1)

def leaves(a, b):
    os._exit(1)
"""
CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import slow

def pytest_gemm_kernels():
    return [KernelUnderTest(name, slow, Contract()) for name in ("one", "two")]
"""
CHECK = ("check", "my_kernels.py:slow", "--max-examples", "20")


@pytest.fixture(name="project")
def project_with_a_slow_kernel(tmp_path, monkeypatch):
    (tmp_path / "my_kernels.py").write_text(KERNELS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


def run_on_terminal(folder, stream, *args):
    """Return the exit code, a terminal's output on one stream, and the output on the other."""
    leader, follower = pty.openpty()
    process = start(folder, *args, **{stream: follower})
    os.close(follower)
    seen, until = b"", time.monotonic() + 60
    while time.monotonic() < until:
        try:
            seen += os.read(leader, 1 << 16)
        except OSError:  # the other end is closed
            break
    code, out, err = finish(process)
    os.close(leader)
    return code, seen.decode(), out or err


@pytest.mark.lane("full")
def test_the_line_changes_and_is_gone_at_the_end(project):
    code, seen, out = run_on_terminal(project, "stderr", *CHECK)
    assert (code, "slow: pass: " in out) == (0, True)
    assert "slow: loading" in seen
    assert " of 20 cases, about " in seen
    assert seen.endswith("\x1b[2K")  # the line is cleared
    code, seen, out = run_on_terminal(project, "stderr", *CHECK, "--quiet")
    assert (code, seen, "slow: pass: " in out) == (0, "", True)


@pytest.mark.lane("full")
def test_other_lines_stand_above_it(project):
    args = ("signoff", "--max-examples", "10", "--jobs", "1")
    code, seen, out = run_on_terminal(project, "stderr", *args)
    assert code == 0
    assert "signoff: 0 of 2 kernels; " in seen
    assert "signoff: 1 of 2 kernels; " in seen
    assert seen.count("one: pass after ") == seen.count("two: pass after ") == 1
    assert out.splitlines()[-1] == "signoff: pass (2 pass)"


@pytest.mark.lane("full")
def test_where_more_is_said_of_a_finding_is_told_to_a_person_only(project):
    args = ("check", "my_kernels.py:leaves", "--quiet")
    hint = "gemmproof explain runs_to_completion explains it"
    code, seen, _ = run_on_terminal(project, "stdout", *args)
    assert (code, seen.count(hint)) == (1, 1)
    code, out, err = finish(start(project, *args))
    assert (code, hint in out + err) == (1, False)
