"""The tables and the picture of docs/what-your-tensor-core-computes.md, from the models themselves.

python scripts/tensor_core_page.py            puts both into docs/
python scripts/tensor_core_page.py --check    exit 1 where the page holds other tables
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from gemmproof.properties.drift import Measure, measured
from gemmproof.reference.accumulator.record import Accumulator
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.fdpa import Unit
from gemmproof.reference.dot.table import INSTRUCTIONS, TARGETS, is_emulated
from gemmproof.reference.dot.triton import triton_dot

PAGE = ROOT / "docs" / "what-your-tensor-core-computes.md"
PICTURE = ROOT / "docs" / "pictures" / "bias-by-accumulator.svg"
RECORDED = ROOT / "tests" / "recorded" / "drift_h200.json"
INPUTS = ("fp16", "bf16", "tf32", "fp8e4m3", "fp8e5m2", "int8", "fp64")
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
    """Every unit of every target: what it adds at once and what it keeps; equal ones in one row."""
    targets: dict[tuple[str, ...], list[str]] = {}
    for target in TARGETS:
        for instruction in INSTRUCTIONS[:-1]:
            for acc in ("fp32", "fp16"):
                for facts, formats in _units(target, instruction, acc).items():
                    key = (instruction, " ".join(formats), *facts)
                    targets.setdefault(key, []).append(target)
    rows = [[" ".join(found), *key] for key, found in targets.items()]
    head = ("targets", "instruction", "operands", "sum", "added at once", "kept below the largest",
            "kept from step to step", "whole numbers exact to")  # fmt: skip
    return _markdown(head, rows)


def _units(target: str, instruction: str, acc: str) -> dict[tuple[str, ...], list[str]]:
    """What each unit of an instruction does, and the formats that it takes."""
    found: dict[tuple[str, ...], list[str]] = {}
    for fmt in INPUTS:
        acc_format = {"int8": "int32", "fp64": "fp64"}.get(fmt, acc)
        if acc == "fp16" and acc_format != "fp16":
            continue
        try:
            unit = dot_model(target, fmt, acc_format, instruction).unit
        except ValueError:  # no such instruction
            continue
        emulated = " (as fp16, 32 k apart)" if is_emulated(target, fmt, instruction) else ""
        found.setdefault((acc_format, *_facts(unit, emulated)), []).append(fmt)
    return found


def _facts(unit: Unit, emulated: str) -> tuple[str, str, str, str]:
    if unit.kind == "integer":
        return ("any", "all", "all", "2^31" + (", saturates" if unit.saturates else ", wraps"))
    if unit.kind == "fma":
        return ("1", "all", "52 bits, to nearest", "2^53")
    how = {"rz": "cut", "rne": "to nearest"}[unit.rounding]
    kept = f"{unit.fraction} bits, {how}"
    return (f"{unit.L}{emulated}", f"{unit.F} bits", kept, f"2^{unit.fraction + 1}")


def found_table() -> str:
    """What probes of launched kernels found on the recorded device."""
    rows = []
    for row in json.loads(RECORDED.read_text())["kernels"]:
        fields = {k: v for k, v in row["accumulator"].items() if k != "name"}
        bits = f"{row['equal']:,} of {row['outputs']:,}" if row["outputs"] else "atomics: any order"
        rows.append([f"`{row['kernel']}`", row["format"], Accumulator(**fields).name, bits])
    return _markdown(("kernel", "operands", "found by launches", "bits as simulated"), rows)


def bias_table(found: dict[str, list[Measure]]) -> str:
    """Bias of data of one sign against K."""
    rows = [[name, *(f"{m.bias:+.1e}" for m in measures)] for name, measures in found.items()]
    return _markdown(("accumulator", *(f"K={K}" for K in SIZES)), rows)


def biases() -> dict[str, list[Measure]]:
    """Measures of data of one sign for each drawn model."""
    found = {}
    for name, model in DRAWN.items():
        some = [measured(model.dot, model.a_format, K, model) for K in SIZES]
        found[name] = [m for measures in some for m in measures if m.data == "positive"]
    return found


def draw(found: dict[str, list[Measure]]) -> None:
    """|bias| against K for every drawn accumulator, named at the line's end."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "gemmproof"}
    colours = ("#000000", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#D55E00")
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots()
        for (name, measures), colour, marker in zip(found.items(), colours, "osD^vPX", strict=True):
            heights = [abs(m.bias) for m in measures]
            axes.plot([m.K for m in measures], heights, color=colour, marker=marker, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(SIZES, [str(K) for K in SIZES])
        axes.set_xlabel("K (terms in a sum)")
        axes.set_ylabel("|mean error in the direction of c| / |A||B|")
        axes.set_title("How far sums of uniform(0, 1) data drift, result in fp32")
        axes.grid(True, color="0.9")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
        figure.savefig(PICTURE, format="svg", metadata={"Date": None})


def _markdown(head: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def filled(page: str, tables: dict[str, str]) -> str:
    """The page with the text between its marks replaced by the tables."""
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        if not after:
            raise ValueError(f"{PAGE.name}: got no marks for {name!r}, expected {start.strip()}")
        page = f"{before}{start}{table}\n{end}{after}"
    return page


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    tables = {"units": unit_table(), "found": found_table()}
    if "--check" in sys.argv[1:]:
        return int(filled(page, tables) != page)
    found = biases()
    PAGE.write_text(filled(page, {**tables, "biases": bias_table(found)}), encoding="utf-8")
    PICTURE.parent.mkdir(exist_ok=True)
    draw(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
