"""The tests that docs/how-to/test-with-hypothesis.md shows pass right kernels and no others."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Block, read_blocks
from tests.support.pytest_project import HEAD, run_pytest

PAGE = ROOT / "docs" / "how-to" / "test-with-hypothesis.md"
BLOCKS = [block for block in read_blocks(PAGE) if "pytest" in block.comments]
EXAMPLES = ROOT / "docs" / "examples"
TESTS = ("test_alignment.py", "test_same_bits.py", "test_workspace.py")
PROFILE = """
from hypothesis import Phase, settings
phases = [phase for phase in Phase if phase is not Phase.explain]
settings.register_profile("page", database=None, phases=phases, {settings})
settings.load_profile("page")
"""
REGISTERS = f"""{HEAD}from no_k_mask import matmul
    return [K("matmul", matmul, Contract())]
"""


def make_project(folder: Path, **settings: object) -> Path:
    """Write the examples, the suite, and a profile without what takes long, to a folder."""
    for path in EXAMPLES.glob("*.py"):
        shutil.copy(path, folder)
    listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    (folder / "conftest.py").write_text(PROFILE.replace("{settings}", listed) + REGISTERS)
    (folder / "test_gemm.py").write_text("from gemmproof.suite import *\n")
    return folder


def squeeze(text: str) -> str:
    """Return lines without the indentation that pytest gives a message."""
    return "".join(f"{' '.join(line.split())}\n" for line in text.splitlines())


def require_shown(block: Block, printed: str) -> None:
    """Fail if pytest did not print the lines of a block; a line `...` stands for any lines.

    The numbers of a block whose case depends on a seed depend on the version of Hypothesis too.
    """
    lines = squeeze(block.text).splitlines()
    pattern = "".join(r"(?:.*\n)*?" if x == "..." else re.escape(f"{x}\n") for x in lines)
    if "--hypothesis-seed" in block.comments["pytest"]:
        pattern = re.sub(r"(?<![a-z])\d+", r"\\d+", pattern)
    assert re.search(f"^{pattern}", squeeze(printed), re.MULTILINE), block.report("not printed")


def test_right_kernels_pass(tmp_path):
    folder = make_project(tmp_path, derandomize=True, max_examples=5)
    status, out = run_pytest(folder, "-q", *TESTS)
    assert status == 0
    assert f"{len(TESTS)} passed" in out


def test_the_page_shows_a_failure_of_each_test():
    assert sorted(find_test(block) for block in BLOCKS) == sorted(("test_gemm.py", *TESTS))


def find_test(block: Block) -> str:
    """Return the file of the tests whose failure a block shows."""
    return next(x for x in block.comments["pytest"].split() if x.endswith(".py"))


def list_failures() -> list:
    """Return the blocks as parameters: one in the default lane, each takes seconds."""
    slow = [() if find_test(x) == TESTS[0] else pytest.mark.lane("full") for x in BLOCKS]
    return [pytest.param(x, marks=m, id=find_test(x)) for x, m in zip(BLOCKS, slow, strict=True)]


@pytest.mark.parametrize("block", list_failures())
def test_wrong_kernels_fail_as_the_page_shows(block, tmp_path):
    folder = make_project(tmp_path, max_examples=100)
    if "with" in block.comments:
        path = folder / find_test(block)
        old, new = block.comments["with"].split(" -> ")
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))
    status, out = run_pytest(folder, *block.comments["pytest"].split(), columns=200)
    assert status == 1
    require_shown(block, out)
