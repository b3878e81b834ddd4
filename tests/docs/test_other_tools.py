"""The comparison with other tools: how answers are read, and the page of recorded ones."""

from __future__ import annotations

import re

import pytest
from scripts.docs import tools_compared
from scripts.gpu.other_tools import ASSERT_CLOSE, INTERPRETER, MEMCHECK, list_mutants, read_answer
from tests.corpora.mutants.table import MUTANTS

README = tools_compared.ROOT / "README.md"


@pytest.mark.parametrize(
    ("tool", "status", "output", "answer"),
    [
        (ASSERT_CLOSE, 0, "answer: nothing\n", "nothing"),
        (ASSERT_CLOSE, 0, "warning\nanswer: AssertionError: x\n", "AssertionError: x"),
        (INTERPRETER, -11, "", "exit status -11"),
        (MEMCHECK, 0, "answer: nothing\n========= ERROR SUMMARY: 0 errors\n", "nothing"),
        (MEMCHECK, 0, "========= ERROR SUMMARY: 3 errors\n", "3 errors"),
        (MEMCHECK, 1, "no such program", "exit status 1"),
    ],
)
def test_an_answer_is_read(tool, status, output, answer):
    assert read_answer(tool, status, output) == answer


def test_every_mutant_of_a_plain_product_was_run_under_every_tool():
    reports = tools_compared.read_reports()
    assert set(reports) == {mutant.name for mutant in list_mutants()}
    assert {frozenset(keys) for keys in reports.values()} == {
        frozenset(tools_compared.COLUMNS.values())
    }


def test_the_page_has_what_was_recorded():
    assert tools_compared.make_page(check=True) == 0


def test_the_readme_has_the_totals():
    reports = tools_compared.read_reports()
    together = sum(any(tools.values()) for tools in reports.values())
    caught = len({mutant.name for mutant in MUTANTS} & set(reports))
    text = " ".join(README.read_text(encoding="utf-8").split())
    match = re.search(r"of (\d+) kernels with one fault each.* report (\d+) .* reports (\d+)", text)
    assert match is not None
    assert [*map(int, match.groups())] == [len(reports), together, caught]
