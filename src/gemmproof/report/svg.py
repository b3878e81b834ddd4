"""Pictures as SVG, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def write_svg(path: Path, width: float, height: float) -> Iterator[Any]:
    """Yield a figure, sizes in inches, and write it: the same bytes for the same data."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "gemmproof"}  # text stays text
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
