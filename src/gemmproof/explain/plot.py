"""The picture of an address map: what one program touches, and the order of the tiles of c."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmproof.report.svg import write_svg

if TYPE_CHECKING:
    from gemmproof.properties.address_map.picture import OperandPanel, Picture

# by the states of properties/address_map/picture.py; the colours of Okabe and Ito
LOOKS = (
    ("outside", "#FFFFFF"),
    ("not touched", "#E8E8E8"),
    ("in bounds", "#56B4E9"),
    ("masked off", "#F7E3B5"),
    ("out of bounds", "#D55E00"),
    ("stored twice", "#CC79A7"),
)
NUMBERED = 400  # tiles: more are coloured only
COLUMNS = 2
LINED = 48  # cells along a side: more are drawn without lines between them


def draw(picture: Picture, path: Path | str) -> None:
    """Write an SVG: a panel for each operand, the last one for the order of programs."""
    panels, order = picture["panels"], picture["order"]
    count = len(panels) + bool(order)
    columns = min(COLUMNS, count)
    rows = -(-count // columns)
    with write_svg(Path(path), 3.7 * columns, 3.9 * rows + 0.9) as figure:
        figure.suptitle(picture["title"], fontsize=12, fontweight="bold")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for subplot, panel in zip(axes, panels, strict=False):
            _draw_panel(subplot, panel)
        if order:
            _draw_order(axes[len(panels)], panels[-1]["shape"], order)
        for subplot in axes[count:]:
            subplot.set_axis_off()
        _draw_legend(figure, {x for p in panels for row in p["cells"] for x in row})


def _draw_panel(axes: Any, panel: OperandPanel) -> None:
    from matplotlib.patches import Rectangle

    top, left = panel["origin"]
    height, width = panel["shape"]
    cells = panel["cells"]
    box = (left, left + len(cells[0]), top + len(cells), top)
    for state, row, column, down, across in merge_cells(cells):
        corner = (left + column, top + row)
        axes.add_patch(Rectangle(corner, across, down, facecolor=LOOKS[state][1], linewidth=0))
    if max(len(cells), len(cells[0])) <= LINED:
        axes.hlines(range(top, top + len(cells) + 1), *box[:2], color="white", linewidth=0.4)
        lines = range(left, left + len(cells[0]) + 1)
        axes.vlines(lines, top, top + len(cells), color="white", linewidth=0.4)
    border: Any = {"fill": False, "edgecolor": "black", "linewidth": 1.6, "zorder": 3}
    axes.add_patch(Rectangle((0, 0), width, height, **border))
    _frame(axes, box)
    program = ", ".join(map(str, panel["program"]))
    trip = f", iteration {', '.join(map(str, panel['trip']))}" if panel["trip"] else ""
    size = f"{height} x {width}"
    axes.set_title(
        f"{panel['kind']} {panel['operand']} ({size}), {panel['where']}\nprogram ({program}){trip}",
        fontsize=9,
    )
    axes.set_ylabel(panel["axes"][0], fontsize=9)
    axes.set_xlabel(panel["axes"][1], fontsize=9)


def merge_cells(cells: list[list[int]]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield rectangles of one state that cover the cells: state, row, column, height, width."""
    row = 0
    for states, alike in groupby(cells):
        height, column = len(list(alike)), 0
        for state, run in groupby(states):
            width = len(list(run))
            yield state, row, column, height, width
            column += width
        row += height


def _draw_order(axes: Any, shape: list[int], order: list[list[int]]) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colours = colormaps["viridis"]
    last = max(len(order) - 1, 1)
    fits = len(order) <= NUMBERED
    for index, (number, top, left, height, width) in enumerate(order):
        colour = colours(index / last)
        axes.add_patch(
            Rectangle(
                (left, top), width, height, facecolor=colour, edgecolor="white", linewidth=0.8
            )
        )
        if fits:
            bright = sum(colour[:3]) > 1.6
            axes.text(
                left + width / 2, top + height / 2, str(number), ha="center", va="center",
                fontsize=_font(len(order)), color="black" if bright else "white",
                gid=f"tile_{number}",
            )  # fmt: skip
    middles = [(left + w / 2, top + h / 2) for _, top, left, h, w in order]
    if len(middles) > 1:
        axes.plot(*zip(*middles, strict=True), color="black", linewidth=0.6, alpha=0.35)
    _frame(axes, (0, shape[1], shape[0], 0))
    axes.set_aspect("auto")  # numbers need the height
    axes.set_title("tiles of c, by the number\nof the program that stores them", fontsize=9)
    axes.set_xlabel("column", fontsize=9)
    axes.set_ylabel("row", fontsize=9)


def _font(count: int) -> float:
    return 10 if count <= 36 else 7.5 if count <= 100 else 5


def _frame(axes: Any, box: tuple[int, int, int, int]) -> None:
    left, right, bottom, top = box
    pad = 0.02 * max(right - left, bottom - top)
    axes.set_xlim(left - pad, right + pad)
    axes.set_ylim(bottom + pad, top - pad)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=8, length=2)
    axes.locator_params(nbins=5, integer=True)
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_legend(figure: Any, used: set[int]) -> None:
    from matplotlib.patches import Patch

    patches: list[Any] = [
        Patch(facecolor=colour, edgecolor="0.6", label=label)
        for state, (label, colour) in enumerate(LOOKS)
        if state in used and state
    ]
    patches.append(Patch(facecolor="none", edgecolor="black", linewidth=1.6, label="the operand"))
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False,
                  fontsize=9)  # fmt: skip
