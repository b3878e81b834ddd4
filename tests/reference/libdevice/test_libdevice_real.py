"""libdevice's real functions against mpmath: elementary, special and inverse ones, and norms."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from libdevice_calls import call
from rational import draw, same_bits

from gemmproof.reference.libdevice import bessel_functions as bessel
from gemmproof.reference.libdevice import special_functions as special

mpmath.mp.dps = 60

# By base name: the witness, and the arguments it is asked at.
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
OCML = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "sqrt", "rsqrt", "erf",
        "erfc", "erfcx", "erfinv", "lgamma", "j0", "j1", "y0", "y1"]  # fmt: skip


def _within_half_an_ulp(got, exact, slack=1.001):
    """A float32 next to the exact value: half of its spacing, and what the last double leaves."""
    for y, x in zip(got, exact, strict=True):
        spacing = float(np.spacing(np.abs(y)))
        assert abs(mpmath.mpf(float(y)) - x) <= slack * spacing / 2, (y, x)


@pytest.mark.parametrize("name", REAL)
def test_float32_functions_are_rounded_from_the_real_ones(name):
    witness, (low, high) = REAL[name]
    x = np.random.default_rng(0).uniform(low, high, 60).astype(np.float32)
    exact = [witness(mpmath.mpf(float(v))) for v in x]
    got = call(f"__nv_{name}f", x)
    _within_half_an_ulp(got, exact)
    if name in OCML:
        same_bits(call(f"__ocml_{name}_f32", x), got)


@pytest.mark.parametrize("name", REAL)
def test_float64_functions_hold_twelve_digits(name):
    witness, (low, high) = REAL[name]
    x = np.random.default_rng(1).uniform(low, high, 60)
    got = call(f"__nv_{name}", x)
    # near a zero of an oscillating function only its scale is held
    scale = 0.1 if name in ("j0", "j1", "y0", "y1", "lgamma") else 0
    for y, v in zip(got, x, strict=True):
        exact = witness(mpmath.mpf(float(v)))
        assert abs(mpmath.mpf(float(y)) - exact) <= 1e-12 * max(abs(exact), scale), (v, y)


def test_tails_keep_their_digits_where_the_exponent_is_large():
    """The rounding error of x^2 or x/sqrt 2, times the exponent's slope, would take two digits."""
    x = np.random.default_rng(5).uniform(-25, -5, 60)
    for y, v in zip(call("__nv_erfcx", x), x, strict=True):
        exact = REAL["erfcx"][0](mpmath.mpf(float(v)))
        assert abs(mpmath.mpf(float(y)) - exact) <= 1e-15 * exact
    for y, v in zip(call("__nv_normcdf", x), x, strict=True):
        exact = mpmath.ncdf(mpmath.mpf(float(v)))
        assert abs(mpmath.mpf(float(y)) - exact) <= 1e-15 * exact


@pytest.mark.parametrize(
    ("function", "forward"),
    [("erfcinv", mpmath.erfc), ("normcdfinv", mpmath.ncdf)],
)
def test_inverse_functions_invert(function, forward):
    """forward(got) = y within what an error of 1e-15 in got makes of it."""
    rng = np.random.default_rng(2)
    y = np.concatenate([rng.uniform(0.01, 0.99, 40), 10 ** rng.uniform(-300, -1, 40)])
    x = call(f"__nv_{function}", y)
    for value, root in zip(y, x, strict=True):
        exact = mpmath.mpf(float(root))
        wide = abs(exact) * 1e-15 + mpmath.mpf(10) ** -16
        ends = sorted((forward(exact - wide), forward(exact + wide)))
        assert ends[0] <= value <= ends[1]
    single = call(f"__nv_{function}f", y[:40].astype(np.float32))
    again = call(f"__nv_{function}", y[:40].astype(np.float32).astype(np.float64))
    same_bits(single, again.astype(np.float32))


def test_bessel_functions_of_integer_order():
    x = np.concatenate([np.random.default_rng(3).uniform(0.1, 120, 12), [1.0, 50.0]])
    for n in (0, 1, 2, 5, 40, 90):
        order = np.full(x.shape, n, np.int32)
        for symbol, witness in (("jn", mpmath.besselj), ("yn", mpmath.bessely)):
            got = call(f"__nv_{symbol}", order, x)
            for y, v in zip(got, x, strict=True):
                exact = witness(n, mpmath.mpf(float(v)))
                if abs(exact) < 1e300:
                    scale = max(abs(exact), 0.01 if n < v else mpmath.mpf(10) ** -290)
                    assert abs(mpmath.mpf(float(y)) - exact) <= 1e-12 * scale, (n, v)
    five = np.array([5, 5, -1, 3, 4], np.int32)
    z = np.array([-2.5, 2.5, 1.0, np.inf, 0.0], np.float32)
    odd = call("__nv_jnf", five, z)
    assert odd[0] == -odd[1]
    assert np.isnan(odd[2])
    same_bits(odd[3:], [0.0, 0.0])
    y = call("__nv_ynf", five, z)
    assert np.isnan(y[[0, 2]]).all()
    same_bits(y[3:], [0.0, -np.inf])
    assert call("__nv_jn", np.array([10**6], np.int32), np.array([3.0]))[0] == 0
    assert call("__nv_yn", np.array([10**6], np.int32), np.array([3.0]))[0] == -np.inf


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
    wanted = np.array([*(np.nan if v == "nan" else v for v in SPECIAL[name]), np.nan], np.float32)
    wanted.view(np.uint32)[np.isnan(wanted)] = 0x7FFFFFFF
    same_bits(call(f"__nv_{name}f", x), wanted)
    double = call(f"__nv_{name}", x.astype(np.float64))
    np.testing.assert_array_equal(double, wanted.astype(np.float64))
    assert (double.view(np.uint64)[np.isnan(double)] == 0x7FFFFFFFFFFFFFFF).all()


def test_ends_of_domains():
    assert call("__nv_erfinv", np.array([1.0, -1.0])).tolist() == [np.inf, -np.inf]
    assert np.isnan(call("__nv_erfinv", np.array([1.5]))[0])
    assert call("__nv_erfcinv", np.array([2.0, 1.0])).tolist() == [-np.inf, 0]
    assert call("__nv_normcdfinv", np.array([1.0, 0.5])).tolist() == [np.inf, 0]
    assert np.isnan(call("__nv_tgamma", np.array([-3.0]))[0])
    assert call("__nv_tgammaf", np.array([36.0], np.float32))[0] == np.inf
    assert call("__nv_lgamma", np.array([-3.0]))[0] == np.inf
    assert call("__nv_sinpi", np.array([1e300, -3.0, 0.5])).tolist() == [0, 0, 1]
    assert call("__nv_cospi", np.array([1e300, 0.5, 1.0])).tolist() == [1, 0, -1]
    assert not np.signbit(call("__nv_cospi", np.array([0.5, 1.5, -0.5]))).any()
    assert call("__nv_y1f", np.array([1e-45], np.float32))[0] == -np.inf
    # beyond the split of recurrence and asymptotics both agree
    for f in (bessel.j0, bessel.j1, bessel.y0, bessel.y1):
        two = f(np.array([25.0, np.nextafter(25.0, 26)]))
        assert abs(two[0] - two[1]) < 1e-14
    two = special.erfcx(np.array([2.0, np.nextafter(2.0, 3)]))
    assert abs(two[0] / two[1] - 1) < 1e-15


TWO = {
    "pow": (lambda x, y: abs(x) ** y, True), "atan2": (mpmath.atan2, False),
    "hypot": (lambda x, y: mpmath.sqrt(x * x + y * y), False),
    "rhypot": (lambda x, y: 1 / mpmath.sqrt(x * x + y * y), False),
    "fdim": (lambda x, y: max(x - y, 0), False),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two(name):
    witness, positive = TWO[name]
    x, y = draw(np.float32, 60, 0, spread=4), draw(np.float32, 60, 1, spread=4)
    x = np.abs(x) if positive else x
    y = np.clip(y, -5, 5)
    rows = list(zip(x, y, strict=True))
    exact = [witness(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in rows]
    _within_half_an_ulp(call(f"__nv_{name}f", x, y), exact)
    if name in ("pow", "atan2", "hypot"):
        same_bits(call(f"__ocml_{name}_f32", x, y), call(f"__nv_{name}f", x, y))


def test_norms_and_remainders():
    args = [draw(np.float32, 40, seed, spread=6) for seed in range(4)]
    for count in (3, 4):
        rows = list(zip(*args[:count], strict=True))
        exact = [mpmath.sqrt(sum(mpmath.mpf(float(v)) ** 2 for v in row)) for row in rows]
        _within_half_an_ulp(call(f"__nv_norm{count}df", *args[:count]), exact)
        inverse = [1 / e for e in exact]
        _within_half_an_ulp(call(f"__nv_rnorm{count}df", *args[:count]), inverse)
    large = call("__nv_norm3d", *(np.array([1e300]),) * 3)  # whose squares overflow
    _within_half_an_ulp(large, [mpmath.sqrt(3) * mpmath.mpf(1e300)], slack=2)
    x, y = draw(np.float32, 100, 5, spread=20), draw(np.float32, 100, 6, spread=3)
    for a, b, f, r in zip(
        x, y, call("__nv_fmodf", x, y), call("__nv_remainderf", x, y), strict=True
    ):
        quotient = Fraction(float(a)) / Fraction(float(b))
        assert Fraction(float(f)) == Fraction(float(a)) - math.trunc(quotient) * Fraction(float(b))
        assert Fraction(float(r)) == Fraction(float(a)) - round(quotient) * Fraction(float(b))
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    assert np.isnan(call("__nv_remainderf", one, zero)[0])
    assert np.isnan(call("__nv_fmodf", one, zero)[0])
