"""The picture of a drift report: errors and bias against K, beside the bound."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from gemmproof.properties.accumulator import Drift
from gemmproof.properties.measure import DATA
from gemmproof.reference.formats import FORMATS
from gemmproof.report.report import Report
from gemmproof.report.text import kernel_name

# Okabe and Ito's colours, told apart by everybody; shapes tell them apart in print.
COLOURS = {"positive": "#D55E00", "normal": "#0072B2", "cancelling": "#009E73", "wide": "#CC79A7"}
MARKERS = {"positive": "o", "normal": "s", "cancelling": "^", "wide": "D"}


def draw(report: Report, path: str) -> None:
    """Write an SVG: worst errors with their bound on the left, signed bias on the right."""
    import matplotlib

    matplotlib.use("svg")
    # text as text, and the same bytes for the same report
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "gemmproof", "font.size": 10}
    with matplotlib.rc_context(settings):
        figure = _figure(report)
        figure.savefig(Path(path), format="svg", metadata={"Date": None}, bbox_inches="tight")


def _figure(report: Report) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    assert report.drift is not None
    figure.suptitle("\n".join(title(report)), fontsize=11, fontweight="bold")
    if not report.drift.measures:
        said = "\n".join(fill(found.message, 80) for found in report.findings)
        figure.text(0.5, 0.5, said, ha="center")
        return figure
    left, right = figure.subplots(1, 2)
    _plot_errors(left, report.drift)
    _plot_bias(right, report.drift)
    for axes in (left, right):
        # above the data, where no line is hidden
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=2, frameon=False)
    return figure


def title(report: Report) -> list[str]:
    """The verdict, then what was found and where."""
    drift = report.drift
    assert drift is not None
    words = {
        "pass": f"pass: accumulates as declared, in {drift.declared}",
        "fail": f"fail: does not accumulate as declared, in {drift.declared}",
        "incomplete": f"incomplete: accumulates as declared, in {drift.declared}, where simulated",
    }[report.verdict]
    found = drift.accumulator
    said = f"found {found.name}, result in {found.out_format}" if found else "found no product"
    name = kernel_name(report)
    return [f"{name}: {words}", fill(f"{drift.in_format} on {drift.gpu}: {said}", 100)]


def _plot_errors(axes: Any, drift: Drift) -> None:
    sizes = sorted({m.K for m in drift.measures})
    for kind, label in DATA.items():
        mine = [m for m in drift.measures if m.data == kind and m.worst > 0]
        axes.plot(
            [m.K for m in mine], [m.worst for m in mine], color=COLOURS[kind],
            marker=MARKERS[kind], label=label,
        )  # fmt: skip
    allowed = [max(m.bound for m in drift.measures if m.K == K) for K in sizes]
    axes.plot(sizes, allowed, "k--", label=f"bound of {drift.declared} sums")
    out = drift.accumulator and FORMATS[drift.accumulator.out_format]
    if out and out.p < FORMATS["fp32"].p:
        axes.axhline(out.u, color="0.5", linestyle=":", label=f"rounding of c to {out.name}")
    over = [m for m in drift.measures if m.ratio > 1 and m.worst > 0]
    if over:
        axes.plot(
            [m.K for m in over], [m.worst for m in over], "kx", markersize=11,
            markeredgewidth=1.5, label="beyond the bound",
        )  # fmt: skip
    _scales(axes, sizes)
    axes.set_title("Worst error of an element")
    axes.set_ylabel("|error| / |A||B|")
    low, high = axes.get_ylim()
    axes.fill_between(sizes, allowed, high, color="0.94", zorder=0)
    axes.set_ylim(low, high)


def _plot_bias(axes: Any, drift: Drift) -> None:
    sizes = sorted({m.K for m in drift.measures})
    for kind in DATA:
        mine = [m for m in drift.measures if m.data == kind and m.bias]
        heights = [abs(m.bias) for m in mine]
        axes.plot([m.K for m in mine], heights, color=COLOURS[kind], linewidth=1)
        for low in (True, False):
            some = [m for m in mine if (m.bias < 0) == low]
            axes.plot(
                [m.K for m in some], [abs(m.bias) for m in some], MARKERS[kind],
                color=COLOURS[kind], markerfacecolor=COLOURS[kind] if low else "white",
            )  # fmt: skip
    axes.plot([], [], "o", color="0.3", label="results too small")
    axes.plot([], [], "o", color="0.3", markerfacecolor="white", label="results too large")
    first = next((m for m in drift.measures if m.data == "positive" and m.bias), None)
    if first and first.K < sizes[-1]:
        guide = [abs(first.bias), abs(first.bias) * sizes[-1] / first.K]
        axes.plot([first.K, sizes[-1]], guide, color="0.5", linestyle=":", label="growth as K")
    _scales(axes, sizes)
    grown = "" if drift.slope is None else f"; same sign grows as K^{drift.slope:.1f}"
    axes.set_title(f"Bias in the direction of c{grown}")
    axes.set_ylabel("|bias| / |A||B|")


def _scales(axes: Any, sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(K) for K in sizes])
    axes.set_xlabel("K (terms in a sum)")
    axes.grid(True, which="major", color="0.9")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
