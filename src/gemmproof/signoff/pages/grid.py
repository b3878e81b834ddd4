"""The residues of the cases of a kernel as a picture: M down, N across, a panel for each of K."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gemmproof.report.facts import RESIDUES, UNKNOWN, Coverage, split_residues

# of a panel, in the units of its picture
CELL, LEFT, TOP, GAP = 34, 62, 40, 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One square: where it is, how many cases lie there, and how dark it is, from 0 to 1."""

    x: int
    y: int
    count: int
    shade: float


@dataclass(frozen=True, slots=True)
class Panel:
    """The cases with one residue of K."""

    k: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def width(self) -> int:
        """Of the picture."""
        return LEFT + CELL * len(self.columns)

    @property
    def height(self) -> int:
        """Of the picture."""
        return TOP + CELL * len(self.rows)


def make_panels(coverage: Coverage | None) -> tuple[Panel, ...]:
    """The panels, none where no axis has a tile that is known."""
    counts = {split_residues(w): n for w, n in (coverage.residues if coverage else {}).items()}
    if all(set(where) == {UNKNOWN} for where in counts):
        return ()
    # what is not known has a place only where there is some
    axes = [[r for r in (*RESIDUES, UNKNOWN) if _has(counts, axis, r)] for axis in range(3)]
    most = max(counts.values())
    panels = []
    for k in axes[2]:
        cells = tuple(
            Cell(
                LEFT + x * CELL,
                TOP + y * CELL,
                found := counts.get((m, n, k), 0),
                math.log1p(found) / math.log1p(most),
            )
            for y, m in enumerate(axes[0])
            for x, n in enumerate(axes[1])
        )
        panels.append(Panel(k, tuple(axes[0]), tuple(axes[1]), cells))
    return tuple(panels)


def _has(counts: dict[tuple[str, ...], int], axis: int, residue: str) -> bool:
    """Whether an axis shows a residue: all that are known, whether a case has them or not."""
    seen = {where[axis] for where in counts}
    return residue in seen if residue == UNKNOWN else seen != {UNKNOWN}
