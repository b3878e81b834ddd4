"""The tables and the picture of what-your-tensor-core-computes.md, from the models."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.docs.markdown import ROOT, make_table, update_tables

from gemmproof.drift.plot import scale_axes
from gemmproof.properties.judges.accumulator_drift import Measure, measure
from gemmproof.reference.accumulator import Accumulator
from gemmproof.reference.dot import DotModel, dot_model, is_emulated
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.dot.triton_dot import triton_dot
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.report.svg import write_svg

PAGE = ROOT / "docs" / "explanation" / "what-your-tensor-core-computes.md"
PICTURE = ROOT / "docs" / "pictures" / "bias-by-accumulator.svg"
RECORDED = ROOT / "tests" / "witnesses" / "recorded" / "drift_h200.json"
SIZES = tuple(1 << n for n in range(9, 15))
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}
#: Drawn from least to most bias.
DRAWN: dict[str, DotModel] = {
    "fp32 fma chain": dot_model(None, "bf16"),
    "Hopper bf16": dot_model("sm_90", "bf16"),
    "Ampere bf16": dot_model("sm_80", "bf16"),
    "Volta fp16": dot_model("sm_70", "fp16"),
    "Hopper fp8, promoted every 128": triton_dot("sm_90", "fp8e4m3", acc_passed=False, **TILE),
    "Hopper tf32, fp32 operands": dot_model("sm_90", "tf32"),
    "Hopper fp8": dot_model("sm_90", "fp8e4m3"),
}


def unit_table() -> str:
    """Every unit of every target: terms added at once and bits kept; equal units in one row."""
    targets: dict[tuple[str, ...], list[str]] = {}
    for target, core in ((gpu.name, core) for gpu in GPUS.values() for core in gpu.cores):
        formats: dict[tuple[str, ...], list[str]] = {}
        sums = [(fmt, acc) for fmt in core.formats for acc in FORMATS[fmt].sums]
        for fmt, acc in sorted(sums, key=lambda pair: pair[1] == "fp16"):
            unit = dot_model(target, fmt, acc, core.instruction).unit
            apart = is_emulated(target, fmt, core.instruction)
            facts = _facts(unit, " (as fp16, 32 k apart)" if apart else "")
            formats.setdefault((acc, *facts), []).append(fmt)
        for facts, names in formats.items():
            key = (core.instruction, " ".join(names), *facts)
            targets.setdefault(key, []).append(target)
    rows = [[" ".join(gpus), *key] for key, gpus in targets.items()]
    head = ("targets", "instruction", "operands", "sum", "added at once", "kept below the largest",
            "kept from step to step", "whole numbers exact to")  # fmt: skip
    return make_table(head, rows)


def _facts(unit: Unit, emulated: str) -> tuple[str, str, str, str]:
    if unit.kind == "integer":
        return ("any", "all", "all", "2^31" + (", saturates" if unit.saturates else ", wraps"))
    if unit.kind == "fma":
        return ("1", "all", "52 bits, to nearest", "2^53")
    how = {"rz": "cut", "rne": "to nearest"}[unit.rounding]
    kept = f"{unit.fraction} bits, {how}"
    return (f"{unit.L}{emulated}", f"{unit.F} bits", kept, f"2^{unit.fraction + 1}")


def found_table() -> str:
    """The accumulators that probes of launched kernels found on the recorded device."""
    rows = []
    for row in json.loads(RECORDED.read_text())["kernels"]:
        fields = {k: v for k, v in row["accumulator"].items() if k != "name"}
        bits = f"{row['equal']:,} of {row['outputs']:,}" if row["outputs"] else "atomics: any order"
        rows.append([f"`{row['kernel']}`", row["format"], Accumulator(**fields).name, bits])
    return make_table(("kernel", "operands", "found by launches", "bits as simulated"), rows)


def bias_table(biases: dict[str, list[Measure]]) -> str:
    """Bias of data of one sign against K."""
    rows = [[name, *(f"{m.bias:+.1e}" for m in measures)] for name, measures in biases.items()]
    return make_table(("accumulator", *(f"K={K}" for K in SIZES)), rows)


def biases() -> dict[str, list[Measure]]:
    """Measures of data of one sign for each drawn model."""
    positive = {}
    for name, model in DRAWN.items():
        some = [measure(model.dot, model.a_format, K, model) for K in SIZES]
        positive[name] = [m for measures in some for m in measures if m.data == "positive"]
    return positive


def draw(biases: dict[str, list[Measure]]) -> None:
    """|bias| against K for every drawn accumulator; the legend has the order of the lines."""
    colours = ("#000000", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#D55E00")
    with write_svg(PICTURE, 9, 5) as figure:
        axes = figure.subplots()
        for (name, measures), colour, marker in zip(
            biases.items(), colours, "osD^vPX", strict=True
        ):
            heights = [abs(m.bias) for m in measures]
            axes.plot([m.K for m in measures], heights, color=colour, marker=marker, label=name)
        scale_axes(axes, list(SIZES))
        axes.set_ylabel("|mean error in the direction of c| / |A||B|")
        axes.set_title("How far sums of uniform(0, 1) data drift, result in fp32")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)


def make_page(check: bool = False, out: Path | None = None) -> int:
    """Make the tables and the picture of docs/explanation/what-your-tensor-core-computes.md.

    Bits and biases come from the models, the last table from
    tests/witnesses/recorded/drift_h200.json. The picture is drawn unless the page is only checked.
    """
    measured = biases()
    tables = {"units": unit_table(), "found": found_table(), "biases": bias_table(measured)}
    if not check:
        draw(measured)
    return update_tables(PAGE, tables, check, out)
