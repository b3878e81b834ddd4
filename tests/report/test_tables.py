"""Tables of text: aligned, without marks of a terminal, and with every character of a cell."""

from dataclasses import replace

import pytest
from tests.report.reports_by_hand import report

from gemmproof.report.record import Limit
from gemmproof.report.text import format_ratio, format_table, lines


def test_columns_are_aligned_and_lines_end_without_spaces(texts):
    rows = [["kernel", "cases", ""], ["matmul", "7", "held"], ["a longer name", "1024", ""]]
    texts("a table of aligned columns", "\n".join(format_table(rows, "lrl")))


def test_cells_are_no_markup_and_are_shown_whole_on_a_terminal_that_is_narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    odd = "[bold]x[/bold] :tada: " + "y" * 200
    assert format_table([[odd, "1"]], "lr", ["name", "n"]) == [
        f"name{' ' * (len(odd) - 4)}   n",
        "─" * (len(odd) + 4),
        f"{odd}   1",
    ]


def test_only_the_last_column_is_wrapped():
    rows = [["first name", "a text of some words"], ["second", "short"]]
    assert format_table(rows, "ll", width=24) == [
        "first name  a text of",
        "            some words",
        "second      short",
    ]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "0"), (0.12345, "0.123"), (0.99951, "0.9995"), (1 - 2**-53, "0.9999999999999999"),
     (1.0, "1"), (1.0004, "1.0004"), (2.5, "2.5")],
)  # fmt: skip
def test_a_share_of_a_bound_is_1_only_if_it_is(ratio, text):
    assert format_ratio(ratio) == text


def test_limits_take_one_line_unless_they_are_asked_for():
    names = ("bf16", "fp32", "tf32", "int8", "any strides")
    limits = tuple(Limit(name, f"--dtype {name}", "limit", "message") for name in names)
    own = replace(report(), limits=(*limits, Limit("K = 0", "--sizes K=0..", "holds")))
    (line,) = [text for text, _ in lines(own, str) if "limit" in text]
    assert (
        line == "beyond the contract, not supported: bf16, fp32, tf32, int8 and 1 more (--limits)"
    )
    listed = [text for text, _ in lines(own, str, limits=True)]
    assert [name for name in names if not any(x.startswith(f"  {name}") for x in listed)] == []
