"""Casts and arithmetic give the bits that an H200 gave, on every 16-bit number and on edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.witnesses.recorded.casts import as_bits, as_tensor, inputs_of, launch

from gemmproof.reference.simulator import simulate

FILE = Path(__file__).parent / "recorded" / "casts-h200.npz"
RECORDED = dict(np.load(FILE))
NAMES = sorted(name for name in RECORDED if not name.startswith("in|"))
FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


def out_type(name: str) -> str:
    operation, kind, *rest = name.split("|")
    return rest[0] if operation == "cast" else kind


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_gives_the_recorded_bits(name):
    sources = inputs_of(name)
    bits = [RECORDED[f"in|{source}"] for source in sources]
    operands = [
        as_tensor(b, source.removeprefix("a:").removeprefix("b:"))
        for b, source in zip(bits, sources, strict=True)
    ]
    got = as_bits(simulate(lambda *xs: launch(name, *xs), *operands))
    compared = np.ones(got.shape, bool)
    if name.startswith(("idiv", "rem|i", "rem|u")):
        compared &= bits[1] != 0  # undefined: the simulator marks it, whatever it holds
    if "f64" in name and out_type(name) in FLOATS:
        # a NaN in 64 bits keeps its operand's bits on the device; that it is one is compared
        kind = FLOATS[out_type(name)]
        nan = np.isnan(got.view(kind)) & np.isnan(RECORDED[name].view(kind))
        compared &= ~nan
    elif name == "cast|f64|bf16":
        compared &= ~np.isnan(bits[0].view(np.float64))
    elif name.startswith("rem|"):
        kind = {"bf16": "u2"}.get(out_type(name), FLOATS.get(out_type(name)))
        if kind in FLOATS.values():
            compared &= ~np.isnan(got.view(kind))
    different = np.flatnonzero((got != RECORDED[name]) & compared)
    assert different.size == 0, (
        f"{name}: {different.size} of {got.size} differ, first for "
        f"{[hex(int(b[different[0]])) for b in bits]}: got {int(got[different[0]]):#x}, "
        f"expected {int(RECORDED[name][different[0]]):#x}"
    )


def test_every_kind_of_cast_was_recorded():
    assert len(NAMES) > 120
    assert sum(RECORDED[name].size for name in NAMES) > 1_500_000
