"""What torch has for a format, and how it is set while it is timed."""

from __future__ import annotations

import pytest
import torch
from fake_cuda_device import run

from gemmproof.bench import ceiling
from gemmproof.bench.problems import Problem
from gemmproof.bench.records import NOISE
from gemmproof.target import TargetError


@pytest.fixture(autouse=True)
def _small_ceilings(monkeypatch):
    """The real ones take a GPU's time."""
    measure = ceiling.measure_ceiling
    monkeypatch.setattr(
        "gemmproof.bench.run.measure_ceiling",
        lambda device, fmt, beat: measure(device, fmt, beat, copied=2**16, sides=(16, 32)),
    )


def int8_product(a, b):
    return a.int() @ b.int()


def test_int8_is_compared_with_what_torch_has_for_it():
    rows, _, _ = run(int8_product, formats=("int8",), problems=[Problem(32, 32, 32)])
    assert (rows[1].peer, rows[1].out_format, rows[1].verdict) == ("torch._int_mm", "int32", NOISE)


def fp8_product(a, b):
    return (a.float() @ b.float()).bfloat16()


def test_fp8_is_compared_with_scaled_mm_in_the_kernels_own_format(monkeypatch):
    asked = []

    def scaled(a, b, *, scale_a, scale_b, out_dtype, use_fast_accum):
        asked.append((b.stride(), float(scale_a), float(scale_b), out_dtype, use_fast_accum))
        return (a.float() @ b.float()).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    rows, _, _ = run(fp8_product, formats=("fp8e4m3",), problems=[Problem(32, 32, 64)])
    assert (rows[1].peer, rows[1].out_format) == ("torch._scaled_mm", "bf16")
    assert asked[-1] == ((1, 64), 1.0, 1.0, torch.bfloat16, False)


def test_a_format_that_torch_has_no_product_of_can_have_another_peer(monkeypatch):
    def lacks(a, b, **words):
        raise RuntimeError("Multiplication of two Float8_e5m2 matrices is not supported")

    monkeypatch.setattr(torch, "_scaled_mm", lacks)
    where = {"formats": ("fp8e5m2",), "problems": [Problem(32, 32, 64)]}
    rows, _, (measured,) = run(fp8_product, peer=fp8_product, **where)
    assert (rows[1].verdict, rows[1].ceiling, measured.product_flops) == (NOISE, None, None)
    with pytest.raises(TargetError, match=r"calling torch\._scaled_mm at .* is not supported"):
        run(fp8_product, **where)


def test_torch_sums_in_fp32_while_it_is_timed_and_as_before_afterwards():
    seen = []

    def look(a, b):
        m = torch.backends.cuda.matmul
        seen.append((m.allow_fp16_reduced_precision_reduction, m.allow_tf32))
        return a @ b

    before = torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    assert before
    for fmt, tf32 in (("fp16", False), ("fp32", False), ("tf32", True)):
        run(look, formats=(fmt,))
        assert set(seen) == {(False, tf32)}
        seen.clear()
    assert torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction == before
    assert not torch.backends.cuda.matmul.allow_tf32
