"""The pictures of the whole: a command in a terminal, and the way from a kernel to a report."""

from __future__ import annotations

import functools
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

from scripts.docs.drawing import MONO, Theme, arrow, picture, polyline, rectangle, text
from scripts.docs.markdown import ROOT

from gemmproof.properties.property_table import PROPERTIES

# -- a terminal ------------------------------------------------------------------------------------
EXAMPLES = ROOT / "docs" / "examples"
TARGET = "unmasked_row.py:matmul"
COLUMNS = 100
CELL, LINE = 8.2, 20  # of a monospaced font of 13.6 px
STYLE = re.compile(r"\x1b\[([\d;]*)m")
Span = tuple[str, str]  # text, and the codes of its style


@functools.cache
def run_in_terminal(target: str) -> str:
    """Return what `gemmproof check TARGET` prints on a terminal, with its escape sequences."""
    main, worker = pty.openpty()
    argv = [sys.executable, "-m", "gemmproof", "check", target]
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "CI"):
        environment.pop(name, None)
    # stderr has the progress, of which nothing is left at the end
    with subprocess.Popen(
        argv, cwd=EXAMPLES, env=environment, stdout=worker, stderr=subprocess.DEVNULL
    ):
        os.close(worker)
        return b"".join(_read(main)).decode().replace("\r\n", "\n").strip("\n")


def _read(terminal: int) -> Iterator[bytes]:
    with open(terminal, "rb", buffering=0) as stream:
        while True:
            try:
                piece = stream.read(1 << 16)
            except OSError:  # Linux's end of a terminal that nobody holds open
                return
            if not piece:
                return
            yield piece


def split_styles(printed: str) -> list[list[Span]]:
    """Return the lines of a printed text as spans of one style each."""
    lines: list[list[Span]] = []
    codes = ""
    for line in printed.split("\n"):
        spans, start = [], 0
        for match in STYLE.finditer(line):
            spans.append((line[start : match.start()], codes))
            codes, start = match[1].removeprefix("0").strip(";"), match.end()
        spans.append((line[start:], codes))
        lines.append([span for span in spans if span[0]])
    return lines


def wrap(spans: list[Span], columns: int) -> list[list[Span]]:
    """Break a line at spaces; its further parts are indented by two columns more."""
    shown = "".join(shown for shown, _ in spans)
    styles = [codes for shown, codes in spans for _ in shown]
    indent = len(shown) - len(shown.lstrip(" ")) + 2
    rows: list[list[Span]] = []
    start, available = 0, columns
    while len(shown) - start > available:
        end = shown.rfind(" ", start + 1, start + available + 1)
        rows.append(_cut(shown, styles, start, end, indent * bool(rows)))
        start, available = end + 1, columns - indent
    return [*rows, _cut(shown, styles, start, len(shown), indent * bool(rows))]


def _cut(shown: str, styles: list[str], start: int, end: int, indent: int) -> list[Span]:
    spans: list[Span] = [(" " * indent, "")] if indent else []
    for n in range(start, end):
        if spans and spans[-1][1] == styles[n]:
            spans[-1] = (spans[-1][0] + shown[n], styles[n])
        else:
            spans.append((shown[n], styles[n]))
    return spans


def draw_terminal(theme: Theme) -> str:
    """Draw `gemmproof check` of a faulty kernel, as a terminal of 100 columns shows it."""
    colours = {"31": theme.red, "32": theme.green, "33": theme.orange}
    prompt = [[("$ ", "2"), (f"gemmproof check {TARGET}", "1")]]
    lines = [row for line in prompt + split_styles(run_in_terminal(TARGET)) for row in
             (wrap(line, COLUMNS) if line else [[]])]  # fmt: skip
    width, top = COLUMNS * CELL + 40, 38
    height = top + 18 + LINE * len(lines) + 10
    parts = [
        rectangle(0.5, 0.5, width - 1, height - 1, theme.panel, theme.border, radius=8),
        polyline([(1, top), (width - 1, top)], theme.border),
        text(width / 2, 24, "docs/examples", theme.faint, 13, "middle"),
    ]
    parts += [rectangle(16 + 20 * n, 13, 12, 12, theme.border, radius=6) for n in range(3)]
    for row, line in enumerate(lines):
        column = 0
        for shown, codes in line:
            style = codes.split(";")
            colour = next((colours[code] for code in style if code in colours), theme.ink)
            fill = theme.faint if "2" in style else colour
            left, bare = 20 + CELL * (column + len(shown) - len(shown.lstrip())), shown.strip()
            column += len(shown)
            if bare:
                fit = CELL * len(bare)
                bare = bare.replace("  ", "\N{NO-BREAK SPACE}" * 2)  # SVG shows two as one
                y = top + 26 + LINE * row
                fitted = text(left, y, bare, fill, 13.6, bold="1" in style, width=fit)
                parts.append(fitted)
    parts = [f'<g font-family="{MONO}">', *parts, "</g>"]
    return picture(width, height, theme, f"gemmproof check {TARGET}", parts)


# -- the data flow ---------------------------------------------------------------------------------
WIDTH, MARGIN, GAP = 700, 14, 14
SIZE, LEADING = 15, 20
STEP = 20  # between two boxes


def draw_flow(theme: Theme) -> str:
    """Draw the way of a kernel to a report: by cases, over symbols, and as bits of a GPU."""
    lane = (WIDTH - 2 * MARGIN - 2 * GAP) / 3
    lefts = [MARGIN + n * (lane + GAP) for n in range(3)]
    middles = [left + lane / 2 for left in lefts]
    centre = WIDTH / 2
    parts: list[str] = []

    def box(left: float, top: float, width: float, rows: list[str], colour: str = "",
            low: float = 0) -> float:  # fmt: skip
        """Draw rows of text in a box, bold after a `*`; return the y of its lower edge."""
        height = max(LEADING * len(rows) + 16, low - top)
        parts.append(
            rectangle(left, top, width, height, theme.panel, colour or theme.border, 7, 1.6)
        )
        first = top + (height - LEADING * len(rows)) / 2 + 14.5
        for n, row in enumerate(rows):
            bold = row.startswith("*")
            fill = theme.ink if bold else theme.faint
            position = (left + width / 2, first + LEADING * n)
            parts.append(text(*position, row.removeprefix("*"), fill, SIZE, "middle", bold=bold))
        return top + height

    def wide_box(top: float, rows: list[str]) -> float:
        return box((WIDTH - 430) / 2, top, 430, rows)

    def bend(start: tuple[float, float], y: float, end: tuple[float, float]) -> None:
        points = [start, end] if start[0] == end[0] else [start, (start[0], y), (end[0], y), end]
        parts.append(arrow(points, theme.faint))

    low = wide_box(MARGIN, ["*your kernel and its wrapper", "@triton.jit, called as f(a, b) -> c"])
    parts.append(arrow([(centre, low), (centre, low + 26)], theme.faint))
    low = wide_box(low + 26, ["*TTIR", "from Triton's own frontend; no GPU is needed"])
    top = low + 40
    for middle in middles:
        bend((centre, low), low + 16, (middle, top))
    lanes = (
        (theme.blue, (
            ["*cases", "corners of tiles first,", "then drawn from a seed"],
            ["*tile simulator", "runs every program", "in numpy"],
            ["*accesses and values", "address and mask of each", "lane, elements of c"],
            [f"*{len(PROPERTIES)} properties", "judged where they apply"],
            ["*smallest failing case", "operand, axis, line"],
        )),
        (theme.green, (
            ["*symbols", "sizes, strides and pids", "stay unknown"],
            ["*formulas", "of each index and mask,", "from the same TTIR"],
            ["*z3", "searches for sizes that", "break a property"],
            ["*proved for every size", "if there are none", "*or a counterexample",
             "run before it is reported", "*or not decided"],
        )),
        (theme.purple, (
            ["*models of tl.dot", "the tensor cores of", "--target sm_90"],
            ["*predicted bits", "the tile simulator", "with these models"],
            ["*launch on a GPU", "only with", "--device cuda"],
            ["*comparison", "bit by bit"],
            ["*smallest failing case", "first bits that differ"],
        )),
    )  # fmt: skip
    ends = [top]
    for left, middle, (colour, steps) in zip(lefts, middles, lanes, strict=True):
        y = top
        for n, rows in enumerate(steps):
            if n:
                parts.append(arrow([(middle, y), (middle, y + STEP)], colour))
            last = n == len(steps) - 1
            y = box(left, y + STEP * bool(n), lane, rows, colour, max(ends) if last else 0)
        ends.append(y)
    end = max(ends)
    for middle in middles:
        bend((middle, end), end + 16, (centre, end + 40))
    low = wide_box(end + 40, ["*report", "text, JSON, JUnit XML, SARIF; an exit code"])
    return picture(WIDTH, low + MARGIN, theme, "From a kernel to a report", parts)
