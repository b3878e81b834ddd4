"""The pictures of README.md and docs/: how each is drawn, and whether the drawn file is current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from xml.etree import ElementTree

from scripts.docs import diagrams, grids, plots
from scripts.docs.drawing import DARK, LIGHT, Theme
from scripts.docs.markdown import ROOT, remove_times

from gemmproof.bench import plot
from gemmproof.bench.record import BenchReport
from gemmproof.properties.codec import decode

FOLDER = ROOT / "docs" / "pictures"

# -- pictures of gemmproof's own -------------------------------------------------------------------
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
TILE = re.compile(r'(<g id="tile_\d+")(.*?</g>)', re.DOTALL)
HUES = {
    "#0072b2": DARK.blue,
    "#009e73": DARK.green,
    "#cc79a7": DARK.purple,
    "#d55e00": DARK.red,
    "#e69f00": DARK.orange,
    "#f7e3b5": DARK.yellow,
}


def darken(svg: str) -> str:
    """Return a picture drawn by matplotlib in the colours of a dark page.

    The number of a tile has the tile's colour behind it, and keeps its own.
    """

    def replace(match: re.Match[str]) -> str:
        colour = match[0]
        red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
        if not red == green == blue:
            return HUES.get(colour, colour)
        ends = [[int(end[n : n + 2], 16) for n in (1, 3, 5)] for end in (DARK.ink, DARK.page)]
        mixed = [round(ink + (page - ink) * red / 255) for ink, page in zip(*ends, strict=True)]
        return "#" + "".join(f"{value:02x}" for value in mixed)

    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(f'{match[1]} fill="#000000"{match[2]}')
        return f"<!-- tile {len(kept) - 1} -->"

    # black is matplotlib's default of a text, and not written
    dark = COLOUR.sub(replace, TILE.sub(keep, svg)).replace("<svg ", f'<svg fill="{DARK.ink}" ', 1)
    return re.sub(r"<!-- tile (\d+) -->", lambda match: kept[int(match[1])], dark)


def draw_bench(run: str, theme: Theme) -> str:
    """Draw docs/evidence/speed-RUN.json as `gemmproof bench --svg` does."""
    return adapt(_plot_bench(run), theme)


@cache
def _plot_bench(run: str) -> str:
    loaded = json.loads((ROOT / "docs" / "evidence" / f"speed-{run}.json").read_text("utf-8"))
    report = decode(BenchReport, loaded, "bench")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.svg")
        plot.draw(report, path)
        return path.read_text("utf-8")


def draw_by_command(command: str, theme: Theme) -> str:
    """Draw what a command of gemmproof writes with --svg."""
    return adapt(_run_command(command), theme)


@cache
def _run_command(command: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        argv = [sys.executable, "-m", "gemmproof", *command.split(" "), "--svg", str(path)]
        ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        if not path.is_file():
            raise ValueError(f"gemmproof {command}: got no picture: {ended.stderr[-500:]}")
        return path.read_text("utf-8")


def adapt(svg: str, theme: Theme) -> str:
    """Return a picture on a white page as it is, or darkened."""
    return svg if theme is LIGHT else darken(svg)


# -- all pictures ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of docs/pictures; `slow` if it takes more than a few seconds to draw."""

    draw: Callable[[Theme], str]
    slow: bool = False


NO_K_MASK = """explain docs/examples/no_k_mask.py:matmul --case {"M":40,"N":70,"K":40}"""
GROUPED = (
    'explain kernels/matmul_grouped.py:matmul_grouped --case {"M":160,"N":512,"K":128,"config":5}'
)
UNPROMOTED = "drift tests/support/drift_kernels.py:fp8_unpromoted --dtype fp8e4m3"
PICTURES = {
    "terminal": Picture(diagrams.draw_terminal, slow=True),
    "data-flow": Picture(diagrams.draw_flow),
    "access-grid": Picture(grids.draw_access),
    "visit-order": Picture(grids.draw_orders),
    "error-growth": Picture(plots.draw_errors, slow=True),
    "bias-by-accumulator": Picture(plots.draw_biases, slow=True),
    "roofline": Picture(plots.draw_roofline),
    **{
        f"speed-{run}": Picture(partial(draw_bench, run))
        for run in ("gemm", "kernels", "layers", "epilogue")
    },
    "explain-no-k-mask": Picture(partial(draw_by_command, NO_K_MASK), slow=True),
    "explain-grouped": Picture(partial(draw_by_command, GROUPED), slow=True),
    "fp8-unpromoted": Picture(partial(draw_by_command, UNPROMOTED), slow=True),
}
THEMES = (LIGHT, DARK)


def find_path(name: str, theme: Theme) -> Path:
    """Return the file of a picture."""
    return FOLDER / f"{name}-{theme.name}.svg"


# -- comparison ------------------------------------------------------------------------------------
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NEAR = 0.15  # pixels: coordinates are rounded, and machines differ in the last bit of a float
NAMES = {"id", "clip-path", "{http://www.w3.org/1999/xlink}href"}  # matplotlib's are hashes


def find_difference(kept: str, drawn: str) -> str:
    """Return the first difference between two pictures, or "" if they show the same.

    Times do not count. Versions of matplotlib place things differently: of two versions, only
    texts are compared.
    """
    before, after = (list(ElementTree.fromstring(svg).iter()) for svg in (kept, drawn))
    if _creator(kept) != _creator(drawn):
        before, after = ([x for x in every if x.tag.endswith("}text")] for every in (before, after))
        pairs = zip_longest(*([x.text or "" for x in every] for every in (before, after)))
        return next((f"got {a!r}, expected {b!r}" for a, b in pairs if a != b), "")
    for old, new in zip_longest(before, after):
        if old is None or new is None:
            return f"got {len(before)} elements, expected {len(after)}"
        texts = [remove_times(element.text or "").strip() for element in (old, new)]
        if old.tag != new.tag or texts[0] != texts[1]:
            return f"got {texts[0] or old.tag!r}, expected {texts[1] or new.tag!r}"
        timed = texts[0] != (old.text or "").strip()
        for name, value in old.attrib.items():
            other = new.attrib.get(name, "")
            if not (timed or name in NAMES or is_near(value, other)):
                return f"{texts[0] or old.tag}: {name}: got {value!r}, expected {other!r}"
        if old.attrib.keys() != new.attrib.keys():
            return f"{texts[0] or old.tag}: got other attributes, expected {sorted(new.attrib)}"
    return ""


def is_near(kept: str, drawn: str) -> bool:
    """Return whether two attributes are the same but for rounded coordinates."""
    if kept.startswith("#") or NUMBER.sub("", kept) != NUMBER.sub("", drawn):
        return kept == drawn
    pairs = zip(NUMBER.findall(kept), NUMBER.findall(drawn), strict=True)
    return all(abs(float(a) - float(b)) <= NEAR for a, b in pairs)


def _creator(svg: str) -> str:
    match = re.search(r"<dc:title>(Matplotlib [^,]*)", svg)
    return match[1] if match else ""


def iter_differences(name: str) -> Iterator[tuple[Path, str, str]]:
    """Draw a picture in each theme; yield its path, the drawn text and the difference."""
    for theme in THEMES:
        path = find_path(name, theme)
        drawn = PICTURES[name].draw(theme)
        kept = path.read_text("utf-8") if path.is_file() else "<svg/>"
        yield path, drawn, find_difference(kept, drawn)


def make_pictures(check: bool = False, only: str = "") -> int:
    """Draw the pictures of docs/pictures, each in a light and a dark version.

    --only "NAME NAME" draws these. With --check nothing is written, and the exit status is 1 if a
    picture differs from what is drawn now by more than times.
    """
    names = only.split() or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        print(f"--only: got {' '.join(unknown)}, expected names of: {' '.join(PICTURES)}")
        return 2
    changed = False
    for name in names:
        for path, drawn, difference in iter_differences(name):
            shown = path.relative_to(ROOT)
            if difference and not check:
                path.write_text(drawn, encoding="utf-8")
            changed = changed or bool(difference)
            print(f"{shown}: {(difference if check else 'drawn') if difference else 'up to date'}")
    return int(check and changed)
