"""Elements of SVG pictures as text, and the colours of a light and a dark page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a picture; those of data keep their names in each theme."""

    name: str
    page: str
    panel: str
    grid: str
    border: str
    faint: str
    ink: str
    blue: str
    sky: str
    green: str
    yellow: str
    orange: str
    red: str
    purple: str


LIGHT = Theme(
    name="light",
    page="#ffffff",
    panel="#f3f5f8",
    grid="#e3e7ec",
    border="#b4bcc6",
    faint="#57606a",
    ink="#1f2328",
    blue="#0072b2",
    sky="#56b4e9",
    green="#007a58",
    yellow="#f3d68f",
    orange="#995c00",
    red="#c8410b",
    purple="#a3487d",
)
DARK = Theme(
    name="dark",
    page="#0d1117",
    panel="#171d26",
    grid="#262d37",
    border="#57606a",
    faint="#9aa4af",
    ink="#e6edf3",
    blue="#58a6e6",
    sky="#2f81b7",
    green="#2fbf93",
    yellow="#7d6527",
    orange="#e6a23c",
    red="#ff7b4a",
    purple="#d98bb9",
)


def picture(width: float, height: float, theme: Theme, title: str, parts: Iterable[str]) -> str:
    """Return the text of an SVG file with the page's colour behind its parts."""
    size = f'width="{number(width)}" height="{number(height)}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}"'
        f' {size} role="img" font-family="{SANS}">'
    )
    back = rectangle(0, 0, width, height, theme.page, radius=8)
    return "\n".join([head, f"<title>{escape(title)}</title>", back, *parts, "</svg>"]) + "\n"


def number(x: float) -> str:
    """Format a coordinate to a tenth of a pixel, so that rounding elsewhere does not show."""
    return f"{round(x, 1) + 0.0:g}"


def text(
    x: float,
    y: float,
    shown: str,
    fill: str,
    size: float = 13,
    anchor: str = "start",
    bold: bool = False,
    width: float | None = None,
    turned: bool = False,
) -> str:
    """Return a line of text; with a `width` it is fitted to it in any font."""
    extra = f' text-anchor="{anchor}"' if anchor != "start" else ""
    extra += ' font-weight="600"' if bold else ""
    if width is not None:
        extra += f' textLength="{number(width)}" lengthAdjust="spacingAndGlyphs"'
    if turned:
        extra += f' transform="rotate(-90 {number(x)} {number(y)})"'
    position = f'x="{number(x)}" y="{number(y)}"'
    return f'<text {position} font-size="{size:g}" fill="{fill}"{extra}>{escape(shown)}</text>'


def rectangle(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str = "none",
    stroke: str = "",
    radius: float = 0,
    thick: float = 1,
    dashed: bool = False,
) -> str:
    """Return a rectangle."""
    extra = f' rx="{number(radius)}"' if radius else ""
    extra += _stroke(stroke, thick, dashed) if stroke else ""
    position = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect {position} fill="{fill}"{extra}/>'


def polyline(
    points: Sequence[tuple[float, float]], stroke: str, thick: float = 1, dashed: bool = False
) -> str:
    """Return a line through points."""
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return f'<polyline points="{path}" fill="none"{_stroke(stroke, thick, dashed)}/>'


def polygon(points: Sequence[tuple[float, float]], fill: str, opacity: float = 1) -> str:
    """Return a filled polygon."""
    path = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    extra = f' opacity="{opacity:g}"' if opacity != 1 else ""
    return f'<polygon points="{path}" fill="{fill}"{extra}/>'


def _stroke(colour: str, thick: float, dashed: bool) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f' stroke="{colour}" stroke-width="{thick:g}"{dashes}'


def arrow(points: Sequence[tuple[float, float]], colour: str, thick: float = 1.6) -> str:
    """Return a line through points with a head at the last one."""
    (x0, y0), (x1, y1) = points[-2:]
    angle = math.atan2(y1 - y0, x1 - x0)
    back = [
        (x1 - 8 * math.cos(angle + turn), y1 - 8 * math.sin(angle + turn)) for turn in (-0.45, 0.45)
    ]
    middle = ((back[0][0] + back[1][0]) / 2, (back[0][1] + back[1][1]) / 2)
    head = polygon([(x1, y1), *back], colour)
    return polyline([*points[:-1], middle], colour, thick) + head


def marker(kind: str, x: float, y: float, colour: str, page: str, size: float = 4.5) -> str:
    """Return a marker with an edge in the page's colour."""
    edge = f'stroke="{page}" stroke-width="1"'
    if kind == "circle":
        position = f'cx="{number(x)}" cy="{number(y)}" r="{number(size)}"'
        return f'<circle {position} fill="{colour}" {edge}/>'
    corners = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
        "inverted": [(0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
    }[kind]
    path = " ".join(f"{number(x + size * i)},{number(y + size * j)}" for i, j in corners)
    return f'<polygon points="{path}" fill="{colour}" {edge}/>'


@dataclass(frozen=True, slots=True)
class LogAxis:
    """A logarithmic axis: the values `low` and `high` are at the coordinates `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def locate(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)
