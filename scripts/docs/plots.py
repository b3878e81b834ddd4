"""Plots of figures: the growth of errors with K, and the rooflines of a GPU."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scripts.docs.drawing import (
    LogAxis,
    Theme,
    marker,
    picture,
    polygon,
    polyline,
    rectangle,
    text,
)
from scripts.docs.markdown import ROOT

from gemmproof.bench.record import CONTROL, BenchReport, Ceiling
from gemmproof.properties.codec import decode
from gemmproof.properties.judges.accumulator_drift import Measure, measure
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.triton_dot import triton_dot

EVIDENCE = ROOT / "docs" / "evidence"

# -- axes ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """A value of an axis, and its label; further values have a line and no label."""

    value: float
    label: str = ""


def draw_axes(
    theme: Theme, across: LogAxis, up: LogAxis, x_ticks: Iterable[Tick], y_ticks: Iterable[Tick]
) -> list[str]:
    """Return the frame, the grid and the labels of two axes."""
    box = (across.start, up.end, across.end - across.start, up.start - up.end)
    parts = [rectangle(*box, theme.panel)]
    for tick in x_ticks:
        x = across.locate(tick.value)
        parts.append(polyline([(x, up.start), (x, up.end)], theme.grid))
        if tick.label:
            parts.append(text(x, up.start + 20, tick.label, theme.faint, 13, "middle"))
    for tick in y_ticks:
        y = up.locate(tick.value)
        parts.append(polyline([(across.start, y), (across.end, y)], theme.grid))
        if tick.label:
            parts.append(text(across.start - 8, y + 4.5, tick.label, theme.faint, 13, "end"))
    return parts


# -- errors ----------------------------------------------------------------------------------------
SIZES = tuple(1 << n for n in range(9, 15))
TILE: dict[str, Any] = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}
MODELS: dict[str, DotModel] = {
    "fp32 fma chain": dot_model(None, "bf16"),
    "Hopper bf16": dot_model("sm_90", "bf16"),
    "Ampere bf16": dot_model("sm_80", "bf16"),
    "Volta fp16": dot_model("sm_70", "fp16"),
    "Hopper fp8, promoted every 128": triton_dot("sm_90", "fp8e4m3", acc_passed=False, **TILE),
    "Hopper tf32, fp32 operands": dot_model("sm_90", "tf32"),
    "Hopper fp8": dot_model("sm_90", "fp8e4m3"),
    "Hopper fp16, fp16 sums": dot_model("sm_90", "fp16", "fp16"),
}


@functools.cache
def measure_positive(name: str) -> tuple[Measure, ...]:
    """Return the measures of a model on data of one sign, one for each size."""
    model = MODELS[name]
    measures = [m for K in SIZES for m in measure(model.dot, model.a_format, K, model)]
    return tuple(m for m in measures if m.data == "positive")


#: From the largest error to the smallest: the two lines above a panel, its colour.
GROWING = {
    "Hopper fp8": ("fp8 tensor core", "not promoted", "red"),
    "Hopper fp16, fp16 sums": ("fp16 tensor core", "fp16 accumulator", "orange"),
    "Hopper fp8, promoted every 128": ("fp8 tensor core", "promoted every 128", "purple"),
    "Hopper bf16": ("bf16 tensor core", "fp32 accumulator", "blue"),
    "fp32 fma chain": ("bf16, FMA chain", "fp32 accumulator", "green"),
}


def draw_errors(theme: Theme) -> str:
    """Draw the largest error of data of one sign, and its bound, against K for each accumulator."""
    width, height, panel, gap = 830, 470, 138, 12
    left = 78
    up = LogAxis(2e-7, 2, height - 62, 98)
    powers = "⁻⁶", "⁻⁵", "⁻⁴", "⁻³", "⁻²", "⁻¹"
    y_ticks = [Tick(10.0 ** (n - 6), f"10{power}") for n, power in enumerate(powers)]
    y_ticks.append(Tick(1, "1"))
    parts = [
        text(16, 30, "Largest error of an element of c, same-sign data", theme.ink, 16, bold=True),
        text(left + (width - left) / 2, height - 14, "K (terms in a sum)", theme.faint, 13.5,
             "middle"),
        text(22, (up.start + up.end) / 2, "|error| / |A||B|", theme.faint, 13.5, "middle",
             turned=True),
    ]  # fmt: skip
    for dashed, label, x in ((False, "simulated", 560), (True, "bound", 690)):
        parts.append(polyline([(x, 25), (x + 30, 25)], theme.ink, 2, dashed))
        parts.append(text(x + 38, 30, label, theme.ink, 14))
    for n, (name, (unit, sums, colour_name)) in enumerate(GROWING.items()):
        colour = getattr(theme, colour_name)
        start = left + n * (panel + gap)
        across = LogAxis(400, 21000, start, start + panel)
        x_ticks = [Tick(K, str(K) if K in (1024, 8192) else "") for K in SIZES]
        ticks = y_ticks if n == 0 else [Tick(tick.value) for tick in y_ticks]
        parts += draw_axes(theme, across, up, x_ticks, ticks)
        parts.append(text(start + 2, 66, unit, colour, 14, bold=True))
        parts.append(text(start + 2, 86, sums, theme.faint, 13))
        measures = measure_positive(name)
        points = [(across.locate(m.K), up.locate(m.worst)) for m in measures]
        bounds = [(across.locate(m.K), up.locate(m.bound)) for m in measures]
        parts += [polygon([*points, *bounds[::-1]], colour, 0.13)]
        parts += [polyline(bounds, colour, 2, True), polyline(points, colour, 2.2)]
        parts += [marker("circle", x, y, colour, theme.panel) for x, y in points]
    return picture(width, height, theme, "Error and bound against K by accumulator", parts)


#: The colour, and the marker, of each model; from the least bias to the most.
DRIFTING = {
    "fp32 fma chain": ("ink", "circle"),
    "Hopper bf16": ("blue", "square"),
    "Ampere bf16": ("faint", "diamond"),
    "Volta fp16": ("green", "triangle"),
    "Hopper fp8, promoted every 128": ("purple", "inverted"),
    "Hopper tf32, fp32 operands": ("orange", "circle"),
    "Hopper fp8": ("red", "square"),
}


def draw_biases(theme: Theme) -> str:
    """Draw |bias| of data of one sign against K for every accumulator."""
    width, height = 830, 480
    across, up = LogAxis(440, 19000, 78, 578), LogAxis(3e-9, 1, height - 62, 54)
    powers = "⁻⁸", "⁻⁷", "⁻⁶", "⁻⁵", "⁻⁴", "⁻³", "⁻²", "⁻¹"
    y_ticks = [Tick(10.0 ** (n - 8), f"10{power}") for n, power in enumerate(powers)]
    x_ticks = [Tick(K, str(K)) for K in SIZES]
    parts = draw_axes(theme, across, up, x_ticks, [*y_ticks, Tick(1, "1")])
    title = "How far sums of uniform(0, 1) data drift, result in fp32"
    middle = ((across.start + across.end) / 2, (up.start + up.end) / 2)
    parts += [
        text(16, 30, title, theme.ink, 16, bold=True),
        text(middle[0], height - 14, "K (terms in a sum)", theme.faint, 13.5, "middle"),
        text(22, middle[1], "|mean error in the direction of c| / |A||B|", theme.faint, 13.5,
             "middle", turned=True),
    ]  # fmt: skip
    low = -math.inf
    for name, (colour_name, kind) in reversed(DRIFTING.items()):
        colour = getattr(theme, colour_name)
        points = [(across.locate(m.K), up.locate(abs(m.bias))) for m in measure_positive(name)]
        parts.append(polyline(points, colour, 2))
        parts += [marker(kind, x, y, colour, theme.panel) for x, y in points]
        low = max(low + 19, points[-1][1] + 4.5)
        parts.append(text(across.end + 12, low, name, colour, 13.5))
    return picture(width, height, theme, "Bias against K by accumulator", parts)


# -- rooflines -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Point:
    """A timed call: FLOP for each byte of operands and result, and the FLOP/s."""

    kernel: str
    intensity: float
    flops: float


RUNS = ("gemm", "gemm-few", "layers", "epilogue", "batched", "int4")
FORMAT = "bf16"
STYLES = {
    "gemm": ("blue", "circle"),
    "matmul_tma": ("orange", "square"),
    "matmul_ws": ("green", "diamond"),
    "bmm": ("purple", "triangle"),
    "matmul_w4": ("red", "inverted"),
}


def read_points() -> tuple[list[Point], Ceiling, str]:
    """Return the calls of docs/evidence/speed-*.json, the ceiling of the first run, the device."""
    points = []
    reports = []
    for name in RUNS:
        loaded = json.loads((EVIDENCE / f"speed-{name}.json").read_text(encoding="utf-8"))
        report = decode(BenchReport, loaded, "bench")
        reports.append(report)
        for row in report.rows:
            if row.verdict != CONTROL and row.format == FORMAT and row.tflops and row.gbytes:
                intensity = row.tflops * 1e12 / (row.gbytes * 1e9)
                points.append(Point(row.kernel, intensity, row.tflops * 1e12))
    devices = {report.facts["device"] for report in reports}
    assert len(devices) == 1, devices
    ceiling = next(c for c in reports[0].ceilings if c.format == FORMAT)
    return points, ceiling, devices.pop()


def draw_roofline(theme: Theme) -> str:
    """Draw the speed of the kernels beside the rooflines of the GPU that they were timed on."""
    points, ceiling, device = read_points()
    assert ceiling.product_flops is not None
    assert ceiling.peak_flops is not None
    assert ceiling.peak_bytes is not None
    width, height = 820, 520
    across, up = LogAxis(0.6, 10000, 74, width - 24), LogAxis(1.5e12, 2e15, height - 62, 84)
    x_ticks = [Tick(10.0**n, f"{10**n}") for n in range(5)]
    y_ticks = [Tick(n * 1e12, str(n)) for n in (2, 5, 10, 20, 50, 100, 200, 500, 1000)]
    parts = draw_axes(theme, across, up, x_ticks, y_ticks)
    middle = (across.start + across.end) / 2
    parts += [
        text(16, 32, f"{FORMAT} kernels on an {device}", theme.ink, 16, bold=True),
        text(
            middle, height - 16, "FLOP per byte of operands and result", theme.faint, 13.5, "middle"
        ),
        text(20, height / 2, "TFLOP/s", theme.faint, 13.5, "middle", turned=True),
    ]
    roofs = (
        (ceiling.peak_bytes, ceiling.peak_flops, theme.faint, "peak of its clocks and units"),
        (ceiling.copy_bytes, ceiling.product_flops, theme.ink, "torch's best copy and product"),
    )
    for n, (bytes_rate, flops, colour, label) in enumerate(roofs):
        parts += _draw_roof(across, up, bytes_rate, flops, colour, n == 0)
        low = up.start - 104 + 46 * n
        parts.append(polyline([(448, low - 5), (478, low - 5)], colour, 1.8, n == 0))
        shown = f"{flops / 1e12:.0f} TFLOP/s, {bytes_rate / 1e12:.2f} TB/s"
        parts.append(text(488, low, label, theme.ink, 14))
        parts.append(text(488, low + 19, shown, theme.faint, 13.5))
    x = 16.0
    for kernel, (colour_name, kind) in STYLES.items():
        colour = getattr(theme, colour_name)
        own = [point for point in points if point.kernel == kernel]
        for point in own:
            position = (across.locate(point.intensity), up.locate(point.flops))
            parts.append(marker(kind, *position, colour, theme.panel, 5))
        parts.append(marker(kind, x + 8, 56, colour, theme.page, 5.5))
        label = f"{kernel} ({len(own)})"
        parts.append(text(x + 20, 61, label, theme.ink, 14))
        x += 44 + 8.4 * len(label)
    return picture(width, height, theme, f"Rooflines of the {device}", parts)


def _draw_roof(
    across: LogAxis, up: LogAxis, bytes_rate: float, flops: float, colour: str, dashed: bool
) -> list[str]:
    """Return the line min(FLOP/s, bytes/s x FLOP per byte)."""
    first = max(across.low, up.low / bytes_rate)
    corner = (across.locate(flops / bytes_rate), up.locate(flops))
    start = (across.locate(first), up.locate(first * bytes_rate))
    return [polyline([start, corner, (across.end, corner[1])], colour, 1.8, dashed)]
