"""Each rule of a spec's bound on data where that rule alone decides, in exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from tests.reference.spec.spec_ways import fp16, fp32, run

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.dot import dot_model
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.spec import Rules, erf, sigmoid

F = np.float32
U = 2.0**-24


def swallowed(K):
    """A row whose K - 1 later products are ties that every sum to nearest even drops."""
    a, b = np.full((1, K), 2.0**-12), np.full((K, 1), 2.0**-12)
    a[0, 0] = b[0, 0] = 1
    return a.astype(np.float16), b.astype(np.float16)


@pytest.mark.parametrize("K", [2, 16, 257, 4096])
def test_a_chain_may_lose_all_that_its_bound_says(K):
    a, b = swallowed(K)
    (got,) = dot_model(None, "fp16").dot(a, b)[0]
    for target in (None, *TARGETS):  # a GEMV may do without the tensor cores
        c = run(lambda a, b: a @ b, Rules(target), a=(a, "fp16"), b=(b, "fp16"))
        off = abs(Fraction(float(got)) - Fraction(float(c.value[0, 0])))
        assert off == (K - 1) * Fraction(U)
        assert off <= Fraction(float(c.bound[0, 0]))
        assert target or off / Fraction(float(c.bound[0, 0])) > (K - 1) / K * 0.98


@pytest.mark.parametrize("K", [2, 16, 257, 4096])
def test_a_sum_may_lose_all_that_its_bound_says_and_what_its_addends_are_off(K):
    x = np.full((K, 1), U, F)
    x[0] = 1
    got = F(1)
    for term in x[1:, 0]:
        got = got + term
    c = run(lambda x: x.sum(0), x=(x, "fp32"))
    off = float(c.value[0]) - float(got)
    assert off == (K - 1) * U
    assert 0.98 < off / c.bound[0] <= 1
    # products that round down by nearly u each, then added exactly
    z = F(1 + 2.0**-12)
    third, many = np.full((K, 1), z, F), np.full((K, 1), F(1 + 2.0**-12 + 2.0**-20), F)
    each = run(lambda x, y: x * y, x=(third, "fp32"), y=(many, "fp32"))
    all_ = run(lambda x, y: (x * y).sum(0), x=(third, "fp32"), y=(many, "fp32"))
    true = sum((Fraction(float(z)) * Fraction(float(many[0, 0])) for _ in range(K)), Fraction(0))
    computed = K * Fraction(float(z * many[0, 0]))
    assert abs(computed - true) <= Fraction(float(all_.bound[0]))
    assert all_.error[0] >= each.error.sum() * (1 - 2.0**-40)
    assert all_.bound[0] < 1.01 * K * U * float(all_.size[0])


def test_partial_sums_may_be_one_chain():
    """Four dots of 64, added: computed as one dot of 256 whose every sum drops a tie."""
    a, b = swallowed(256)
    parts = run(lambda a, b: (a @ b).sum(0), a=(a.reshape(4, 1, 64), "fp16"),
                b=(b.reshape(4, 64, 1), "fp16"))  # fmt: skip
    (got,) = dot_model(None, "fp16").dot(a, b)[0]
    assert float(parts.value[0, 0]) - float(got) == 255 * U
    assert 255 * U <= parts.bound[0, 0] < 1.05 * 260 * U


def test_what_is_added_may_have_started_the_accumulator():
    a, b = swallowed(256)
    a[0, 0] = 0
    bias = np.array([[1]], F)
    (got,) = dot_model(None, "fp16").dot(a, b, bias)[0]
    given = {"a": (a, "fp16"), "b": (b, "fp16"), "bias": (bias, "fp32")}
    for spec in (lambda a, b, bias: a @ b + bias, lambda a, b, bias: bias + a @ b):
        c = run(spec, **given)
        assert float(c.value[0, 0]) - float(got) == 255 * U
        assert 255 * U <= c.bound[0, 0] < 1.05 * 257 * U


def test_a_zero_is_added_exactly():
    x, zero = fp32(1.1, 0.3), fp32(0, 0)
    assert run(lambda x, z: x + z + z, x=x, z=zero).error.max() < 2.0**-50
    a, b = swallowed(64)
    a[0, 3:] = 0
    assert run(lambda a, b: a @ b, a=(a, "fp16"), b=(b, "fp16")).bound[0, 0] < 3.1 * U
    ids = np.array([2, 0], np.int32), "int32"
    few, many = (
        run(lambda x, ids, n=n: sum(np.where(ids == e, x * x, 0) for e in range(n)), x=x, ids=ids)
        for n in (3, 30)
    )
    assert many.bound.max() < few.bound.max() * (1 + 2.0**-20)  # but for float64's share


def test_a_power_of_two_scales_exactly():
    x = fp32(0.3, 1.7)
    assert run(lambda x: 0.5 * (x * 4) / 8, x=x).bound.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_what_underflows_is_not_exact(name):
    """1.5 eta has one bit too few below it, however few bits it has."""
    eta = FORMATS[name].eta
    x = fp32(1.5 * eta, eta, 2.5 * eta)
    c = run(lambda x: x.may_round(name), x=x)
    assert c.exact.tolist() == [False, True, False]
    assert (np.abs(widen(round_to(x[0], name)) - c.value) <= c.bound).all()
    assert (c.bound[[0, 2]] >= eta / 2).all()


def test_products_below_the_intermediate_format_are_not_exact():
    x = fp32(2.0**-12)
    for between, exact in (("fp16", False), ("fp32", True)):
        c = run(lambda x: x * (x * 2.0), Rules(None, "fp32", between), x=(x[0] * F(0.5), "fp32"))
        assert c.exact.tolist() == [exact]


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_what_may_overflow_on_the_way_is_unknown(name):
    top = {"fp16": 65504.0, "bf16": 3.3895313892515355e38}[name]
    x = fp32(top, np.nextafter(F(top), F(np.inf)), 1)
    assert np.isfinite(run(lambda x: x.may_round(name), x=x).bound).tolist() == [True, False, True]


def test_a_stored_value_is_rounded_not_its_addends():
    """A sum that cancels is stored with an error of its size, and a bias is not stored with it."""
    a, b = fp16([[100.0, -100.0, 1 / 3]]), fp16([[100.0], [100.0], [1.0]])
    c = run(lambda a, b, c: (a @ b).may_round("bf16") + c, a=a, b=b, c=fp32(1000.0))
    assert 2.0**-8 / 3 * 0.9 < c.bound[0, 0] < 2.0**-8 / 3 * 1.5 + 5 * 21001 * U


def test_a_quotient_may_be_off_by_two_ulp():
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(1, 2, 20000).astype(F) for _ in "xy")
    c = run(lambda x, y: x / y, x=(x, "fp32"), y=(y, "fp32"))
    got = x / y
    far = widen(got) + 2 * np.where(widen(got) > c.value, 1, -1) * np.spacing(got).astype(float)
    # 2 ulp from the correctly rounded quotient's side of the true one
    far = c.value + np.clip(far - c.value, -2 * np.spacing(got), 2 * np.spacing(got)).astype(float)
    ratio = np.abs(far - c.value) / c.bound
    assert 0.95 < ratio.max() <= 1
    power = run(lambda x: x / 0.125, x=(x, "fp32"))
    assert power.exact.all()
    assert np.isinf(run(lambda x, y: x / y, x=fp32(1, 1), y=fp32(0, 2.0**-130)).bound).all()


@pytest.mark.parametrize("x", [0.01, 1.1, 8.3, 20.7, 60.1])
def test_an_exponential_moves_with_its_argument(x):
    """x is off by u size after a sum that cancels: so is e**x, relatively."""
    big = F(4096)
    c = run(lambda x, y: np.exp((x + y) - y), x=fp32(x), y=fp32(big))
    argument = (F(x) + big) - big
    off = abs(float(np.exp(float(argument))) - float(c.value[0]))
    assert off <= c.bound[0]
    direct = run(lambda x: np.exp(x), x=fp32(x))
    assert c.bound[0] - direct.bound[0] >= 0.9 * 4096 * U * float(c.value[0])


@pytest.mark.parametrize("x", [1e-6, 1e-4, 1e-2])
def test_a_hyperbolic_tangent_by_exponentials_is_off_absolutely(x):
    """2 / (1 + e**-2x) - 1 with e off by its 2 ulp: near 0 that is far more than 4 u of tanh."""
    e = np.exp(F(-2 * x)) * (1 + 4 * U)
    got = F(2) / F(1 + F(e)) - F(1)
    c = run(lambda x: np.tanh(x), x=fp32(x))
    off = abs(float(got) - float(c.value[0]))
    assert 4 * U * x < off <= c.bound[0] < 20 * U


@pytest.mark.parametrize("function", [np.tanh, erf, sigmoid])
def test_a_flat_function_forgets_the_error_of_its_argument(function):
    c = run(lambda x, y: function((x + y) - y), x=fp32(9.0), y=fp32(2.0**13))
    assert c.bound[0] < 50 * U


def test_a_root_of_what_may_be_negative_is_unknown():
    c = run(lambda x, y: np.sqrt(x * y - 1), x=fp32(1 / 3, 2), y=fp32(3, 2))
    assert np.isinf(c.bound).tolist() == [True, False]


def test_a_contraction_fused_with_a_sum_is_within_the_bound():
    rng = np.random.default_rng(6)
    x, y, z = (rng.uniform(-2, 2, 5000).astype(F) for _ in "xyz")
    c = run(lambda x, y, z: x * y + z, x=(x, "fp32"), y=(y, "fp32"), z=(z, "fp32"))
    # the product is exact in float64, whose sum of two is rounded to odd before fp32
    fused = round_to(widen(x) * widen(y) + widen(z), "fp32")
    for got in (fused, x * y + z):
        assert (np.abs(widen(got) - c.value) <= c.bound).all()


@pytest.mark.parametrize("slices", [1, 2, 8])
def test_integer_sums_may_be_scaled_and_added_in_slices(slices):
    rng = np.random.default_rng(7)
    a, b = rng.integers(100, 128, (8, 4096), np.int8), rng.integers(100, 128, (4096, 8), np.int8)
    s = rng.uniform(0.1, 1, 8).astype(F)
    c = run(lambda a, b, s: (a @ b) * s, a=(a, "int8"), b=(b, "int8"), s=(s, "fp32"))
    whole = a.reshape(8, slices, -1).swapaxes(0, 1).astype(np.int64) @ b.reshape(slices, -1, 8)
    got = F(0)
    for part in whole:
        got = got + part.astype(np.int32).astype(F) * s
    assert (np.abs(widen(got) - c.value) <= c.bound).all()
    assert not c.exact.any()


def test_products_that_underflow_may_lose_half_of_the_least_number_each():
    x = np.full((1, 64), 2.0**-75 * (1 - 2.0**-20), F)
    given = {"x": (x, "fp32"), "y": (x.T.copy(), "fp32")}
    product = run(lambda x, y: x * y.T, **given)
    assert (np.abs(widen(x * x) - product.value) > 2.0**-151).all()
    assert (np.abs(widen(x * x) - product.value) <= product.bound).all()
    (got,) = dot_model(None, "fp32").dot(x, given["y"][0])[0]
    c = run(lambda x, y: x @ y, **given)
    assert got == 0
    assert 32 * 2.0**-150 < c.value[0, 0] <= c.bound[0, 0] < 2 * 64 * 2.0**-149
