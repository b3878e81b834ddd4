"""The simulator predicts every bit that each registered kernel gave on an H200."""

from pathlib import Path

import numpy as np
import pytest
from tests.witnesses.recorded.calls import bits_of, list_calls, predict_call

from gemmproof.worker.load_kernel import load_registered

ROOT = Path(__file__).parents[2]
ARCHIVE = Path(__file__).parent / "recorded" / "kernels-h200.npz"
FREE = {"matmul_fused_tiled-bf16": "a division or a function that the device approximates"}


@pytest.fixture(scope="module")
def calls():
    registered = load_registered(str(ROOT / "conftest.py"))
    assert isinstance(registered, list), registered
    return list_calls(registered)


@pytest.fixture(scope="module")
def recorded():
    with np.load(ARCHIVE) as archive:
        return dict(archive)


def test_every_call_is_recorded_but_those_whose_bits_are_the_devices_own(calls, recorded):
    assert set(recorded) == set(calls) - set(FREE)
    assert {name: predict_call(*calls[name]).free for name in FREE} == FREE


@pytest.mark.lane("full")
@pytest.mark.filterwarnings("ignore:.*pointers are used")  # as they were
def test_predicted_bits_are_the_recorded_ones(calls, recorded):
    for name, bits in recorded.items():
        assert np.array_equal(bits_of(predict_call(*calls[name]).observation), bits), name
