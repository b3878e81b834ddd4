"""The pictures of the documentation are what the command draws, in a light and a dark version."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.docs import pictures
from scripts.docs.diagrams import split_styles, wrap
from scripts.docs.drawing import DARK, LIGHT, LogAxis, number
from scripts.docs.grids import SIDE, find_access, find_orders
from scripts.docs.pictures import FOLDER, PICTURES, THEMES, find_difference, find_path

from gemmproof.explain.plot import merge_cells

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">'
    r'\s*<img src="([^"]+)" alt="([^"]*)"[^>]*>\s*</picture>'
)
MARKS = {
    "explain-grouped": [pytest.mark.triton("line_of_a_call")],
    "terminal": [pytest.mark.proves],
}


def list_pictures() -> list:
    """Return the names of pictures as parameters; slow ones are drawn in the full lane."""
    slow = [pytest.mark.lane("full")]
    return [
        pytest.param(name, marks=slow * picture.slow + MARKS.get(name, []))
        for name, picture in PICTURES.items()
    ]


@pytest.mark.parametrize("name", list_pictures())
def test_a_picture_is_what_is_drawn_now(name):
    differences = [
        f"{path.name}: {difference}"
        for path, _, difference in pictures.iter_differences(name)
        if difference
    ]
    assert differences == [], f"run `./run python scripts/pages.py pictures --only {name}`"


def test_every_picture_is_drawn_by_the_command_in_both_versions():
    expected = {find_path(name, theme).name for name in PICTURES for theme in THEMES}
    assert {path.name for path in FOLDER.iterdir()} == expected


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_loads_nothing_and_runs_nothing(name):
    for theme in THEMES:
        svg = find_path(name, theme).read_text("utf-8")
        assert re.findall(r"<script|@font-face|@import|<image|url\((?!#)|href=\"(?!#)", svg) == []


def test_pages_show_both_versions_with_a_description():
    count = 0
    for page in PAGES:
        text = page.read_text("utf-8")
        shown = SHOWN.findall(text)
        assert len(shown) == len(re.findall(r"pictures/[\w-]+\.svg", text)) / 2, (
            f"{page}: a picture without two versions"
        )
        for dark, light, alt in shown:
            assert dark == light.replace("-light.svg", "-dark.svg"), page
            assert all((page.parent / name).is_file() for name in (dark, light)), page
            assert len(alt) > 20, f"{page}: {light}: got alt={alt!r}, expected a description"
        count += len(shown)
    assert count >= 9


# -- the comparison --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('x="1.0"', 'x="1.1"', ""),
        ('x="1.0"', 'x="3.0"', "x: got '3.0', expected '1.0'"),
        ('fill="#ff0000"', 'fill="#ff0001"', "got '#ff0001', expected '#ff0000'"),
        (">13 cases<", ">14 cases<", "got '14 cases', expected '13 cases'"),
        (">in 13 s<", ">in 2 s<", ""),
        ("<a/>", "", "got 2 elements, expected 3"),
    ],
)
def test_a_difference_is_seen(before, after, expected):
    drawn = '<svg><text x="1.0" fill="#ff0000">13 cases</text><a/></svg>'
    if "in 13 s" in before:
        drawn = drawn.replace("13 cases", "in 13 s")
    assert before in drawn
    difference = find_difference(drawn.replace(before, after), drawn)
    assert difference.endswith(expected) if expected else difference == ""


def test_changed_data_changes_a_picture(monkeypatch):
    order = find_orders()[0]
    swapped = replace(order, tiles=(order.tiles[1], order.tiles[0], *order.tiles[2:]))
    monkeypatch.setattr("scripts.docs.grids.find_orders", lambda: (swapped, *find_orders()[1:]))
    assert all(difference for _, _, difference in pictures.iter_differences("visit-order"))


def test_two_versions_of_matplotlib_are_compared_by_their_texts():
    head = "<svg xmlns='x' xmlns:dc='y'><dc:title>Matplotlib v3.{}.0, x</dc:title>"
    kept, drawn = (head.format(n) + "<text x='{}'>{}</text></svg>" for n in (9, 10))
    assert find_difference(kept.format(1, "a"), drawn.format(90, "a")) == ""
    assert find_difference(kept.format(1, "a"), drawn.format(1, "b")) == "got 'a', expected 'b'"
    assert find_difference(kept.format(1, "a"), kept.format(90, "a")) != ""


# -- what is drawn ---------------------------------------------------------------------------------
def test_each_order_visits_every_tile_once():
    everything = {(i, j) for i in range(SIDE) for j in range(SIDE)}
    row_major, grouped, swizzled = find_orders()
    for order in (row_major, grouped, swizzled):
        assert len(order.tiles) == SIDE**2
        assert set(order.tiles) == everything
    assert row_major.tiles == tuple(sorted(everything))
    assert grouped.tiles == swizzled.tiles
    assert [tuple(map(len, order.wave)) for order in find_orders()] == [(1, 9), (3, 3), (3, 3)]


def test_the_access_leaves_its_operand_in_k_only():
    panel, access = find_access()
    rows, columns = panel["shape"]
    outside = {
        (i, j) for i, row in enumerate(panel["cells"]) for j, state in enumerate(row) if state == 4
    }
    assert outside == {(i, j) for i in range(rows) for j in range(columns, 64)}
    assert access.fix is not None
    assert access.fix.condition == "(offs_k[None, :] < K)"


def test_cells_are_covered_once_by_rectangles_of_their_state():
    cells = [[1, 1, 2], [1, 1, 2], [3, 3, 3]]
    covered = {
        (i, j): state
        for state, row, column, height, width in merge_cells(cells)
        for i in range(row, row + height)
        for j in range(column, column + width)
    }
    assert covered == {(i, j): cells[i][j] for i in range(3) for j in range(3)}
    assert len(list(merge_cells(cells))) == 3


def test_styles_of_a_terminal_are_kept_across_wrapped_lines():
    (spans,) = split_styles("\x1b[1;31mfail: one two three\x1b[0m plain")
    assert spans == [("fail: one two three", "1;31"), (" plain", "")]
    assert wrap(spans, 14) == [
        [("fail: one two", "1;31")],
        [("  ", ""), ("three", "1;31"), (" plain", "")],
    ]


def test_a_dark_picture_keeps_hues_and_swaps_black_and_white():
    svg = '<svg width="1"><g id="tile_3"><text style="fill: #ffffff">3</text></g><a b="#000000"/>'
    dark = pictures.darken(svg + '<a b="#ffffff"/><a b="#123456"/>')
    assert f'<a b="{DARK.ink}"/><a b="{DARK.page}"/><a b="#123456"/>' in dark
    assert '<g id="tile_3" fill="#000000"><text style="fill: #ffffff">' in dark


def test_a_logarithmic_axis_places_its_ends():
    axis = LogAxis(1, 100, 10, 30)
    assert [axis.locate(x) for x in (1, 10, 100)] == pytest.approx([10, 20, 30])
    assert [number(x) for x in (-0.01, 1.04, 2.0, 123.45)] == ["0", "1", "2", "123.5"]


def contrast(front: str, behind: str) -> float:
    """Return the contrast of two colours by the formula of WCAG 2."""

    def luminance(colour: str) -> float:
        shares = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
        return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    bright, dim = sorted((luminance(front), luminance(behind)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize("colour", ["ink", "faint", "blue", "green", "orange", "red", "purple"])
def test_texts_have_the_contrast_of_wcag(theme, colour):
    for behind in (theme.page, theme.panel):
        assert contrast(getattr(theme, colour), behind) >= 4.5
