"""Scaled and batched dots give the bits that an H200 gave, compiled by Triton 3.6."""

from pathlib import Path

import numpy as np
import pytest
from tests.witnesses.recorded.scaled import cases, get_name, inputs, kept, launch

from gemmproof.reference.simulator import run

RECORDED = dict(np.load(Path(__file__).parent / "recorded" / "scaled-h200.npz"))
CASES = {get_name(case): case for case in cases()}


@pytest.mark.parametrize("key", sorted(RECORDED))
def test_the_simulator_gives_the_recorded_bits(key):
    name, _, seed = key.rpartition("|")
    case = CASES[name]
    seen = run(lambda *xs: launch(case, *xs), *inputs(case, int(seed)), target="sm_90")
    assert seen.faults == []
    assert seen.launches[0].rounds == ()
    got, expected = kept(seen.result.numpy()), RECORDED[key]
    alike = (got.view("u4") == expected.view("u4")) | (np.isnan(got) & np.isnan(expected))
    assert alike.all(), f"{int((~alike).sum())} of {alike.size} differ"


def test_every_kind_of_operand_was_recorded():
    formats = {fmt for key in RECORDED for fmt in key.split("|")[:2]}
    assert formats == {"e2m1", "e4m3", "e5m2", "bf16", "fp16", "fp32", "int8"}
    assert len(RECORDED) == 42
