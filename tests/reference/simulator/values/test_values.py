"""Float arithmetic, `where` and related operations."""

import operator
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import (
    NUMPY,
    compute,
    get_name,
    pairs,
    result_of,
    round_once,
    same,
    store_rows,
    tensor,
)

from gemmproof.reference.ttir import DTYPES

# numpy warns when it casts a NaN that ml_dtypes made.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16], ids=get_name)
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
    assert same(got, round_once(wide, dtype, saturate=False)).all()


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


@pytest.mark.parametrize("dtype", [tl.float16, tl.float32, tl.bfloat16], ids=get_name)
def test_fma_rounds_once(dtype):
    """x * y - 1 where the product's low bits decide."""
    step = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-23}[dtype.name]
    x = np.array([1 + step, 1 - step / 2, 1 + 3 * step]).astype(NUMPY[dtype.name])
    got = compute("tl.fma(x, y, -1.0)", tensor(x, dtype), tensor(x, dtype), dtype)
    exact = [Fraction(float(v)) ** 2 - 1 for v in x]
    expected = np.array([float(v) for v in exact]).astype(NUMPY[dtype.name])
    assert got.tobytes() == expected.tobytes()


def test_minimum_and_maximum_and_nan():
    """A number wins against NaN unless NaN is to propagate."""
    nan = float("nan")
    x, y = pairs([1.0, -2.0, nan, float("inf"), 0.0])
    a, b = torch.tensor(x), torch.tensor(y)
    for text, expected in (
        ("tl.minimum(x, y)", np.fmin(x, y)),
        ("tl.maximum(x, y)", np.fmax(x, y)),
        ("tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)", np.minimum(x, y)),
        ("tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)", np.maximum(x, y)),
    ):
        assert same(compute(text, a, b, tl.float32), expected).all()
    x = torch.tensor([-3.0, 0.25, 7.0])
    assert compute("tl.clamp(x, -1.0, 1.0)", x, x, tl.float32).tolist() == [-1.0, 0.25, 1.0]


@triton.jit
def where_kernel(x_ptr, o_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    diagonal = tl.where(i[:, None] == i[None, :], x[None, :], 0.0).sum(1)
    positive, first = tl.where(x > 0, x, -1), tl.where(i < n, 1, 0)
    scalar, odd = tl.where(n > 3, x, 0.0), tl.where(i % 2, 5, 6)
    store_rows(o_ptr, (positive, first, scalar, diagonal, odd), N)


def test_where_broadcasts_and_promotes():
    x = np.array([1, -2, 3, -4, np.nan, 6, -7, 8], np.float32)
    how = {"tensors": [torch.from_numpy(x)], "shape": (5, 8), "dtype": torch.float32}
    got = result_of(where_kernel, (1,), 5, 8, make=torch.empty, **how)
    i = np.arange(8)
    rows = [np.where(x > 0, x, -1), i < 5, x, x, 6 - i % 2]
    for line, expected in zip(got, rows, strict=True):
        assert same(line, expected.astype(np.float64)).all()


def test_storage_types_are_those_of_the_numerics():
    """bf16 and fp8 live in ml_dtypes arrays; every type has the width that its name says."""
    assert DTYPES["bf16"].numpy == ml_dtypes.bfloat16
    assert DTYPES["f8E4M3FN"].numpy == ml_dtypes.float8_e4m3fn
    for name, dtype in DTYPES.items():
        bits = int(re.match("(?:bf|f|i)([0-9]+)", name)[1])
        assert dtype.bits == bits, name
        assert dtype.itemsize * 8 == max(bits, 8), name


@pytest.mark.parametrize(
    ("low", "high", "signs"),
    [("0.0", "1.0", [False] * 2), ("-1.0", "y", [True] * 2), ("y", "0.0", [True, False])],
)
def test_a_clamp_orders_zeros_by_sign(low, high, signs):
    """As a minimum of a maximum, whose signs of zeros are IEEE 754's; y is -0.0."""
    x, y = torch.tensor([-0.0, 0.0] * 8), torch.full((16,), -0.0)
    got = compute(f"tl.clamp(x, {low}, {high})", x, y, tl.float32)
    assert np.signbit(got).tolist() == signs * 8
