"""The picture of a drift report: errors and bias against K, beside the bound."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from gemmproof.drift import DriftReport
from gemmproof.properties.drift import DATA

# Okabe and Ito's colours, told apart by everybody; shapes tell them apart in print.
COLOURS = {"positive": "#D55E00", "normal": "#0072B2", "cancelling": "#009E73", "wide": "#CC79A7"}
MARKERS = {"positive": "o", "normal": "s", "cancelling": "^", "wide": "D"}


def draw(report: DriftReport, path: str) -> None:
    """Write an SVG: worst errors with their bound on the left, signed bias on the right."""
    import matplotlib

    matplotlib.use("svg")
    # text as text, and the same bytes for the same report
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "gemmproof", "font.size": 10}
    with matplotlib.rc_context(settings):
        figure = _figure(report)
        figure.savefig(Path(path), format="svg", metadata={"Date": None}, bbox_inches="tight")


def _figure(report: DriftReport) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    name = report.accumulator.name if report.accumulator else "no product"
    verdict = "as declared" if report.verdict == "pass" else report.verdict
    title = f"{report.name}, {report.in_format} on {report.gpu}: {verdict} ({report.declared})"
    figure.suptitle(f"{title}\n{fill(name, 90)}", fontsize=11, fontweight="bold")
    _errors(left, report)
    _bias(right, report)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _errors(axes: Any, report: DriftReport) -> None:
    sizes = sorted({m.K for m in report.measures})
    for kind, label in DATA.items():
        mine = [m for m in report.measures if m.data == kind and m.worst > 0]
        axes.plot(
            [m.K for m in mine], [m.worst for m in mine], color=COLOURS[kind],
            marker=MARKERS[kind], label=f"worst error, {label} data",
        )  # fmt: skip
    allowed = [max(m.bound for m in report.measures if m.K == K) for K in sizes]
    axes.plot(
        sizes, allowed, color="black", linestyle="--", label=f"bound of {report.declared} sums"
    )
    over = [m for m in report.measures if m.ratio > 1 and m.worst > 0]
    axes.plot(
        [m.K for m in over], [m.worst for m in over], "x", color="black", markersize=11,
        markeredgewidth=1.5, label="an element beyond its own bound",
    )  # fmt: skip
    _scales(axes, sizes)
    axes.set_title("Worst error of an element")
    axes.set_ylabel("|error| / (|A||B|)")


def _bias(axes: Any, report: DriftReport) -> None:
    sizes = sorted({m.K for m in report.measures})
    for kind in DATA:
        mine = [m for m in report.measures if m.data == kind and m.bias]
        heights = [abs(m.bias) for m in mine]
        axes.plot([m.K for m in mine], heights, color=COLOURS[kind], linewidth=1)
        for sign, face in ((-1, COLOURS[kind]), (1, "white")):
            some = [m for m in mine if m.bias * sign > 0]
            axes.plot(
                [m.K for m in some], [abs(m.bias) for m in some], MARKERS[kind],
                color=COLOURS[kind], markerfacecolor=face,
            )  # fmt: skip
    _scales(axes, sizes)
    grown = "" if report.slope is None else f"; same sign grows as K^{report.slope:.1f}"
    axes.set_title(f"Bias{grown}")
    axes.set_ylabel("|mean signed error| / (|A||B|)   filled: too small, hollow: too large")


def _scales(axes: Any, sizes: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(K) for K in sizes])
    axes.set_xlabel("K (terms in a sum)")
    axes.grid(True, which="major", color="0.9")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
