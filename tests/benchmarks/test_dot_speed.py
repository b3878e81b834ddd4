"""Multiply-adds a second of the dot models, compared with mmasim; run with --benchmark-enable."""

import numpy as np
import pytest
from tests.support import drift_kernels

from gemmproof.drift.run import simulate_product
from gemmproof.properties.judges.accumulator_drift import declared_model, measure
from gemmproof.reference.accumulator import infer_accumulator
from gemmproof.reference.arithmetic import bits, round_to
from gemmproof.reference.bounds import gemm_bound
from gemmproof.reference.dot import dot_model
from gemmproof.reference.formats import FORMATS

pytestmark = pytest.mark.lane("full")

CASES = [
    (None, "fp16", "fp32", (512, 512, 512)),
    (None, "bf16", "fp32", (512, 512, 512)),
    (None, "fp32", "fp32", (256, 256, 256)),
    (None, "fp16", "fp16", (256, 256, 128)),
    (None, "fp16", "fp32", (32, 64, 64, 32)),
    ("sm_90", "bf16", "fp32", (512, 512, 2048)),
    ("sm_90", "fp16", "fp32", (512, 512, 512)),
    ("sm_90", "fp16", "fp16", (512, 512, 512)),
    ("sm_90", "tf32", "fp32", (512, 512, 512)),
    ("sm_90", "fp8e4m3", "fp32", (512, 512, 512)),
    ("sm_90", "fp16", "fp32", (32, 64, 64, 32)),
    ("sm_80", "bf16", "fp32", (512, 512, 512)),
    ("sm_70", "fp16", "fp32", (512, 512, 512)),
]


def operands(name, shape):
    *batch, M, N, K = shape
    rng = np.random.default_rng(0)
    shapes = ((*batch, M, K), (*batch, K, N))
    return tuple(round_to(rng.standard_normal(s), FORMATS[name]) for s in shapes)


def note_rate(benchmark, count):
    """GMAC/s of the fastest round, next to the time in the report."""
    if benchmark.enabled:
        benchmark.extra_info["GMAC/s"] = round(count / benchmark.stats.stats.min / 1e9, 6)


def label(case):
    return "-".join((str(case[0]), *case[1:3], "x".join(map(str, case[3]))))


@pytest.mark.parametrize("case", CASES, ids=label)
def test_dot(benchmark, case):
    target, name, acc, shape = case
    model = dot_model(target, name, acc)
    a, b = operands(name, shape)
    benchmark.pedantic(model.dot, (a, b), rounds=5, warmup_rounds=1)
    note_rate(benchmark, np.prod(shape))


def test_mmasim(benchmark):
    import torch
    from mmasim.arithmetic.fdpa import MMA_T_FDPA

    M, N, K = 32, 32, 64
    a, b = operands("bf16", (M, N, K))
    unit = dot_model("sm_90", "bf16").unit
    witness = MMA_T_FDPA(unit.F, "RZ-FP32", unit.L, unit.e_zero, "", "")
    a_torch, b_torch = (torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16) for x in (a, b))
    got = benchmark.pedantic(
        witness, (a_torch, b_torch, torch.zeros(M, N)), rounds=3, warmup_rounds=1
    )
    assert np.array_equal(bits(got.numpy()), bits(dot_model("sm_90", "bf16").dot(a, b)))
    note_rate(benchmark, M * N * K)


@pytest.mark.parametrize("target", [None, "sm_90"])
def test_bound(benchmark, target):
    a, b = operands("fp16", (512, 512, 512))
    benchmark.pedantic(gemm_bound, (a, b, dot_model(target, "fp16"), "fp16"), rounds=3)
    note_rate(benchmark, 512**3)


# -- seconds to tell an accumulator and to measure K = 16384 ---------------------------------------
KERNELS = [("passed", "fp16"), ("ieee", "fp32"), ("fp8_unpromoted", "fp8e4m3")]


@pytest.mark.parametrize(("name", "in_format"), KERNELS)
def test_time_to_tell_an_accumulator(benchmark, name, in_format):
    product = simulate_product(getattr(drift_kernels, name), in_format, "sm_90")
    benchmark.pedantic(infer_accumulator, (product, in_format), rounds=1)


@pytest.mark.parametrize(("name", "in_format"), KERNELS)
def test_time_to_measure_a_long_k(benchmark, name, in_format):
    product = simulate_product(getattr(drift_kernels, name), in_format, "sm_90")
    accumulator = infer_accumulator(product, in_format, K=512)
    model = declared_model(accumulator, "fp32", in_format)
    benchmark.pedantic(measure, (product, in_format, 16384, model), rounds=1)
