"""Each code block of each page is executed, or checked by what reads its language."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.docs.block_checks import (
    EXEMPT,
    READERS,
    check_data,
    check_file,
    check_files,
    compare_output,
    is_exempt,
    list_outputs,
    list_unchecked,
    split_command,
)
from tests.docs.pages import ROOT, Block, label_page, list_pages, make_project, read_blocks
from tests.docs.python_blocks import check_page
from tests.docs.shell_lines import check_shell
from tests.support.lanes import first_of_each
from tests.support.pytest_project import run_pytest

from gemmproof.cli import main
from gemmproof.kernels.tables import VARIABLE

PAGES = list_pages()
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
OUTPUTS = list_outputs(BLOCKS)
# a word of a command: a difference between versions of Triton that its output shows
DIFFERENCES = {
    " lowering ": "compiled_in_readme",
    " --check-model": "compiled_in_readme",
    " --tensor-cores": "compiled_in_readme",
    " reproduce ": "interpreter",
    "matmul_grouped": "line_of_a_call",
}


def group_by_page(language: str) -> dict[str, list[Block]]:
    pages: dict[str, list[Block]] = {}
    for block in BLOCKS:
        if block.language == language and not is_exempt(block):
            pages.setdefault(block.page, []).append(block)
    return pages


@pytest.fixture
def project(tmp_path, monkeypatch) -> Iterator[Path]:
    """A project of the reader, as the current folder and on the path of imports."""
    folder = make_project(tmp_path / "project")
    before = dict(sys.modules)
    for path in folder.glob("*"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    monkeypatch.setattr(sys, "path", [x for x in sys.path if Path(x).name != "examples"])
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv(VARIABLE, raising=False)
    yield folder
    for name in set(sys.modules) - set(before):
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def require_none(problems: Iterable[str]) -> None:
    """Fail with the problems, a line each."""
    __tracebackhide__ = True
    if listed := list(problems):
        pytest.fail("\n".join(listed), pytrace=False)


# -- pages -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=label_page)
def test_every_block_has_a_language_that_is_checked(page):
    require_none(list_unchecked(read_blocks(page)))


def test_no_fence_is_overlooked():
    texts = (page.read_text(encoding="utf-8") for page in PAGES)
    fences = [x for text in texts for x in re.findall(r"^[ >*+\d.-]*(?:```|~~~)", text, re.M)]
    assert len(fences) == 2 * len(BLOCKS) > 100


@pytest.mark.parametrize("test", [row[2] for row in EXEMPT])
def test_tests_that_check_blocks_in_place_of_these_exist(test):
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


PYTHON = group_by_page("python")


@pytest.mark.parametrize("page", PYTHON)
def test_python_runs(page, project):
    require_none(check_page(PYTHON[page], project, run_pytest))


SHELL = group_by_page("sh")


@pytest.mark.parametrize("page", SHELL)
def test_commands_are_accepted_by_their_parsers(page, tmp_path, monkeypatch, pytestconfig):
    monkeypatch.chdir(tmp_path)
    require_none(x for block in SHELL[page] for x in check_shell(block, pytestconfig))


def test_data_is_read_by_what_reads_its_language(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [x for x in BLOCKS if x.language in READERS]
    assert len(blocks) >= 4
    require_none(message for block in blocks for message in check_data(block))


def test_files_of_this_repository_are_shown_as_they_are():
    require_none(message for block in BLOCKS for message in check_file(block))
    listed = [
        (block, block.comments["files of"]) for block in BLOCKS if "files of" in block.comments
    ]
    require_none(message for block, folder in listed for message in check_files(block, folder))


def list_rows() -> list:
    """Return the outputs as parameters; some belong to versions of Triton."""
    rows = []
    for row in first_of_each(OUTPUTS):
        (output,) = row.values
        names = [name for word, name in DIFFERENCES.items() if word in output.command]
        rows.append(row._replace(marks=[*row.marks, *map(pytest.mark.triton, names)]))
    return rows


@pytest.mark.proves
@pytest.mark.parametrize("output", list_rows(), ids=str)
def test_outputs_are_what_is_printed(output, project, capsys):
    main(split_command(output.command))
    require_none(compare_output(output, capsys.readouterr().out))


def test_the_readme_shows_outputs():
    assert len([x for x in OUTPUTS if x.block.page == "README.md"]) >= 2
