"""A signal ends a command and its processes at once, and the results so far are reported."""

import json
import os
import signal
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from tests.worker.cli_process import find_left, finish, heed_signals, start, wait_for
from tests.worker.waiting_project import KERNELS, write_project

IMPORTING = """
import time
from pathlib import Path
Path("began").touch()
time.sleep(600)
"""
# The kernels would wait this long without the signal.
PATIENCE = ("--time-limit", "600")
SIGNOFF = ("signoff", "--jobs", "2", "--max-examples", "2", *PATIENCE)
SECONDS = 20  # measured: a fifth of one; on a busy machine more


@pytest.fixture(name="project")
def project_with_kernels_that_wait(tmp_path):
    return write_project(tmp_path, spawns=True)


def send_group(process, number):
    os.killpg(process.pid, number)


def send_alone(process, number):
    os.kill(process.pid, number)


def send_twice(process, number):
    """Signal as an impatient user does, or timeout(1), which signals the child and its group."""
    os.kill(process.pid, number)
    os.killpg(process.pid, number)


def interrupt(process, folder, send=send_group, number=signal.SIGINT):
    """Send a signal once a kernel waits; return the exit code, stdout and stderr."""
    assert wait_for((folder / "began").exists)
    send(process, number)
    return finish(process, SECONDS)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("send", "number"),
    [
        (send_group, signal.SIGINT),
        (send_alone, signal.SIGINT),
        (send_twice, signal.SIGINT),
        (send_group, signal.SIGTERM),
        (send_alone, signal.SIGHUP),
    ],
)
def test_check_ends_at_once_and_leaves_nothing(project, send, number):
    process = start(project, "check", "my_kernels.py:waits", *PATIENCE)
    code, out, err = interrupt(process, project, send, number)
    assert (code, out) == (128 + number, "")
    assert err == f"gemmproof check: interrupted by {number.name}\n"
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("send", "number"),
    [
        (send_group, signal.SIGINT),
        (send_alone, signal.SIGINT),
        (send_twice, signal.SIGTERM),
        (send_group, signal.SIGHUP),
    ],
)
def test_signoff_ends_at_once_and_tells_what_is_judged(project, send, number):
    process = start(project, *SIGNOFF, "--json", "report.json", "--junit", "report.xml")
    judged = {process.stderr.readline().split(" after ")[0] for _ in range(2)}
    assert judged == {"leaves: fail", "matmul: pass"}
    code, out, err = interrupt(process, project, send, number)
    assert (code, err) == (128 + number, f"gemmproof signoff: interrupted by {number.name}\n")
    assert out.startswith("leaves does not run to completion: ")
    assert out.splitlines()[-1] == "signoff: fail (1 fail, 2 incomplete, 1 pass)"
    assert "waits: incomplete" not in out  # only the table reports it
    kernels = json.loads((project / "report.json").read_text())["kernels"]
    assert [k["verdict"] for k in kernels] == ["pass", "fail", "incomplete", "incomplete"]
    assert kernels[2]["note"] == "stopped after 0 cases: interrupted"
    suites = list(ElementTree.parse(project / "report.xml").iter("testsuite"))
    errors = [[error.get("message") for error in suite.iter("error")] for suite in suites]
    assert [errors[0], *errors[2:]] == [[], *[["stopped after 0 cases: interrupted"]] * 2]
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
@pytest.mark.parametrize("args", [SIGNOFF, ("contract", "my_kernels.py:waits", *PATIENCE)])
def test_what_was_not_judged_is_one_line_and_an_old_report_stays(project, args):
    (project / "report.json").write_text("old")
    args += ("--kernel", "waits", "--json", "report.json") if args is SIGNOFF else ()
    code, out, err = interrupt(start(project, *args), project)
    assert (code, out, err) == (130, "", f"gemmproof {args[0]}: interrupted by SIGINT\n")
    assert (project / "report.json").read_text() == "old"
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
def test_a_drift_that_is_interrupted_takes_nothing_from_its_check(project):
    kernels = KERNELS.replace("(a, b):", "(a, b):\n    if b is None: return  # its check")
    (project / "my_kernels.py").write_text(kernels)
    options = ("--drift", "--kernel", "waits", "--json", "report.json")
    code, out, _ = interrupt(start(project, *SIGNOFF, *options), project)
    assert (code, out.splitlines()[-1]) == (130, "signoff: incomplete (1 incomplete)")
    (waits,) = json.loads((project / "report.json").read_text())["kernels"]
    assert waits["properties"][1]["examples"] == 2
    assert waits["note"] == "its drift in fp16 was not measured: interrupted"
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
def test_signoff_ends_while_a_conftest_is_imported(project):
    (project / "conftest.py").write_text(IMPORTING)
    code, out, err = interrupt(start(project, *SIGNOFF), project)
    assert (code, out, err) == (130, "", "gemmproof signoff: interrupted by SIGINT\n")
    assert find_left(project) == ([], [])


def test_a_command_under_nohup_outlives_its_terminal(project):
    args = ("check", "my_kernels.py:waits", "--max-examples", "1", *PATIENCE)
    process = start(project, *args, shell='trap "" HUP; exec "$@"')
    assert wait_for((project / "began").exists)
    send_group(process, signal.SIGHUP)
    (project / "go").touch()
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert "waits: pass: " in out
    assert find_left(project) == ([], [])


def test_an_early_end_shows_no_traceback(tmp_path):
    (tmp_path / "argparse.py").write_text(
        "import time\nprint('imports', flush=True)\ntime.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = subprocess.Popen(
        [sys.executable, "-m", "gemmproof", "list"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )
    assert command.stdout.readline() == "imports\n"
    command.send_signal(signal.SIGINT)
    assert command.communicate(timeout=20) == ("", "")
    assert command.returncode == -signal.SIGINT  # 130 to a shell
