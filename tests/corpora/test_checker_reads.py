"""Wrappers that look for their checker are named with the line; those that only look alike are not.

Each wrapper of the corpus marks the line that looks.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import triton
from tests.corpora.checker_reads import helper, innocent, looks
from tests.support.pytest_project import ROOT

from gemmproof import Contract, KernelUnderTest
from gemmproof.engine import checker_reads
from gemmproof.engine.assemble import judge
from gemmproof.engine.checker_reads import find_reads
from gemmproof.engine.kernel_check import check
from gemmproof.engine.request import CheckRequest
from gemmproof.report.text import lines
from gemmproof.target import KernelRef, parse
from gemmproof.worker.supervisor import Limits

MARK = "# looks"
NOT_WRAPPERS = ("right", "choose", "is_there", "is_loaded", "main", "text_that_is_executed")


def list_wrappers(module):
    """List the wrappers of a module."""
    return [
        pytest.param(value, id=name)
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and name not in NOT_WRAPPERS
        and callable(value)
        and not isinstance(value, type)
    ]


LOOKS, INNOCENT = list_wrappers(looks), list_wrappers(innocent)


def find_marks(module):
    """Return the marked lines of a module."""
    lines = Path(module.__file__).read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(MARK)]


def list_lines(launch):
    return [str(read) for read in find_reads(KernelUnderTest("wrapper", launch, Contract()))]


def expect_place(launch):
    """Return where the wrapper, or what it calls, is marked."""
    if launch is looks.help_of_another_module:
        return f"helper.py:{find_marks(helper)[0]}"
    if launch is looks.label_passed_to_a_function:
        launch = looks.is_there
    code = looks.Product if isinstance(launch, looks.Product) else launch
    lines, first = inspect.getsourcelines(code)
    (marked,) = (first + i for i, line in enumerate(lines) if line.rstrip().endswith(MARK))
    return f"looks.py:{marked}"


@pytest.mark.parametrize("launch", LOOKS)
def test_a_wrapper_that_looks_for_its_checker_is_named_with_the_line(launch):
    (line,) = list_lines(launch)
    assert line.startswith(f"{expect_place(launch)} ")


@pytest.mark.parametrize("launch", INNOCENT)
def test_a_wrapper_that_only_looks_alike_is_not_named(launch):
    assert list_lines(launch) == []


def look(a_ptr, b_ptr):
    return "gemmproof" in sys.modules


@triton.jit
def device_code(a_ptr, b_ptr):
    return "gemmproof" in sys.modules


def launch_it(a, b):
    device_code[(1,)](a, b)


def call_it(a, b):
    return look(a, b)


def test_device_code_looks_for_nothing():
    """The same text in a function of the host does."""
    assert (len(list_lines(launch_it)), len(list_lines(call_it))) == (0, 1)


@pytest.mark.lane("full")
@pytest.mark.parametrize("launch", LOOKS)
def test_no_wrapper_that_looks_for_its_checker_passes(launch):
    assert check(KernelUnderTest("wrapper", launch, Contract()), max_examples=2).verdict != "pass"


@pytest.mark.lane("full")
@pytest.mark.parametrize("launch", INNOCENT)
def test_a_wrapper_that_only_looks_alike_passes(launch):
    report = check(KernelUnderTest("wrapper", launch, Contract()), max_examples=6)
    assert (report.verdict, report.note) == ("pass", None)


def test_there_are_enough_of_them():
    assert (len(LOOKS) >= 30, len(INNOCENT) >= 15) == (True, True)


def test_the_ways_are_described(texts):
    texts("reads of the checker", "\n".join(line for x in LOOKS for line in list_lines(*x.values)))


@pytest.mark.parametrize("name", ["label_in_modules", "depth_of_the_stack"])
def test_the_verdict_line_names_it(name):
    report = check(KernelUnderTest(name, getattr(looks, name), Contract()), max_examples=2)
    note = list_lines(getattr(looks, name))[0]
    assert (report.verdict, report.note, report.findings) == ("incomplete", note, ())
    assert [text for text, _ in lines(report, str)][-1].endswith(f"; {note}")


def test_a_kernel_that_is_not_simulated_has_its_line_too():
    launch = looks.label_in_modules
    report = check(KernelUnderTest("wrapper", launch, Contract(), device_only=True), max_examples=1)
    assert report.verdict == "incomplete"
    assert report.note.endswith(list_lines(launch)[0])


@pytest.mark.parametrize(
    ("path", "how"),
    [("/proc/self/cmdline", ["reads /proc/self/cmdline"]), ("/proc/self/mem", []), (7, [])],
)
def test_a_file_about_the_process_is_judged_when_it_is_opened(path, how, monkeypatch):
    monkeypatch.setattr(checker_reads, "_executed", {})
    checker_reads._hear("open", (path, "r", 0))  # as Python's audit does
    assert [read.how for read in checker_reads._executed] == how


@pytest.mark.lane("full")
def test_executed_text_is_judged_when_it_runs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kernel = KernelRef(
        "f", target=parse(f"{looks.__file__}:text_that_is_executed"), contract=Contract()
    )
    request = CheckRequest(kernel, max_examples=2)
    report, _ = judge(request, Limits())
    text = Path(looks.__file__).read_text()
    line = text[: text.index("    exec(")].count("\n") + 1
    assert report.note == f"looks.py:{line} looks for gemmproof in sys.modules"
