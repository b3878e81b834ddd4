"""The IEEE chain is the definition: one correctly rounded fused multiply-add per k."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from tests.support.rational import round_exactly

from gemmproof.reference.arithmetic import bits, round_to, truncate_tf32, widen
from gemmproof.reference.dot import dot_model
from gemmproof.reference.dot.triton_dot import triton_dot
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import TARGETS


def wide_data(rng, shape, fmt, spread):
    """Values of every kind: random exponents, zeros, subnormals, exact cancellations."""
    e = rng.integers(max(fmt.emin - fmt.p, -spread), min(fmt.emax, spread), shape)
    x = np.ldexp(rng.uniform(1, 2, shape), e) * rng.choice([-1.0, 1.0, 1.0, 0.0], shape)
    return round_to(x, fmt)


def chain(a, b, acc, fmt):
    """acc = RN(acc + a b) in exact rationals, ascending k, for finite data."""
    total = Fraction(float(acc))
    for x, y in zip(a, b, strict=True):
        total += Fraction(float(x)) * Fraction(float(y))
        if total:
            total = Fraction(float(round_exactly(total, fmt.storage)))
    return float(total)


ONTO_FP32 = ("fp16", "bf16", "tf32", "fp32", "fp8e4m3", "fp8e5m2")
OTHERS = (("fp16", "fp16"), ("fp8e5m2", "fp16"), ("fp64", "fp64"))


@pytest.mark.parametrize("spread", [2, 12, 60])
@pytest.mark.parametrize(("name", "acc_name"), [*((x, "fp32") for x in ONTO_FP32), *OTHERS])
def test_chain_rounds_each_step_once(name, acc_name, spread):
    fmt, acc_fmt = FORMATS[name], FORMATS[acc_name]
    rng = np.random.default_rng(spread)
    reach = min(spread, 6) if acc_name == "fp16" else spread
    a, b = wide_data(rng, (6, 9), fmt, reach), wide_data(rng, (9, 7), fmt, reach)
    acc = wide_data(rng, (6, 7), acc_fmt, reach)
    got = dot_model(None, name, acc_name).dot(a, b, acc)
    assert got.dtype == acc_fmt.storage
    if name == "tf32":
        a, b = truncate_tf32(a), truncate_tf32(b)
    for m, n in np.ndindex(6, 7):
        assert float(got[m, n]) == chain(a[m], b[:, n], acc[m, n], acc_fmt), (m, n)


def test_fp32_ties_of_the_fp64_sum_are_broken_by_the_lost_part():
    a = np.array([[1 + 2.0**-23]], np.float32)
    low = np.array([[2.0**-60]], np.float32)
    for sign in (1.0, -1.0):
        # acc + a*b lies 2**-60 off a tie of fp32, which fp64 cannot hold
        row = np.concatenate([low, a], axis=1)
        column = np.array([[sign], [2.0**-24]], np.float32)
        acc = np.array([[1.0]], np.float32)
        got = dot_model(None, "fp32").dot(row, column, acc)
        assert float(got[0, 0]) == chain(row[0], column[:, 0], 1.0, FORMATS["fp32"])
    x = np.array([[1 + 2.0**-12]], np.float32)
    tie = dot_model(None, "fp32").dot(x, x, np.array([[2.0**24]], np.float32))
    assert tie[0, 0] == round_exactly(2**24 + Fraction(1 + 2.0**-12) ** 2, np.float32)


def test_special_values_follow_ieee_and_nan_is_canonical():
    a = np.array([[np.inf, 1], [np.nan, 1], [np.inf, 1], [-np.inf, 0], [0, -0.0]], np.float16)
    b = np.array([[1.0, 0], [1, 1]], np.float16)
    got = dot_model(None, "fp16").dot(a, b)
    nan, inf = 0x7FFFFFFF, 0x7F800000
    expected = [[inf, nan], [nan, nan], [inf, nan], [inf | 1 << 31, nan], [0, 0]]
    assert bits(got).tolist() == expected
    half = dot_model(None, "fp16", "fp16").dot(a, b)
    assert bits(half)[1].tolist() == [0x7FFF, 0x7FFF]
    big = np.full((1, 4), 60000, np.float16)
    assert bits(dot_model(None, "fp16", "fp16").dot(big, big.T)).tolist() == [[0x7C00]]


@pytest.mark.parametrize(
    ("row", "column", "acc", "expected"),
    [
        ([2.0**100, 2.0**-100, 2.0**127], [2.0**-126, 2.0**-49, 0], 0, 2.0**-26),
        ([2.0**64], [2.0**64], -(2.0**127) * (2 - 2.0**-23), 2.0**104),
        ([2.0**-100], [2.0**-50], 2.0**-149, 2.0**-148),  # a tie, which a product of 0 would lose
    ],
)
def test_bf16_products_outside_fp32_are_not_lost(row, column, acc, expected):
    a, b = np.array([row], ml_dtypes.bfloat16), np.array([column], ml_dtypes.bfloat16).T
    assert dot_model(None, "bf16").dot(a, b, np.array([[acc]], np.float32)) == expected


@pytest.mark.parametrize("P", [1, 3])
def test_batches_broadcast_and_chunks_are_invisible(P):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((P, 300, 5)).astype(np.float32)
    b = rng.standard_normal((5, 257)).astype(np.float32)
    acc = rng.standard_normal((3, 1, 257)).astype(np.float32)
    model = dot_model(None, "fp32")
    got = model.dot(a, b, acc)
    assert got.shape == (3, 300, 257)
    for p in range(3):
        single = model.dot(a[p % P], b, np.repeat(acc[p], 300, axis=0))
        assert np.array_equal(bits(got[p]), bits(single))


def test_int8_is_exact_and_wraps():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, (2, 4, 70), np.int8), rng.integers(-128, 128, (70, 5), np.int8)
    acc = np.full((4, 5), 2**31 - 1, np.int32)
    expected = (a.astype(np.int64) @ b.astype(np.int64) + acc).astype(np.int32)
    assert np.array_equal(dot_model(None, "int8").dot(a, b, acc), expected)
    assert widen(dot_model(None, "int8").dot(a, b)).shape == (2, 4, 5)


def test_empty_k_returns_acc():
    acc = np.array([[1.5]], np.float32)
    got = dot_model(None, "fp16").dot(np.ones((1, 0), np.float16), np.ones((0, 1), np.float16), acc)
    assert got.tolist() == [[1.5]]


def test_fp64_survives_the_ends_of_its_range():
    rng = np.random.default_rng(4)
    for low, high in ((-1074, -900), (-540, -500), (480, 511)):
        a, b = (
            np.ldexp(rng.standard_normal(s), rng.integers(low, high, s)) for s in ((3, 5), (5, 3))
        )
        acc = np.ldexp(rng.standard_normal((3, 3)), 2 * low if low > 0 else -1060)
        got = dot_model("sm_80", "fp64").dot(a, b, acc)
        for m, n in np.ndindex(3, 3):
            assert got[m, n] == chain(a[m], b[:, n], acc[m, n], FORMATS["fp64"])
    special = np.array([[np.inf, 1e308]])
    got = dot_model(None, "fp64").dot(special, np.array([[1.0, 0.0, 0], [0, 10, -10]]))
    assert np.isinf(got[0, 0])
    assert np.isnan(got[0, 1:]).all()
    assert dot_model(None, "fp64").dot(np.array([[-1e308]]), np.array([[10.0]])) == -np.inf


def test_a_negative_zero_stays_where_the_chain_keeps_it() -> None:
    """-0 + (-0) is -0 in IEEE, whatever shortcut takes the products of a single matrix."""
    a = np.array([[-1.0, 1.0]], np.float16)
    b = np.array([[0.0], [-0.0]], np.float16)
    acc = np.array([[-0.0]], np.float32)
    assert np.signbit(dot_model(None, "fp16").dot(a, b, acc))[0, 0]
    assert not np.signbit(dot_model(None, "fp16").dot(a, b))[0, 0]


# -- the unit that Triton picks for fp64, and its bits ---------------------------------------------
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}


def test_doubles_have_the_bits_of_a_chain_in_either_unit():
    by_unit = {target: triton_dot(target, "fp64", **TILE).instruction for target in TARGETS}
    cores = [target for target, instruction in by_unit.items() if instruction == "mma"]
    assert cores == ["sm_80", "sm_90", "sm_100"]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 64)), rng.standard_normal((64, 3))
    alike = [triton_dot(target, "fp64", **TILE).dot(a, b) for target in ("sm_80", "sm_86")]
    assert np.array_equal(*alike)
