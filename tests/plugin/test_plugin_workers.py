"""Kernels in a pytest run: each is judged once, in a process that it may end or block."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.support.pytest_project import HEAD, read_outcomes, run_pytest, write_project

HARM = """
import ctypes, os, sys
import right

def faults(a, b):
    if a.shape[0] > 2:
        ctypes.string_at(0)
    return right.matmul(a, b)

def ends(a, b):
    os._exit(0)

def hangs(a, b):
    while a.shape[0] > 2:
        pass
    return right.matmul(a, b)

def speaks(a, b):
    print("last words")
    return right.matmul(a, b) + 1

def counts(a, b):
    with open("calls", "a") as calls:
        calls.write(f"{os.getpid()}\\n")
    return right.matmul(a, b)
"""
FEW = ("--gemm-max-examples", "6", "-v")


@pytest.fixture
def register(tmp_path):
    """Return a function that writes a project that registers functions of HARM by name."""

    def register(*names: str) -> Path:
        (tmp_path / "harm.py").write_text(HARM)
        kernels = ", ".join(f"K({name!r}, harm.{name})" for name in names)
        conftest = f"{HEAD}import harm\n    return [{kernels}]\n"
        return write_project(tmp_path, conftest, "right")

    return register


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("name", "got"),
    [
        ("faults", "the process died of SIGSEGV"),
        ("ends", "os._exit(0) was called"),
        ("hangs", "it timed out after 2 s"),
    ],
)
def test_a_kernel_that_ends_its_process_fails_an_item_and_not_the_run(register, name, got, texts):
    project = register(name, "counts")
    status, out = run_pytest(project, *FEW, "-rs", "--gemm-time-limit", "2")
    assert status == 1, out
    by_kernel = read_outcomes(out)
    assert by_kernel[name]["runs_to_completion"] == "FAILED"
    assert list(by_kernel[name].values()).count("FAILED") == 1
    assert got in out
    smallest = re.search(r"smallest case: (.*) fp16", out)
    assert name != "faults" or smallest[1].split() == ["M=3", "N=1", "K=1"]
    reason = dict(re.findall(rf"SKIPPED .*: {name}-fp16-(\w+): (.*)", out))["symmetries"]
    reason = re.sub(r"\d+ cases?", "<count> cases", reason)
    texts("the reason of items after the end of a process", reason, end=got)
    assert set(by_kernel["counts"].values()) <= {"PASSED", "SKIPPED"}


@pytest.mark.lane("full")
def test_in_pytest_s_own_process_where_that_is_asked_for(register):
    project = register("ends")
    status, out = run_pytest(project, *FEW, "--gemm-in-process")
    assert status == 0  # the kernel's exit status
    assert "passed" not in out
    (project / "pytest.ini").write_text("[pytest]\ngemm_in_process = true\n")
    assert "passed" not in run_pytest(project, *FEW)[1]


@pytest.mark.lane("full")
def test_what_a_kernel_prints_stands_beside_its_failure(register):
    _, out = run_pytest(register("speaks"), *FEW, "-k", "exact_on_integers")
    assert "Captured stdout setup" in out
    assert "last words" in out


@pytest.mark.lane("full")
def test_a_worker_imports_what_pytest_was_told_to_find(register):
    """The ini file has a `pythonpath`, and conftest.py is in a subfolder."""
    project = register("counts")
    (project / "source").mkdir()
    (project / "below").mkdir()
    for name in ("harm.py", "right.py"):
        (project / name).rename(project / "source" / name)
    for name in ("conftest.py", "test_kernels.py"):
        (project / name).rename(project / "below" / name)
    (project / "pytest.ini").write_text("[pytest]\npythonpath = source\n")
    status, out = run_pytest(project, *FEW, "-k", "compiles")
    assert status == 0, out
    assert "1 passed" in out


@pytest.mark.lane("full")
def test_a_kernel_that_no_file_registers_is_judged_all_the_same(register):
    project = register("counts")
    (project / "conftest.py").write_text(
        "class Registers:\n"
        "    def pytest_gemm_kernels(self):\n"
        "        import harm, gemmproof\n"
        "        return [gemmproof.KernelUnderTest('counts', harm.counts)]\n\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Registers())\n"
    )
    status, out = run_pytest(project, *FEW, "-k", "compiles")
    assert status == 0, out
    assert "1 passed" in out


@pytest.mark.lane("full")
def test_a_hook_that_answers_pytest_alone_is_told_of(register):
    project = register("counts")
    text = (project / "conftest.py").read_text().replace("'counts'", "'only' + kind")
    (project / "conftest.py").write_text(
        f"kind = 's'\ndef pytest_configure():\n    global kind\n    kind = 'here'\n\n{text}"
    )
    status, out = run_pytest(project, *FEW, "-k", "compiles")
    assert status == 1
    message = (
        "conftest.py: got kernels named onlys in a worker process, expected one named onlyhere"
    )
    assert message in out


@pytest.mark.lane("full")
@pytest.mark.parametrize("how", ["load", "each"])
def test_workers_of_xdist_judge_each_kernel_once(register, how):
    """Each kernel has its own process, whose calls all record its number."""
    names = ("first", "second", "third")
    project = register("counts")
    kernels = ", ".join(f"K({name!r}, harm.counts)" for name in names)
    (project / "conftest.py").write_text(f"{HEAD}import harm\n    return [{kernels}]\n")
    options = ("--dist", how, "-n2") if how != "each" else ("--dist", "each", "--tx", "2*popen")
    status, out = run_pytest(project, "--gemm-max-examples", "6", *options)
    assert status == 0, out
    assert len(Counter((project / "calls").read_text().split())) == len(names)


def test_a_worker_that_would_wait_judges_another_kernel_meanwhile(tmp_path):
    from gemmproof.engine.assemble import make_error
    from gemmproof.plugin import GemmItem
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.pytest_plugin.reports import Reports
    from gemmproof.report.files import lock_file

    items = [
        GemmItem(KernelUnderTest(name, len), "fp16", "compiles", conftest="conftest.py")
        for name in ("busy", "free", "last")
    ]
    judged = []

    def judge(item):
        judged.append(item.kernel.name)
        if item.kernel.name == "free":  # the other process is finished
            theirs.__exit__(None, None, None)
        return make_error(item.kernel.name, "judged")

    reports = Reports(judge, tmp_path, items)
    theirs = lock_file(reports.locate(items[0]).with_suffix(".lock"), 0)
    assert theirs.__enter__()
    assert reports.find(items[0]).target == "busy"
    assert judged == ["free", "busy"]
    others = Reports(judge, tmp_path, items)
    assert [others.find(item).target for item in items] == ["busy", "free", "last"]
    assert judged == ["free", "busy", "last"]
