"""Float arithmetic, where and its kin."""

import operator
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import (
    INTEGERS,
    NUMPY,
    compute,
    name_of,
    pairs,
    rounded,
    same,
    samples,
    tensor,
)

from gemmproof.reference.simulator import run
from gemmproof.reference.ttir.dtypes import DTYPES

# numpy warns when it casts a NaN that ml_dtypes made.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16], ids=name_of)
@pytest.mark.parametrize("op", ["+", "-", "*"])
def test_narrow_float_arithmetic_rounds_once(dtype, op):
    """Against the exact result rounded once, on random pairs and on values far apart."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**16, (2, 20000)).astype(np.uint16)
    x, y = (b.view(NUMPY[dtype.name]) for b in bits)
    function = {"+": operator.add, "-": operator.sub, "*": operator.mul}[op]
    wide = function(x.astype(np.float64), y.astype(np.float64))
    keep = np.isfinite(x.astype(np.float64)) & np.isfinite(y.astype(np.float64))
    if dtype == tl.bfloat16:  # float64 must hold the exact result
        gap = np.abs(np.log2(np.abs(x.astype(np.float64))) - np.log2(np.abs(y.astype(np.float64))))
        keep &= gap < 40
    x, y, wide = x[keep], y[keep], wide[keep]
    got = compute(f"x {op} y", tensor(x, dtype), tensor(y, dtype), dtype)
    assert same(got, rounded(wide, dtype, saturate=False)).all()


def test_fp32_arithmetic_is_ieee():
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((2, 5000)).astype(np.float32)
    for op, function in (
        ("+", operator.add),
        ("-", operator.sub),
        ("*", operator.mul),
        ("/", operator.truediv),
    ):
        got = compute(f"x {op} y", torch.from_numpy(x), torch.from_numpy(y), tl.float32)
        assert got.tobytes() == function(x, y).tobytes()
    got = compute("x % y", torch.from_numpy(x), torch.from_numpy(y), tl.float32)
    assert got.tobytes() == np.fmod(x, y).tobytes()


@triton.jit
def fused(x, y):
    return tl.fma(x, y, -1.0)


@pytest.mark.parametrize("dtype", [tl.float16, tl.float32, tl.bfloat16], ids=name_of)
def test_fma_rounds_once(dtype):
    """x * y - 1 where the product's low bits decide."""
    step = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-23}[dtype.name]
    x = np.array([1 + step, 1 - step / 2, 1 + 3 * step]).astype(NUMPY[dtype.name])
    got = compute(fused, tensor(x, dtype), tensor(x, dtype), dtype)
    exact = [Fraction(float(v)) ** 2 - 1 for v in x]
    expected = np.array([float(v) for v in exact]).astype(NUMPY[dtype.name])
    assert got.tobytes() == expected.tobytes()


@triton.jit
def least(x, y):
    return tl.minimum(x, y)


@triton.jit
def greatest(x, y):
    return tl.maximum(x, y)


@triton.jit
def least_nan(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def greatest_nan(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamped(x, y):
    return tl.clamp(x, -1.0, 1.0) + y * 0


def test_minimum_and_maximum_and_nan():
    """A number wins against NaN unless NaN is to propagate."""
    nan = float("nan")
    x, y = pairs([1.0, -2.0, nan, float("inf"), 0.0])
    a, b = torch.tensor(x), torch.tensor(y)
    for function, expected in (
        (least, np.fmin(x, y)),
        (greatest, np.fmax(x, y)),
        (least_nan, np.minimum(x, y)),
        (greatest_nan, np.maximum(x, y)),
    ):
        assert same(compute(function, a, b, tl.float32), expected).all()
    got = compute(clamped, torch.tensor([-3.0, 0.25, 7.0]), torch.zeros(3), tl.float32)
    assert got.tolist() == [-1.0, 0.25, 1.0]


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_minimum_and_maximum_of_integers(dtype):
    x, y = pairs(samples(dtype, 9, 10))
    both = list(zip(x, y, strict=True))
    got = compute(least, tensor(x, dtype), tensor(y, dtype), dtype)
    assert got.tolist() == [min(p) for p in both]
    got = compute(greatest, tensor(x, dtype), tensor(y, dtype), dtype)
    assert got.tolist() == [max(p) for p in both]


@triton.jit
def where_kernel(x_ptr, o_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(o_ptr + i, tl.where(x > 0, x, -1))
    tl.store(o_ptr + N + i, tl.where(i < n, 1, 0))
    tl.store(o_ptr + 2 * N + i, tl.where(n > 3, x, 0.0))
    tl.store(o_ptr + 3 * N + i, tl.where(i[:, None] == i[None, :], x[None, :], 0.0).sum(1))
    tl.store(o_ptr + 4 * N + i, tl.where(i % 2, 5, 6))


def test_where_broadcasts_and_promotes():
    def wrapper(x):
        o = torch.empty((5, 8))
        where_kernel[(1,)](x, o, 5, 8)
        return o

    x = np.array([1, -2, 3, -4, np.nan, 6, -7, 8], np.float32)
    seen = run(wrapper, torch.from_numpy(x))
    assert seen.faults == []
    i = np.arange(8)
    wanted = [np.where(x > 0, x, -1), i < 5, x, np.where(np.isnan(x), np.nan, x), 6 - i % 2]
    got = seen.result.numpy()
    for row, expected in enumerate(wanted[:3] + wanted[4:]):
        line = got[row if row < 3 else 4]
        assert same(line, expected.astype(np.float64)).all()
    assert np.array_equal(got[3], x, equal_nan=True)


def test_storage_types_are_those_of_the_numerics():
    """bf16 and fp8 live in ml_dtypes arrays; every type has the width that its name says."""
    assert DTYPES["bf16"].numpy == ml_dtypes.bfloat16
    assert DTYPES["f8E4M3FN"].numpy == ml_dtypes.float8_e4m3fn
    for name, dtype in DTYPES.items():
        bits = int(re.match("(?:bf|f|i)([0-9]+)", name)[1])
        assert dtype.bits == bits, name
        assert dtype.itemsize * 8 == max(bits, 8), name


@triton.jit
def clamp_kernel(x_ptr, y_ptr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, tl.clamp(x, 0.0, 1.0))
    tl.store(y_ptr + 16 + i, tl.clamp(x, -1.0, -0.0))
    tl.store(y_ptr + 32 + i, tl.clamp(x, -0.0, 0.0))


def test_a_clamp_orders_zeros_by_sign():
    """As a minimum of a maximum, whose signs of zeros are IEEE 754's."""

    def wrapper(x, y):
        clamp_kernel[(1,)](x, y)
        return y

    x = torch.tensor([-0.0, 0.0] * 8)
    seen = run(wrapper, x, torch.empty(48)).result
    assert seen[:16].signbit().tolist() == [False] * 16
    assert seen[16:32].signbit().tolist() == [True] * 16
    assert seen[32:].signbit().tolist() == x.signbit().tolist()
