"""Float arithmetic, where and its kin, and the words of each function."""

import inspect
import operator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import (
    FLOATS,
    INTEGERS,
    compute,
    name_of,
    pairs,
    rounded,
    same,
    samples,
    tensor,
)

from gemmproof.reference.simulator import run

# numpy warns when it casts a NaN that ml_dtypes made.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16], ids=name_of)
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_narrow_float_arithmetic_rounds_once(dtype, op):
    """Against the exact result rounded once, on random pairs and on values far apart."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**16, (2, 20000)).astype(np.uint16)
    x, y = (b.view(NUMPY[dtype.name]) for b in bits)
    function = getattr(operator, op)
    wide = function(x.astype(np.float64), y.astype(np.float64))
    keep = np.isfinite(x.astype(np.float64)) & np.isfinite(y.astype(np.float64))
    if dtype == tl.bfloat16:  # float64 must hold the exact result
        gap = np.abs(np.log2(np.abs(x.astype(np.float64))) - np.log2(np.abs(y.astype(np.float64))))
        keep &= gap < 40
    x, y, wide = x[keep], y[keep], wide[keep]
    got = compute(function, tensor(x, dtype), tensor(y, dtype), dtype)
    assert same(got, rounded(wide, dtype, saturate=False)).all()


def test_fp32_arithmetic_is_ieee():
    rng = np.random.default_rng(8)
    x, y = rng.standard_normal((2, 5000)).astype(np.float32)
    for function in (operator.add, operator.sub, operator.mul, operator.truediv):
        got = compute(function, torch.from_numpy(x), torch.from_numpy(y), tl.float32)
        assert got.tobytes() == function(x, y).tobytes()
    got = compute(operator.mod, torch.from_numpy(x), torch.from_numpy(y), tl.float32)
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


def accepts(function, word):
    """Whether a call may give `word` as a keyword."""
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_KEYWORD or (p.name == word and p.kind is not p.POSITIONAL_ONLY):
            return True
    return False


def test_every_word_of_a_tl_function_is_a_word_of_ours():
    """Keyword names of each function that the simulator knows, against Triton's signatures."""
    missing, compared = [], 0
    for name, ours in LANGUAGE.items():
        theirs = getattr(tl, name, None)
        if theirs is None or not callable(theirs) or inspect.isclass(theirs):
            continue
        signature = inspect.signature(getattr(theirs, "fn", theirs))
        for p in signature.parameters.values():
            if p.name.startswith("_") or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                continue
            compared += 1
            if not accepts(ours, p.name):
                missing.append(f"{name}({p.name})")
    assert compared > 150
    assert missing == []


def test_storage_types_are_those_of_the_numerics():
    """bf16 and fp8 live in ml_dtypes arrays of the right size."""
    assert NUMPY["bf16"] == ml_dtypes.bfloat16
    for dtype in (*INTEGERS, *FLOATS):
        assert NUMPY[dtype.name].itemsize * 8 == dtype.primitive_bitwidth
