"""Pictures of operands as grids: the lanes of one access, and the order of the tiles of c."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from scripts.docs.drawing import MONO, Theme, picture, polyline, rectangle, text
from scripts.docs.markdown import ROOT

from gemmproof.properties.address_map import AccessMap
from gemmproof.properties.address_map.explain_access import explain
from gemmproof.properties.address_map.picture import (
    MASKED,
    SEEN,
    STRAY,
    UNTOUCHED,
    OperandPanel,
    make_picture,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest

# -- one access ------------------------------------------------------------------------------------
EXAMPLE = ROOT / "docs" / "examples" / "no_k_mask.py"
ACCESS_CASE = Case(M=20, N=40, K=40)
LANE = 8  # pixels
MONO_CELL = 7.4


@functools.cache
def find_access() -> tuple[OperandPanel, AccessMap]:
    """Return the load of a: its lanes in the trip that leaves the operand, and its address map."""
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = KernelUnderTest("matmul", module.matmul)
    panels = make_picture(kernel, None, 0, ACCESS_CASE)["panels"]
    accesses = explain(kernel).kernels[0].accesses
    return (
        next(panel for panel in panels if panel["operand"] == "a"),
        next(access for access in accesses if access.operand == "a"),
    )


def draw_access(theme: Theme) -> str:
    """Draw every lane of one load on the grid of its operand."""
    panel, access = find_access()
    cells = panel["cells"]
    rows, columns = panel["shape"]
    counts = Counter(state for row in cells for state in row)
    colours = {UNTOUCHED: theme.grid, SEEN: theme.sky, MASKED: theme.yellow, STRAY: theme.red}
    x0, y0 = 86, 58
    x1, y1 = x0 + LANE * len(cells[0]), y0 + LANE * len(cells)
    parts = [
        text((x0 + x1) / 2, y0 - 32, "column of a (k)", theme.faint, 13.5, "middle"),
        text(20, (y0 + y1) / 2, "row of a (m)", theme.faint, 13.5, "middle", turned=True),
    ]
    for i, row in enumerate(cells):
        start = 0
        for j in range(1, len(row) + 1):
            if j == len(row) or row[j] != row[start]:
                if row[start] in colours:
                    position = (x0 + LANE * start, y0 + LANE * i, LANE * (j - start), LANE)
                    parts.append(rectangle(*position, colours[row[start]]))
                start = j
    for n in range(len(cells) + 1):
        parts.append(polyline([(x0, y0 + LANE * n), (x1, y0 + LANE * n)], theme.page, 0.6))
    for n in range(len(cells[0]) + 1):
        parts.append(polyline([(x0 + LANE * n, y0), (x0 + LANE * n, y1)], theme.page, 0.6))
    for n in range(0, len(cells) + 1, access.shape[0]):
        y = y0 + LANE * n
        parts.append(polyline([(x0, y), (x1, y)], theme.faint, 1.2, True))
        parts.append(text(x0 - 8, y + 4.5, str(n), theme.faint, 13, "end"))
    for n in range(0, len(cells[0]) + 1, access.shape[1]):
        x = x0 + LANE * n
        parts.append(polyline([(x, y0), (x, y1)], theme.faint, 1.2, True))
        parts.append(text(x, y0 - 9, str(n), theme.faint, 13, "middle"))
    low, right = y0 + LANE * rows, x0 + LANE * columns
    parts += [
        rectangle(x0, y0, right - x0, low - y0, "none", theme.ink, thick=2.4),
        text(x0 - 8, low + 4.5, f"M = {rows}", theme.ink, 13, "end", bold=True),
        text(right, y0 - 9, f"K = {columns}", theme.ink, 13, "middle", bold=True),
        text(x0 + 14, y0 + 26, f"a, {rows} x {columns}", theme.ink, 15, bold=True),
        *_describe_access(theme, panel, access, counts, x1 + 24, y0),
    ]
    title = f"The load of a at {panel['where']}, lane by lane"
    return picture(x1 + 240, y1 + 26, theme, title, parts)


def _describe_access(
    theme: Theme, panel: OperandPanel, access: AccessMap, counts: Counter[int], x: float, y: float
) -> list[str]:
    """Return the text beside the grid: the program, the counts of lanes, mask and missing term."""
    assert access.fix is not None
    program, trip = (", ".join(map(str, panel[key])) for key in ("program", "trip"))
    parts = [text(x, y + 12, f"program ({program})", theme.ink, 15, bold=True)]
    legend = (
        (theme.sky, f"{counts[SEEN]} lanes in bounds"),
        (theme.yellow, f"{counts[MASKED]} lanes masked off"),
        (theme.red, f"{counts[STRAY]} lanes out of bounds"),
        (theme.grid, "a, in other iterations"),
    )
    for n, (colour, label) in enumerate(legend):
        low = y + 44 + 26 * n
        parts.append(rectangle(x, low - 12, 15, 15, colour, radius=2))
        parts.append(text(x + 24, low, label, theme.ink, 14))
    mask = re.search(r"mask=(.+?), other", _source_line(panel))
    assert mask is not None
    terms = (
        ("mask:", mask[1], theme.ink),
        ("missing:", f"& {access.fix.condition}", theme.red),
    )
    where = f"{panel['where']}, iteration {trip}"
    parts.append(text(x, y + 166, where, theme.faint, 13.5))
    for n, (label, term, colour) in enumerate(terms):
        low = y + 192 + 46 * n
        parts.append(text(x, low, label, colour, 14, bold=True))
        fitted = text(x + 12, low + 21, term, colour, 12.5, width=MONO_CELL * len(term))
        parts.append(f'<g font-family="{MONO}">{fitted}</g>')
    return parts


def _source_line(panel: OperandPanel) -> str:
    return EXAMPLE.read_text().splitlines()[int(panel["where"].rpartition(":")[2]) - 1]


# -- the order of programs -------------------------------------------------------------------------
SIDE, GROUP, WAVE, TILE = 9, 3, 9, 16


@dataclass(frozen=True, slots=True)
class Order:
    """The row and the column of the tile of c that each program stores, by its number."""

    title: str
    about: str
    tiles: tuple[tuple[int, int], ...]

    @property
    def wave(self) -> tuple[set[int], set[int]]:
        """The rows of tiles of a and the columns of tiles of b that the first programs read."""
        first = self.tiles[:WAVE]
        return {i for i, _ in first}, {j for _, j in first}


def order_tiles(title: str, about: str, kernel: Any, flat: bool, group: int) -> Order:
    """Return the order of a kernel of kernels/, found by following it with small tiles."""
    import torch
    import triton
    import triton.language as tl

    constants = {"BLOCK_M": TILE, "BLOCK_N": TILE, "BLOCK_K": TILE, "GROUP_M": group}

    def multiply(a: Any, b: Any) -> Any:
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        m, n = triton.cdiv(M, TILE), triton.cdiv(N, TILE)
        strides = (*a.stride(), *b.stride(), *c.stride())
        kernel.fn[(m * n,) if flat else (n, m)](
            a, b, c, M, N, K, *strides, **constants,
            ACC_DTYPE=tl.float32, INPUT_PRECISION="ieee", PROMOTE=False,
        )  # fmt: skip
        return c

    case = Case(M=SIDE * TILE, N=SIDE * TILE, K=TILE)
    order = make_picture(KernelUnderTest("order", multiply), None, 0, case)["order"]
    tiles = tuple((top // TILE, left // TILE) for _, top, left, _, _ in order)
    return Order(title, about, tiles)


@functools.cache
def find_orders() -> tuple[Order, ...]:
    """Return the orders of the picture."""
    from gemmproof.kernels.matmul_grouped import matmul_grouped_kernel
    from gemmproof.kernels.matmul_swizzled import matmul_swizzled_kernel

    ungrouped, grouped = "matmul_grouped, GROUP_M=1", f"matmul_grouped, GROUP_M={GROUP}"
    swizzled = f"matmul_swizzled, GROUP_M={GROUP}"
    return (
        order_tiles("row-major", ungrouped, matmul_grouped_kernel, True, 1),
        order_tiles("grouped", grouped, matmul_grouped_kernel, True, GROUP),
        order_tiles("tl.swizzle2d", swizzled, matmul_swizzled_kernel, False, GROUP),
    )


def draw_orders(theme: Theme) -> str:
    """Draw the tiles of c by the number of their program, and what the first wave reads."""
    cell, strip, gap = 26, 10, 5
    grid = SIDE * cell
    pitch = grid + strip + gap + 26
    width = 16 + 3 * pitch - 10
    height = 74 + strip + gap + grid + 92
    parts = []
    for n, order in enumerate(find_orders()):
        x0 = 16 + n * pitch + strip + gap
        y0 = 74 + strip + gap
        rows, columns = order.wave
        parts.append(text(x0, 28, order.title, theme.ink, 16, bold=True))
        parts.append(text(x0, 49, order.about, theme.faint, 13))
        for k in range(SIDE):
            fill = theme.orange if k in rows else theme.grid
            parts.append(rectangle(x0 - strip - gap, y0 + cell * k + 1, strip, cell - 2, fill))
            fill = theme.purple if k in columns else theme.grid
            parts.append(rectangle(x0 + cell * k + 1, y0 - strip - gap, cell - 2, strip, fill))
        for number, (i, j) in enumerate(order.tiles):
            first = number < WAVE
            position = (x0 + cell * j + 1, y0 + cell * i + 1, cell - 2, cell - 2)
            parts.append(rectangle(*position, theme.blue if first else theme.grid, radius=2))
            colour = theme.page if first else theme.faint
            middle = (x0 + cell * (j + 0.5), y0 + cell * (i + 0.5) + 4.5)
            parts.append(text(*middle, str(number), colour, 12, "middle", bold=first))
        total = len(rows) + len(columns)
        low = y0 + grid + 26
        parts.append(text(x0, low, f"{len(rows)} + {len(columns)} = {total} tiles read", theme.ink,
                          15, bold=True))  # fmt: skip
    for n, (colour, label) in enumerate((
        (theme.blue, f"tiles of c of the first {WAVE} programs"),
        (theme.orange, "tiles of a that they read, for one step of k"),
        (theme.purple, "tiles of b"),
    )):  # fmt: skip
        x = 31 + (0, 266, 586)[n]
        parts.append(rectangle(x, height - 30, 14, 14, colour, radius=2))
        parts.append(text(x + 22, height - 18, label, theme.ink, 13.5))
    return picture(width, height, theme, "The order of the tiles of c", parts)
