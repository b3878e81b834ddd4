"""The exact product is exact within its own error, and outputs stay within the bound."""

from fractions import Fraction

import numpy as np
import pytest

from gemmproof.reference.bound import gemm_bound
from gemmproof.reference.dot import dot_model
from gemmproof.reference.exact import exact_product, special_values
from gemmproof.reference.formats import FORMATS, round_to


def rationals(x):
    return np.vectorize(lambda v: Fraction(float(v)), otypes=[object])(x)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp64", "fp8e4m3"])
@pytest.mark.parametrize("spread", [0, 3, 14])
def test_exact_product_knows_its_error(name, spread):
    rng = np.random.default_rng(spread)
    a, b = (
        round_to(
            np.ldexp(rng.standard_normal(s), rng.integers(-spread, spread + 1, s)),
            name,
            saturate=True,
        )
        for s in ((5, 40), (40, 6))
    )
    a[:, -1], b[-1] = -a[:, 0], b[0]
    c, e = exact_product(a, b)
    true = rationals(a) @ rationals(b)
    assert (np.abs(rationals(c) - true) <= rationals(e)).all()
    assert (e <= 40 * 2.0**-52 * (np.abs(a.astype("f8")) @ np.abs(b.astype("f8")))).all()


def test_small_integers_have_no_error():
    rng = np.random.default_rng(0)
    a = rng.integers(-8, 9, (4, 50)).astype(np.float16)
    c, e = exact_product(a, a.T)
    assert np.array_equal(c, a.astype(np.int64) @ a.T.astype(np.int64))
    assert not e.any()


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64"])
def test_integer_products_are_exact(name):
    info = np.iinfo(name)
    a = np.array([[info.max, info.min], [info.max, info.max]], name)
    c, e = exact_product(a, a)
    assert c.tolist() == (a.astype(object) @ a.astype(object)).tolist()
    assert not e.any()


def test_special_values_are_classified_in_any_order():
    a = np.array([[np.inf, 1.0], [np.inf, -np.inf], [np.nan, 0], [0, 0], [1, -np.inf]])
    b = np.array([[1.0, 0.0, -1.0], [1.0, 1.0, 2.0]])
    got = special_values(a, b)
    nan, inf = np.nan, np.inf
    expected = [[inf, nan, -inf], [nan, nan, -inf], [nan] * 3, [0.0] * 3, [-inf] * 3]
    assert np.array_equal(got, expected, equal_nan=True)
    assert special_values(b, b.T) is None


@pytest.mark.parametrize("out_name", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp8e5m2"])
def test_ieee_chain_stays_within_its_bound(name, out_name):
    rng = np.random.default_rng(5)
    model = dot_model(None, name)
    for spread in (0, 4):
        a, b = (
            round_to(np.ldexp(rng.uniform(-1, 2, s), rng.integers(-spread, spread + 1, s)), name)
            for s in ((16, 200), (200, 16))
        )
        c, e = exact_product(a, b)
        out = round_to(model.dot(a, b), FORMATS[out_name]).astype(np.float64)
        bound = gemm_bound(a, b, model, out_name)
        assert (np.abs(out - c) + e <= bound).all()
        assert np.isfinite(bound).all()


def test_bound_admits_split_k_and_rejects_a_half_accumulator():
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((32, 512), (512, 32)))
    model = dot_model(None, "fp16")
    bound, (exact, _) = gemm_bound(a, b, model, "fp32"), exact_product(a, b)
    parts = [model.dot(a[:, k : k + 128], b[k : k + 128]) for k in range(0, 512, 128)]
    assert (np.abs(sum(parts).astype(np.float64) - exact) <= bound).all()
    half = dot_model(None, "fp16", "fp16").dot(a, b).astype(np.float64)
    assert (np.abs(half - exact) > bound).any()


def test_bound_counts_c_and_overflow():
    one = np.ones((1, 1), np.float16)
    bound = gemm_bound(one, one, dot_model(None, "fp16"), "fp16", c=np.full((1, 1), 7e4, "f4"))
    assert np.isinf(bound).all()
    integers = np.ones((2, 2), np.int8)
    assert not gemm_bound(integers, integers, dot_model(None, "int8"), "int32").any()
