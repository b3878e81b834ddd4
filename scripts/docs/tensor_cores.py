"""The tables of what-your-tensor-core-computes.md, from the models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.docs.markdown import ROOT, make_table, update_tables
from scripts.docs.plots import DRIFTING, SIZES, measure_positive

from gemmproof.properties.judges.accumulator_drift import Measure
from gemmproof.reference.accumulator import Accumulator
from gemmproof.reference.dot import dot_model, is_emulated
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS

PAGE = ROOT / "docs" / "explanation" / "what-your-tensor-core-computes.md"
RECORDED = ROOT / "tests" / "witnesses" / "recorded" / "drift_h200.json"


def unit_table() -> str:
    """Tabulate all units: products per step and bits kept; equal units share a row."""
    targets: dict[tuple[str, ...], list[str]] = {}
    for target, core in ((gpu.name, core) for gpu in GPUS.values() for core in gpu.cores):
        formats: dict[tuple[str, ...], list[str]] = {}
        sums = [(fmt, acc) for fmt in core.formats for acc in FORMATS[fmt].sums]
        for fmt, acc in sorted(sums, key=lambda pair: pair[1] == "fp16"):
            unit = dot_model(target, fmt, acc, core.instruction).unit
            apart = is_emulated(target, fmt, core.instruction)
            facts = _facts(unit, " (in fp16, from zero every 32 k)" if apart else "")
            formats.setdefault((acc, *facts), []).append(fmt)
        for facts, names in formats.items():
            key = (core.instruction, " ".join(names), *facts)
            targets.setdefault(key, []).append(target)
    rows = [[" ".join(gpus), *key] for key, gpus in targets.items()]
    head = ("targets", "instruction", "operands", "sum", "products per step (L)",
            "bits kept below the largest term (F)", "bits kept in the register",
            "integers exact to")  # fmt: skip
    return make_table(head, rows)


def _facts(unit: Unit, emulated: str) -> tuple[str, str, str, str]:
    if unit.kind == "integer":
        return ("any", "all", "all", "2^31" + (", saturates" if unit.saturates else ", wraps"))
    if unit.kind == "fma":
        return ("1", "all", "52 bits, rounded to nearest", "2^53")
    how = {"rz": "truncated", "rne": "rounded to nearest"}[unit.rounding]
    kept = f"{unit.fraction} bits, {how}"
    return (f"{unit.L}{emulated}", f"{unit.F} bits", kept, f"2^{unit.fraction + 1}")


def found_table() -> str:
    """Tabulate the accumulators that probes of launched kernels found on the recorded device."""
    rows = []
    for row in json.loads(RECORDED.read_text())["kernels"]:
        fields = {k: v for k, v in row["accumulator"].items() if k != "name"}
        bits = (
            f"{row['equal']:,} of {row['outputs']:,}" if row["outputs"] else "not compared: atomics"
        )
        rows.append([f"`{row['kernel']}`", row["format"], Accumulator(**fields).name, bits])
    return make_table(
        ("kernel", "operands", "accumulator found by probes", "outputs with the simulated bits"),
        rows,
    )


def bias_table(biases: Mapping[str, Sequence[Measure]]) -> str:
    """Tabulate the bias of data of one sign against K."""
    rows = [[name, *(f"{m.bias:+.1e}" for m in measures)] for name, measures in biases.items()]
    return make_table(("accumulator", *(f"K={K}" for K in SIZES)), rows)


def make_page(check: bool = False, out: Path | None = None) -> int:
    """Make the tables of docs/explanation/what-your-tensor-core-computes.md.

    Bits and biases are those of the models; the last table is that of
    tests/witnesses/recorded/drift_h200.json.
    """
    measured = {name: measure_positive(name) for name in DRIFTING}
    tables = {"units": unit_table(), "found": found_table(), "biases": bias_table(measured)}
    return update_tables(PAGE, tables, check, out)
