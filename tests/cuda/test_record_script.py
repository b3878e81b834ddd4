"""What is recorded of the registered kernels: the bits that a device gives, where some are due."""

from __future__ import annotations

import numpy as np
import pytest
from fake_gpu import FakeGpu, flip
from scripts.gpu import calls
from tests.witnesses.recorded.calls import bits_of, predict_call

from gemmproof.fake_device import Wanted


@pytest.fixture(autouse=True)
def wanted_as_before(monkeypatch):
    """What a recording sets for its process, a test takes back."""
    monkeypatch.setattr(Wanted, "device", Wanted.device)


@pytest.mark.parametrize("name", ["matmul-fp16", "bmm-bf16", "matmul_w4-fp16"])
def test_a_call_gives_the_bits_of_the_device(name, monkeypatch):
    monkeypatch.setattr(calls, "Gpu", FakeGpu)
    row = calls.launch_call(name)
    assert (row["free"], row["failed"]) == (None, None)
    expected = bits_of(predict_call(*calls.find_calls()[name]).observation)
    assert np.array_equal(row["bits"], expected)
    monkeypatch.setattr(calls, "Gpu", lambda: FakeGpu(lambda call, c, tensors: flip(c)))
    assert not np.array_equal(calls.launch_call(name)["bits"], expected)


def test_a_call_whose_bits_are_the_devices_own_is_not_launched(monkeypatch):
    monkeypatch.setattr(calls, "Gpu", None)
    row = calls.launch_call("matmul_fused_tiled-bf16")
    assert row["free"] == "a division or function that the device approximates"


def test_a_call_that_fails_is_told(monkeypatch):
    def fail(call, c, tensors):
        raise RuntimeError("no such device")

    monkeypatch.setattr(calls, "Gpu", lambda: FakeGpu(fail))
    assert "no such device" in calls.launch_call("matmul-fp16")["failed"]
