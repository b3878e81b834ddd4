"""Tables of text: aligned, without marks of a terminal, and with every character of a cell."""

from gemmproof.report.text import format_table


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
