"""`check` and `signoff --watch` judge again after each change, and end as other commands do."""

import os
import signal
import subprocess
import threading
import time
from contextlib import nullcontext

import pytest
from tests.worker.cli_process import find_left, finish, start

from gemmproof.cli import main
from gemmproof.target import parse
from gemmproof.watch import list_sources

KERNELS = """
import json
import package.helper
from elsewhere import number

def matmul(a, b):
    package.helper.help_out(a, number)
"""
HELPER = """
from . import nothing

def help_out(a, number):
    {}
"""
WAITS = "import time; time.sleep(600)"
# gemmproof is on the path here, and is no part of the project
CONFTEST = """
import my_kernels
proof = __import__("gemmproof")

def pytest_gemm_kernels():
    contracts = {{name: proof.Contract((dtype,)) for name, dtype in ({})}}
    return [proof.KernelUnderTest(x, my_kernels.matmul, one) for x, one in contracts.items()]
"""
BOTH = "('first', 'fp16'), ('second', 'bf16')"
CHECK = ("check", "my_kernels.py:matmul")
SIGNOFF = ("signoff", "--jobs", "1")


@pytest.fixture(name="project")
def project_of_several_files(tmp_path):
    (tmp_path / "my_kernels.py").write_text(KERNELS)
    (tmp_path / "elsewhere.py").write_text("number = 1\n")
    (tmp_path / "unrelated.py").write_text("number = 1\n")
    package = tmp_path / "package"
    package.mkdir()
    for name in ("__init__", "nothing"):
        (package / f"{name}.py").touch()
    (package / "helper.py").write_text(HELPER.format("pass"))
    return tmp_path


class Watched:
    """A command that watches, and the lines that it has printed so far on both streams."""

    def __init__(self, folder, *args, command=CHECK):
        self.folder, self.lines = folder, []
        args = (*command, "--watch", "--max-examples", "2", *args)
        self.process = start(folder, *args, stderr=subprocess.STDOUT)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, *starts, seconds=60):
        """Wait for lines with these starts, in this order; discard the lines before them."""
        until = time.monotonic() + seconds
        for begin in starts:
            while not (at := [i for i, x in enumerate(self.lines) if x.startswith(begin)]):
                assert time.monotonic() < until, (begin, self.lines)
                time.sleep(0.02)
            del self.lines[: at[0] + 1]

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def interrupt(self):
        began = time.monotonic()
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(20)
        return code, time.monotonic() - began


@pytest.mark.lane("full")
def test_every_change_is_judged_and_ctrl_c_ends_it(project):
    watched = Watched(project)
    watched.wait_for("matmul: pass: ", "watching 5 files; Ctrl-C to stop")
    # imported files are watched too, and a temporary syntax error does not end the command
    watched.write("package/helper.py", HELPER.format("raise KeyError"))
    watched.wait_for("package/helper.py changed", "gemmproof check: gemmproof itself", "watching 5")
    watched.write("package/helper.py", "def help_out(:\n")
    watched.wait_for("package/helper.py changed", "gemmproof check: package/helper.py:1: import")
    watched.wait_for("watching 5 files")
    # replaced by renaming, as editors do
    watched.write("package/new.py", HELPER.format("pass"))
    os.replace(project / "package/new.py", project / "package/helper.py")
    watched.wait_for("package/helper.py changed", "matmul: pass: ", "watching 5 files")
    # files that it does not import are not watched
    watched.write("unrelated.py", "number = 2\n")
    watched.write("my_kernels.py", KERNELS.replace("elsewhere", "unrelated"))
    watched.wait_for("my_kernels.py changed", "matmul: pass: ", "watching 5 files")
    watched.write("unrelated.py", "number = 3\n")
    watched.wait_for("unrelated.py changed", "matmul: pass: ", "watching 5 files")
    (project / "my_kernels.py").unlink()
    watched.wait_for("my_kernels.py changed", "gemmproof check: target: got 'my_kernels.py' (no su")
    watched.wait_for("watching 4 files")
    watched.write("my_kernels.py", KERNELS)
    watched.wait_for("my_kernels.py changed", "matmul: pass: ", "watching 5 files")
    assert watched.interrupt()[0] == 130
    watched.wait_for("gemmproof check: interrupted by SIGINT")
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
def test_a_change_ends_the_judgement_that_it_makes_stale(project):
    watched = Watched(project, "--time-limit", "600", "--json", "report.json")
    watched.wait_for("matmul: pass: ", "watching 5 files")
    (project / "report.json").unlink()
    watched.write("package/helper.py", HELPER.format(WAITS))
    watched.wait_for("package/helper.py changed")
    time.sleep(0.5)
    watched.write("package/helper.py", HELPER.format("pass"))
    watched.wait_for("package/helper.py changed")
    assert not (project / "report.json").exists()  # removed kernels are not reported
    watched.wait_for("matmul: pass: ", "watching 5 files")
    assert (project / "report.json").exists()
    # and Ctrl-C ends a check in progress
    watched.write("package/helper.py", HELPER.format(WAITS))
    watched.wait_for("package/helper.py changed")
    time.sleep(0.5)
    code, seconds = watched.interrupt()
    assert (code, seconds < 10) == (130, True)  # measured: a fifth of one; more if it is busy
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
def test_a_sign_off_judges_all_kernels_again(project):
    """A kernel or the registration changes; half judged kernels are not reported."""
    watching = "watching 6 files; Ctrl-C to stop"
    (project / "conftest.py").write_text(CONFTEST.format(BOTH))
    watched = Watched(project, "--time-limit", "600", "--json", "signed.json", command=SIGNOFF)
    passed = ("first: pass after ", "second: pass after ", "signoff: pass (2 pass)")
    watched.wait_for(*passed, watching)
    before = (project / "signed.json").read_text()
    watched.write("package/helper.py", HELPER.format(f"if a.dtype == 'bf16': {WAITS}"))
    watched.wait_for("package/helper.py changed", passed[0])
    time.sleep(0.5)
    assert (project / "signed.json").read_text() == before
    watched.write("package/helper.py", HELPER.format("return"))
    watched.wait_for("package/helper.py changed", *passed, watching)
    watched.write("conftest.py", "def pytest_gemm_kernels(:\n")
    why = "gemmproof signoff: conftest.py:1: importing it raised SyntaxError"
    watched.wait_for("conftest.py changed", why, watching)
    watched.write("conftest.py", CONFTEST.format("('third', 'fp16'),"))
    watched.wait_for("conftest.py changed", "third: pass", "signoff: pass (1 pass)", watching)
    before = (project / "signed.json").read_text()
    (project / "conftest.py").unlink()
    why = "gemmproof signoff: --conftest: got 'conftest.py' (no such file)"
    watched.wait_for("conftest.py changed", why, "watching 5 files")
    watched.write("package/helper.py", HELPER.format(f"if a.dtype == 'bf16': {WAITS}"))
    watched.wait_for("package/helper.py changed", why, "watching 5 files")
    watched.write("conftest.py", CONFTEST.format(BOTH))
    watched.wait_for("conftest.py changed", passed[0])
    time.sleep(0.5)
    code, seconds = watched.interrupt()
    assert (code, seconds < 10) == (130, True)
    watched.wait_for("gemmproof signoff: interrupted by SIGINT")
    assert (project / "signed.json").read_text() == before
    assert find_left(project) == ([], [])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("check", "no_kernels.py:matmul"),
            "target: got 'no_kernels.py' (no such file), expected a Python file\n",
        ),
        (SIGNOFF, "--conftest: got 'conftest.py' (no such file)"),
    ],
)
def test_what_names_nothing_ends_at_once(project, args, message):
    code, out, err = finish(start(project, *args, "--watch"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"gemmproof {args[0]}: {message}")


@pytest.mark.parametrize("command", [("check", "x.py:f"), ("signoff",)])
def test_without_watchfiles_a_line_says_what_to_install(command, monkeypatch, capsys):
    monkeypatch.setattr("gemmproof.watch.util.find_spec", lambda name: None)
    assert main([*command, "--watch"]) == 2
    message = "--watch: needs watchfiles: pip install 'gemmproof[watch]'"
    assert capsys.readouterr().err == f"gemmproof {command[0]}: {message}\n"


def test_the_files_of_a_target_are_those_of_the_project(project, monkeypatch):
    monkeypatch.chdir(project)
    files, whole = list_sources(parse("my_kernels.py:matmul"))
    names = {str(path.relative_to(project)) for path in files}
    package = {f"package/{name}.py" for name in ("__init__", "helper", "nothing")}
    assert (names, whole) == ({"my_kernels.py", "elsewhere.py", *package}, True)
    assert list_sources(parse("package.helper:help_out"))[0] == {project / p for p in package}
    (project / "elsewhere.py").write_text("import torch, absent.thing\nfrom package import \\\n")
    files, whole = list_sources(parse("my_kernels.py:matmul"))
    assert not whole
    (project / "elsewhere.py").write_text("import torch, absent.thing, json, my_kernels\n")
    files, whole = list_sources(parse("my_kernels.py:matmul"))
    assert whole
    assert files - {project / name for name in names} == {project / "absent.py"}


def test_too_many_watches_are_one_line(project, monkeypatch, capsys):
    def refuse(*folders, **options):
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles.watch", refuse)
    monkeypatch.chdir(project)
    monkeypatch.setattr("gemmproof.watch.list_sources", lambda target: (set(), True))
    monkeypatch.setattr("gemmproof.commands.check.prepare", lambda options: lambda: 0)
    monkeypatch.setattr("gemmproof.commands.check.preload", lambda limits: nullcontext())
    assert main(["check", "my_kernels.py:matmul", "--watch"]) == 3
    message = "got OS file watch limit reached., expected files that can be watched"
    assert capsys.readouterr().err.endswith(f"gemmproof check: --watch: {message}\n")
