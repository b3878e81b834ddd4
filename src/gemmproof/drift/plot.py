"""The picture of a drift report: errors and bias against K, with the bound."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from gemmproof.properties.judges.accumulator_drift import DATA, Drift
from gemmproof.reference.formats import FORMATS
from gemmproof.report.record import Report
from gemmproof.report.svg import write_svg
from gemmproof.report.text import kernel_name

# The colours of Okabe and Ito, which everybody can distinguish; markers distinguish them in print.
STYLES = {
    "positive": {"color": "#D55E00", "marker": "o"},
    "normal": {"color": "#0072B2", "marker": "s"},
    "cancelling": {"color": "#009E73", "marker": "^"},
    "wide": {"color": "#CC79A7", "marker": "D"},
}


def scale_axes(axes: Any, sizes: list[int]) -> None:
    """Set K from left to right, both axes logarithmic, and a light grid."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(K) for K in sizes])
    axes.set_xlabel("K (terms in a sum)")
    axes.grid(True, which="major", color="0.9")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(report: Report, path: Path | str) -> None:
    """Write an SVG: worst errors with their bound on the left, signed bias on the right."""
    drift = report.drift
    assert drift is not None
    with write_svg(Path(path), 10.5, 5.6) as figure:
        figure.suptitle("\n".join(_title(report, drift)), fontsize=11, fontweight="bold")
        if not drift.measures:
            text = "\n".join(fill(finding.message, 80) for finding in report.findings)
            figure.text(0.5, 0.5, text, ha="center")
            return
        sizes = sorted({m.K for m in drift.measures})
        for axes, plot in zip(figure.subplots(1, 2), (_plot_errors, _plot_bias), strict=True):
            scale_axes(axes, sizes)
            plot(axes, drift, sizes)
            # above the data, where no line is hidden
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=2, frameon=False)


def _title(report: Report, drift: Drift) -> list[str]:
    """Return the verdict, then the accumulator and the device."""
    verdict = {
        "pass": f"pass: accumulates as declared, in {drift.declared}",
        "fail": f"fail: does not accumulate as declared, in {drift.declared}",
        "incomplete": f"incomplete: accumulates as declared, in {drift.declared}, where simulated",
    }[report.verdict]
    accumulator = drift.accumulator
    result = (
        f"found {accumulator.name}, result in {accumulator.out_format}"
        if accumulator
        else "found no product"
    )
    name = kernel_name(report)
    return [f"{name}: {verdict}", fill(f"{drift.in_format} on {drift.gpu}: {result}", 100)]


def _plot_errors(axes: Any, drift: Drift, sizes: list[int]) -> None:
    for kind, label in DATA.items():
        measures = [m for m in drift.measures if m.data == kind and m.worst > 0]
        axes.plot([m.K for m in measures], [m.worst for m in measures], label=label, **STYLES[kind])
    allowed = [max(m.bound for m in drift.measures if m.K == K) for K in sizes]
    axes.plot(sizes, allowed, "k--", label=f"bound of {drift.declared} sums")
    out = drift.accumulator and FORMATS[drift.accumulator.out_format]
    if out and out.p < FORMATS["fp32"].p:
        axes.axhline(out.u, color="0.5", linestyle=":", label=f"rounding of c to {out.name}")
    over = [m for m in drift.measures if m.ratio > 1 and m.worst > 0]
    if over:
        cross = {"markersize": 11, "markeredgewidth": 1.5, "label": "beyond the bound"}
        axes.plot([m.K for m in over], [m.worst for m in over], "kx", **cross)
    axes.set_title("Worst error of an element")
    axes.set_ylabel("|error| / |A||B|")
    low, high = axes.get_ylim()
    axes.fill_between(sizes, allowed, high, color="0.94", zorder=0)
    axes.set_ylim(low, high)


def _plot_bias(axes: Any, drift: Drift, sizes: list[int]) -> None:
    for kind in DATA:
        measures = [m for m in drift.measures if m.data == kind and m.bias]
        K, heights = [m.K for m in measures], [abs(m.bias) for m in measures]
        axes.plot(K, heights, linewidth=1, **STYLES[kind])
        high = [m.bias > 0 for m in measures]
        axes.plot(K, heights, linestyle="", markerfacecolor="white", markevery=high, **STYLES[kind])
    axes.plot([], [], "o", color="0.3", label="results too small")
    axes.plot([], [], "o", color="0.3", markerfacecolor="white", label="results too large")
    first = next((m for m in drift.measures if m.data == "positive" and m.bias), None)
    if first and first.K < sizes[-1]:
        guide = [abs(first.bias), abs(first.bias) * sizes[-1] / first.K]
        axes.plot([first.K, sizes[-1]], guide, color="0.5", linestyle=":", label="growth as K")
    grown = "" if drift.slope is None else f"; same sign grows as K^{drift.slope:.1f}"
    axes.set_title(f"Bias in the direction of c{grown}")
    axes.set_ylabel("|bias| / |A||B|")
