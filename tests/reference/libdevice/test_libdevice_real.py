"""libdevice's real functions against mpmath: elementary, special and inverse ones, and norms."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.support.lanes import first_of_each
from tests.support.rational import draw, same_bits

from gemmproof.reference.libdevice import function_of

mpmath.mp.dps = 60

# By base name: the witness, and the ends of the arguments.
WIDE = (-40.0, 40.0)
UNIT = (-1.0, 1.0)
ABOVE = (1e-6, 60.0)
REAL = {
    "exp": (mpmath.exp, WIDE), "exp2": (lambda x: mpmath.mpf(2) ** x, WIDE),
    "exp10": (lambda x: mpmath.mpf(10) ** x, (-30.0, 30.0)), "expm1": (mpmath.expm1, UNIT),
    "log": (mpmath.log, ABOVE), "log2": (lambda x: mpmath.log(x, 2), ABOVE),
    "log10": (mpmath.log10, ABOVE), "log1p": (mpmath.log1p, (-0.9, 5.0)),
    "sin": (mpmath.sin, WIDE), "cos": (mpmath.cos, WIDE), "tan": (mpmath.tan, WIDE),
    "sinpi": (mpmath.sinpi, WIDE), "cospi": (mpmath.cospi, WIDE),
    "asin": (mpmath.asin, UNIT), "acos": (mpmath.acos, UNIT), "atan": (mpmath.atan, WIDE),
    "sinh": (mpmath.sinh, WIDE), "cosh": (mpmath.cosh, WIDE), "tanh": (mpmath.tanh, WIDE),
    "asinh": (mpmath.asinh, WIDE), "acosh": (mpmath.acosh, (1.0, 60.0)),
    "atanh": (mpmath.atanh, UNIT), "sqrt": (mpmath.sqrt, ABOVE),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), ABOVE), "cbrt": (mpmath.cbrt, ABOVE),
    "rcbrt": (lambda x: 1 / mpmath.cbrt(x), ABOVE),
    "erf": (mpmath.erf, (-6.0, 6.0)), "erfc": (mpmath.erfc, (-6.0, 9.0)),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), (-6.0, 30.0)),
    "erfinv": (mpmath.erfinv, UNIT),
    "normcdf": (mpmath.ncdf, (-12.0, 8.0)),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), (-9.0, 60.0)),
    "tgamma": (mpmath.gamma, (-9.0, 33.0)),
    "j0": (lambda x: mpmath.besselj(0, x), WIDE), "j1": (lambda x: mpmath.besselj(1, x), WIDE),
    "y0": (lambda x: mpmath.bessely(0, x), ABOVE), "y1": (lambda x: mpmath.bessely(1, x), ABOVE),
    "cyl_bessel_i0": (lambda x: mpmath.besseli(0, x), WIDE),
    "cyl_bessel_i1": (lambda x: mpmath.besseli(1, x), WIDE),
}  # fmt: skip


def _exact(witness, *args):
    """The witness of each row of args, to 60 digits."""
    return [witness(*(mpmath.mpf(float(v)) for v in row)) for row in zip(*args, strict=True)]


def _check_digits(got, exact, relative, scale=0):
    for y, x in zip(got, exact, strict=True):
        assert abs(mpmath.mpf(float(y)) - x) <= relative * max(abs(x), scale), (y, x)


def _check_half_an_ulp(got, exact, slack=1.001):
    """Numbers next to the exact values: half of their spacing, and what the last double leaves."""
    for y, x in zip(got, exact, strict=True):
        spacing = float(np.spacing(np.abs(y)))
        assert abs(mpmath.mpf(float(y)) - x) <= slack * spacing / 2, (y, x)


@pytest.mark.parametrize("name", REAL)
def test_float32_functions_are_rounded_from_the_real_ones(name):
    witness, ends = REAL[name]
    x = np.random.default_rng(0).uniform(*ends, 60).astype(np.float32)
    got = function_of(f"__nv_{name}f")(x)
    _check_half_an_ulp(got, _exact(witness, x))
    same_bits(function_of(f"__ocml_{name}_f32")(x), got)


@pytest.mark.parametrize("name", REAL)
def test_float64_functions_hold_twelve_digits(name):
    witness, ends = REAL[name]
    x = np.random.default_rng(1).uniform(*ends, 60)
    # near a zero of an oscillating function only its scale is held
    scale = 0.1 if name in ("j0", "j1", "y0", "y1", "lgamma") else 0
    _check_digits(function_of(f"__nv_{name}")(x), _exact(witness, x), 1e-12, scale)


@pytest.mark.parametrize("name", ["erfcx", "normcdf"])
def test_tails_keep_their_digits_where_the_exponent_is_large(name):
    """The rounding error of x^2 or x/sqrt 2, times the exponent's slope, would take two digits."""
    x = np.random.default_rng(5).uniform(-25, -5, 60)
    _check_digits(function_of(f"__nv_{name}")(x), _exact(REAL[name][0], x), 1e-15)


@pytest.mark.parametrize(
    ("function", "forward"), [("erfcinv", mpmath.erfc), ("normcdfinv", mpmath.ncdf)]
)
def test_inverse_functions_invert(function, forward):
    """forward(got) = y within what an error of 1e-15 in got makes of it."""
    rng = np.random.default_rng(2)
    y = np.concatenate([rng.uniform(0.01, 0.99, 40), 10 ** rng.uniform(-300, -1, 40)])
    for value, root in zip(y, _exact(lambda x: x, function_of(f"__nv_{function}")(y)), strict=True):
        wide = abs(root) * 1e-15 + mpmath.mpf(10) ** -16
        low, high = sorted((forward(root - wide), forward(root + wide)))
        assert low <= value <= high
    single = y[:40].astype(np.float32)
    again = function_of(f"__nv_{function}")(single.astype(np.float64)).astype(np.float32)
    same_bits(function_of(f"__nv_{function}f")(single), again)


@pytest.mark.parametrize("n", first_of_each([0, 1, 2, 5, 40, 90]))
@pytest.mark.parametrize(("symbol", "witness"), [("jn", mpmath.besselj), ("yn", mpmath.bessely)])
def test_bessel_functions_of_integer_order(symbol, witness, n):
    x = np.concatenate([np.random.default_rng(3).uniform(0.1, 120, 12), [1.0, 50.0]])
    got = function_of(f"__nv_{symbol}")(np.full(x.shape, n, np.int32), x)
    exact = _exact(lambda v: witness(n, v), x)
    for y, e, v in zip(got, exact, x, strict=True):
        if abs(e) < 1e300:
            _check_digits([y], [e], 1e-12, 0.01 if n < v else mpmath.mpf(10) ** -290)


def test_bessel_functions_at_the_ends():
    orders = np.array([5, 5, -1, 3, 4], np.int32)
    z = np.array([-2.5, 2.5, 1.0, np.inf, 0.0], np.float32)
    j, y = function_of("__nv_jnf")(orders, z), function_of("__nv_ynf")(orders, z)
    assert j[0] == -j[1]
    assert np.isnan([j[2], y[0], y[2]]).all()
    same_bits(j[3:], [0.0, 0.0])
    same_bits(y[3:], [0.0, -np.inf])
    assert function_of("__nv_jn")(np.array([10**6], np.int32), np.array([3.0]))[0] == 0
    assert function_of("__nv_yn")(np.array([10**6], np.int32), np.array([3.0]))[0] == -np.inf


SPECIAL = {
    "j0": [0, 0, 1, 1], "j1": [0, -0.0, 0, -0.0], "y0": [0, "nan", -np.inf, -np.inf],
    "y1": [0, "nan", -np.inf, -np.inf], "cyl_bessel_i0": [np.inf, np.inf, 1, 1],
    "cyl_bessel_i1": [np.inf, -np.inf, 0, -0.0], "erfcx": [0, np.inf, 1, 1],
    "erfinv": ["nan", "nan", 0, -0.0], "erfcinv": ["nan", "nan", np.inf, np.inf],
    "normcdfinv": ["nan", "nan", -np.inf, -np.inf], "normcdf": [1, 0, 0.5, 0.5],
    "tgamma": [np.inf, "nan", np.inf, -np.inf], "lgamma": [np.inf] * 4,
    "sinpi": ["nan", "nan", 0, -0.0], "cospi": ["nan", "nan", 1, 1], "exp": [np.inf, 0, 1, 1],
    "log": [np.inf, "nan", -np.inf, -np.inf], "rsqrt": [0, "nan", np.inf, -np.inf],
    "logb": [np.inf, np.inf, -np.inf, -np.inf], "round": [np.inf, -np.inf, 0, -0.0],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name):
    x = np.array([np.inf, -np.inf, 0.0, -0.0, np.nan], np.float32)
    expected = np.array([*(np.nan if v == "nan" else v for v in SPECIAL[name]), np.nan], np.float32)
    expected.view(np.uint32)[np.isnan(expected)] = 0x7FFFFFFF
    same_bits(function_of(f"__nv_{name}f")(x), expected)
    double = function_of(f"__nv_{name}")(x.astype(np.float64))
    np.testing.assert_array_equal(double, expected.astype(np.float64))
    assert (double.view(np.uint64)[np.isnan(double)] == 0x7FFFFFFFFFFFFFFF).all()


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [("erfinv", [1.0, -1.0, 1.5], [np.inf, -np.inf, np.nan]),
     ("erfcinv", [2.0, 1.0], [-np.inf, 0]), ("normcdfinv", [1.0, 0.5], [np.inf, 0]),
     ("tgamma", [-3.0], [np.nan]), ("lgamma", [-3.0], [np.inf]),
     ("sinpi", [1e300, -3.0, 0.5], [0, 0, 1]), ("cospi", [1e300, 0.5, 1.0], [1, 0, -1])],
)  # fmt: skip
def test_ends_of_domains(name, x, expected):
    np.testing.assert_array_equal(function_of(f"__nv_{name}")(np.array(x)), expected)


def test_ends_of_domains_in_float32_and_the_sign_of_zeros():
    assert function_of("__nv_tgammaf")(np.array([36.0], np.float32))[0] == np.inf
    assert function_of("__nv_y1f")(np.array([1e-45], np.float32))[0] == -np.inf
    assert not np.signbit(function_of("__nv_cospi")(np.array([0.5, 1.5, -0.5]))).any()


@pytest.mark.parametrize(
    ("name", "split", "error"),
    [*((name, 25.0, 1e-14) for name in ("j0", "j1", "y0", "y1")), ("erfcx", 2.0, 1e-15)],
)
def test_both_methods_agree_where_one_takes_over(name, split, error):
    below, above = function_of(f"__nv_{name}")(np.array([split, np.nextafter(split, 26)]))
    assert abs(below - above) < error * (abs(below) if name == "erfcx" else 1)


TWO = {
    "pow": lambda x, y: abs(x) ** y, "atan2": mpmath.atan2,
    "hypot": lambda x, y: mpmath.sqrt(x * x + y * y),
    "rhypot": lambda x, y: 1 / mpmath.sqrt(x * x + y * y),
    "fdim": lambda x, y: max(x - y, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two(name):
    x, y = draw(np.float32, 60, 0, spread=4), draw(np.float32, 60, 1, spread=4)
    x, y = np.abs(x) if name == "pow" else x, np.clip(y, -5, 5)
    got = function_of(f"__nv_{name}f")(x, y)
    _check_half_an_ulp(got, _exact(TWO[name], x, y))
    same_bits(function_of(f"__ocml_{name}_f32")(x, y), got)


@pytest.mark.parametrize("count", [3, 4])
def test_norms(count):
    args = [draw(np.float32, 40, seed, spread=6) for seed in range(count)]
    exact = _exact(lambda *row: mpmath.sqrt(sum(v**2 for v in row)), *args)
    _check_half_an_ulp(function_of(f"__nv_norm{count}df")(*args), exact)
    _check_half_an_ulp(function_of(f"__nv_rnorm{count}df")(*args), [1 / e for e in exact])
    large = function_of(f"__nv_norm{count}d")(
        *(np.array([1e300]),) * count
    )  # whose squares overflow
    _check_half_an_ulp(large, [mpmath.sqrt(count) * mpmath.mpf(1e300)], slack=2)


@pytest.mark.parametrize(("name", "whole"), [("fmod", math.trunc), ("remainder", round)])
def test_remainders(name, whole):
    x, y = draw(np.float32, 100, 5, spread=20), draw(np.float32, 100, 6, spread=3)
    for row in zip(x, y, function_of(f"__nv_{name}f")(x, y), strict=True):
        a, b, rest = (Fraction(float(v)) for v in row)
        assert rest == a - whole(a / b) * b
    assert np.isnan(function_of(f"__nv_{name}f")(x[:1], np.zeros_like(x[:1]))[0])
