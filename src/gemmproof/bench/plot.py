"""The plot of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmproof.bench.record import CONTROL, WRONG, BenchReport, TimedRow
from gemmproof.report.svg import write_svg

# The colours of Okabe and Ito, which everybody can distinguish; markers distinguish them in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vP"
ROW = 0.34  # inches


def draw(report: BenchReport, path: Path | str) -> None:
    """Write an SVG: one line per shape, ratios on the left, shares of the ceiling on the right."""
    rows = [row for row in report.rows if row.ratio is not None and row.verdict != CONTROL]
    keys = list(dict.fromkeys((row.format, row.problem) for row in report.rows))
    kernels = list(dict.fromkeys(row.kernel for row in rows))
    height = 1.9 + ROW * len(keys) * max(1, len(kernels)) ** 0.5
    with write_svg(Path(path), 10, height) as figure:
        title = f"{', '.join(kernels) or 'nothing timed'} on {report.facts['device']}"
        figure.suptitle(title, fontsize=11, fontweight="bold")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _prepare(left, keys)
        _prepare(right, keys)
        _draw_floors(left, rows, keys)
        for number, kernel in enumerate(kernels):
            style = {"color": COLOURS[number % 6], "marker": MARKERS[number % 6]}
            shift = 0.6 * ((number + 0.5) / len(kernels) - 0.5)
            own_rows = [row for row in rows if row.kernel == kernel]
            _draw_kernel(left, right, own_rows, keys, shift, {**style, "label": kernel})
        _mark_wrong(left, report, keys)
        peers = ", ".join(dict.fromkeys(row.peer for row in rows))
        left.axvline(1, color="0.3", linewidth=1)
        left.set_xlabel(f"speed relative to {peers}\n(ratio, 95 % interval)")
        right.set_xlabel("share of the ceiling\nmeasured in this run")
        right.set_xlim(0, 1.02 * max([1.0, *(row.ceiling or 0.0 for row in report.rows)]))
        right.xaxis.set_major_formatter(lambda share, position: f"{100 * share:.0f} %")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4,
                      frameon=False)  # fmt: skip


def _prepare(axes: Any, keys: list[tuple[str, str]]) -> None:
    axes.set_yticks(range(len(keys)), [f"{shape}  {name}" for name, shape in keys])
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.grid(True, axis="x", color="0.9")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_floors(axes: Any, rows: list[TimedRow], keys: list[tuple[str, str]]) -> None:
    label: str | None = "noise: the peer against itself"
    for y, key in enumerate(keys):
        for row in rows:
            if (row.format, row.problem) == key and row.floor is not None:
                low, high = row.floor
                axes.barh(y, high - low, 0.8, left=low, color="0.85", zorder=0, label=label)
                label = None
                break


def _draw_kernel(
    left: Any,
    right: Any,
    rows: list[TimedRow],
    keys: list[tuple[str, str]],
    shift: float,
    style: Mapping[str, object],
) -> None:
    ys = [keys.index((row.format, row.problem)) + shift for row in rows]
    ratios = [row.ratio for row in rows if row.ratio is not None]
    medians = [ratio.median for ratio in ratios]
    below = [ratio.median - ratio.low for ratio in ratios]
    above = [ratio.high - ratio.median for ratio in ratios]
    left.errorbar(medians, ys, xerr=(below, above), linestyle="", capsize=3, **style)
    known = [(row.ceiling, y) for row, y in zip(rows, ys, strict=True) if row.ceiling is not None]
    right.plot([share for share, _ in known], [y for _, y in known], linestyle="", **style)


def _mark_wrong(axes: Any, report: BenchReport, keys: list[tuple[str, str]]) -> None:
    wrong = [row for row in report.rows if row.verdict == WRONG]
    for row in wrong:
        y = keys.index((row.format, row.problem))
        axes.text(1, y, f" {row.kernel}: wrong, not timed", color="#D55E00", va="center")
