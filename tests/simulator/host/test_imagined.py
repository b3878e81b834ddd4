"""Modules that ask for the device when they are imported can be judged without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmproof.reference.simulator import simulate
from gemmproof.target import load, parse

SOURCE = """
import torch
import triton

DEVICE = triton.runtime.driver.active.get_active_torch_device()
SMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
ON_HOPPER = torch.cuda.get_device_capability() >= (9, 0)


def matmul(a, b):
    assert a.device == DEVICE and a.is_cuda
    return torch.full((1,), SMS if ON_HOPPER else 0, device=DEVICE)
"""


def test_a_device_is_imagined_at_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are those that the wrapper gets later, and none is left behind."""
    import torch

    (tmp_path / "asks_at_import.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = torch.cuda.is_available()
    function = load(parse(f"{tmp_path / 'asks_at_import.py'}:matmul"))
    assert torch.cuda.is_available() == before
    assert simulate(function, torch.zeros(1), torch.zeros(1)).tolist() == [132]
