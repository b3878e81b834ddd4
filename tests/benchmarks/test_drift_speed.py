"""Seconds to tell an accumulator and to measure K = 16384; run with --benchmark-enable."""

import drift_kernels
import pytest

from gemmproof.engine.drift import simulate_product
from gemmproof.properties.accumulator import declared_model
from gemmproof.properties.measure import measure
from gemmproof.reference.accumulator.infer import infer_accumulator

pytestmark = pytest.mark.lane("full")

KERNELS = [("passed", "fp16"), ("ieee", "fp32"), ("fp8_unpromoted", "fp8e4m3")]


@pytest.mark.parametrize(("name", "in_format"), KERNELS)
def test_time_to_tell_an_accumulator(benchmark, name, in_format):
    product = simulate_product(getattr(drift_kernels, name), in_format, "sm_90")
    benchmark.pedantic(infer_accumulator, (product, in_format), rounds=1)


@pytest.mark.parametrize(("name", "in_format"), KERNELS)
def test_time_to_measure_a_long_k(benchmark, name, in_format):
    product = simulate_product(getattr(drift_kernels, name), in_format, "sm_90")
    found = infer_accumulator(product, in_format, K=512)
    model = declared_model(found, "fp32", in_format)
    benchmark.pedantic(measure, (product, in_format, 16384, model), rounds=1)
