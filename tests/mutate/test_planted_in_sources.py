"""Faults planted in the project's own sources, and the tests that are run for each."""

import json
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.mutate_sources import (
    FOLDERS,
    GONE,
    MISSED,
    NEVER_CALLED,
    NOTICED,
    Calls,
    find_faults,
    list_tests,
    plant,
    try_all,
)

ROOT = Path(__file__).parents[2]
SOURCE = '''"""It has 7 lines."""


def limit(x: int = 0, *, most: "int | None" = None) -> int:
    """Return 1 or more."""
    if x < 1 and most:
        return max(x, 1)
    log(x)
    return None


def halve(x):
    return x // 2
'''
TESTS = """
import reference.limits as limits

def test_halve():
    assert limits.halve(9) == 4

def test_limit():
    limits.limit(9)
"""


@pytest.fixture
def project(tmp_path):
    """Create a project with tests, one of which detects nothing, and the record of them."""
    root = tmp_path / "project"
    (root / "reference").mkdir(parents=True)
    (root / "reference" / "limits.py").write_text(SOURCE.replace("log(x)", "print(x)"))
    (root / "test_limits.py").write_text(TESTS)
    (root / "conftest.py").write_text(
        'def pytest_addoption(parser):\n    parser.addoption("--full", action="store_true")\n'
    )
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    calls = tmp_path / "calls"
    calls.mkdir()
    (calls / "1.tsv").write_text(
        "test_limits.py::test_halve\t0.10\treference/limits.py:halve\n"
        "test_limits.py::test_limit\t0.20\n"
        "test_limits.py::test_gone\tfailed\treference/limits.py:halve\n"
    )
    (calls / "2.tsv").write_text("test_limits.py::test_limit\t\treference/limits.py:limit\n")
    return root, Calls(calls)


def changes(path):
    return {(x.function, x.old, x.new) for x in find_faults(path, "reference/limits.py")}


def test_operators_numbers_conditions_results_and_calls_are_changed(tmp_path):
    path = tmp_path / "limits.py"
    path.write_text(SOURCE)
    assert changes(path) == {
        ("limit", "0", "1"),
        ("limit", "x < 1 and most", "not (x < 1 and most)"),
        ("limit", "and", "or"),
        ("limit", "<", "<="),
        ("limit", "1", "2"),
        ("limit", "max(x, 1)", "None"),
        ("limit", "log(x)", "None"),
        ("halve", "x // 2", "None"),
        ("halve", "//", "*"),
        ("halve", "2", "3"),
    }


def test_a_fault_is_the_same_one_below_other_lines_and_gone_with_its_own(project):
    root, _ = project
    path = root / "reference" / "limits.py"
    fault = next(x for x in find_faults(path, "reference/limits.py") if x.old == "//")
    path.write_text("import math\n" + path.read_text())
    assert plant(root, fault).endswith("return x * 2\n")
    path.write_text(SOURCE.replace("x // 2", "x >> 1"))
    assert plant(root, fault) is None


def test_every_fault_of_a_file_can_be_compiled():
    path = ROOT / "reference" / "work.py"
    for fault in find_faults(path, "reference/work.py"):
        compile(plant(ROOT, fault), fault.path, "exec")


@pytest.mark.lane("full")
def test_what_tests_notice_is_told_from_what_they_miss(project, tmp_path):
    root, calls = project
    faults = find_faults(root / "reference" / "limits.py", "reference/limits.py")
    assert calls.pick(next(x for x in faults if x.function == "halve")) == [
        "test_limits.py::test_halve"
    ]
    picked = [x for x in faults if (x.old, x.function) in {("//", "halve"), ("<", "limit")}]
    picked.append(replace(picked[0], path="reference/other.py"))
    statuses = dict(try_all(root, picked, calls, tmp_path / "copies", 2))
    assert {(x.path, x.old): status for x, status in statuses.items()} == {
        ("reference/limits.py", "//"): NOTICED,
        ("reference/limits.py", "<"): MISSED,
        ("reference/other.py", picked[-1].old): GONE,
    }


@pytest.mark.lane("full")
def test_a_record_of_other_tests_is_told_by_their_names(project):
    root, calls = project
    assert list_tests(root) >= calls.seconds.keys()
    (root / "test_limits.py").rename(root / "test_bounds.py")
    assert not list_tests(root) & calls.seconds.keys()


def test_the_page_on_tests_says_how_many_faults_they_notice():
    statuses = json.loads((ROOT / "docs" / "evidence" / "faults.json").read_text())
    of_each = Counter((x["fault"]["path"].partition("/")[0], x["status"]) for x in statuses)
    assert of_each.keys() <= {(x, y) for x in FOLDERS for y in (NOTICED, MISSED, NEVER_CALLED)}
    text = (ROOT / "docs" / "contributing" / "tests.md").read_text()
    for folder in FOLDERS:
        noticed = of_each[folder, NOTICED]
        total = sum(n for (name, _), n in of_each.items() if name == folder)
        assert f"| `{folder}/` | {total} | {noticed} |" in text
