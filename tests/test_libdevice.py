"""libdevice's functions against Triton's own tables, mpmath, rationals and Python's integers."""

import ast
import importlib.util
import math
import struct
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from rational import drawn, rounded

from gemmproof.reference.libdevice import REFUSED, function_of
from gemmproof.reference.libdevice import bessel_functions as bessel
from gemmproof.reference.libdevice import special_functions as special

DTYPES = {
    "int32": np.dtype("i4"), "int64": np.dtype("i8"), "uint32": np.dtype("i4"),
    "uint64": np.dtype("i8"), "fp32": np.dtype("f4"), "fp64": np.dtype("f8"),
}  # fmt: skip


def tables():
    """(symbol, argument types, result type) of every entry in Triton's libdevice modules."""
    found = importlib.util.find_spec("triton")
    root = Path(found.submodule_search_locations[0]) / "language/extra"
    rows = []
    for vendor in ("cuda", "hip"):
        tree = ast.parse((root / vendor / "libdevice.py").read_text())
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                symbol, result = value.elts
                types = tuple(t.args[0].value for t in key.elts)
                rows.append((symbol.value, types, result.args[0].value))
    return rows


ROWS = tables()


def same_bits(got, wanted):
    """Bitwise equality."""
    wanted = np.asarray(wanted, got.dtype)
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), wanted.view(f"u{got.itemsize}"))


def call(symbol, *args):
    """The function of a symbol, which must be known."""
    function = function_of(symbol)
    assert function is not None, symbol
    return function(*args)


def test_the_tables_were_read():
    symbols = {symbol for symbol, _, _ in ROWS}
    assert {"__nv_expf", "__nv_umulhi", "__ocml_exp_f32", "__ockl_clz_u32"} <= symbols
    assert len(symbols) > 400


@pytest.mark.parametrize(("symbol", "types", "result"), ROWS, ids=lambda v: str(v))
def test_every_symbol_has_a_function_of_its_types_or_a_reason(symbol, types, result):
    if symbol in REFUSED:
        assert function_of(symbol) is None
        assert REFUSED[symbol]
        return
    args = [np.array([3, 1, 2, 0, -5]).astype(DTYPES[t]) for t in types]
    before = [a.copy() for a in args]
    y = call(symbol, *args)
    assert y.dtype == DTYPES[result]
    assert y.shape == (5,)
    for a, b in zip(args, before, strict=True):
        same_bits(a, b)
    for count in (0, 1):
        assert len(call(symbol, *(a[:count] for a in args))) == count


@pytest.mark.parametrize(("symbol", "types", "result"), ROWS, ids=lambda v: str(v))
def test_a_block_keeps_its_shape_and_a_row_meets_a_block(symbol, types, result):
    if symbol in REFUSED:
        return
    numbers = np.array([[3, 1, 2], [0, -5, 7]])
    first, *rest = (DTYPES[t] for t in types)
    args = [numbers.astype(first), *(numbers[:1].astype(dtype) for dtype in rest)]
    y = call(symbol, *args)
    assert y.shape == (2, 3)
    flat = (np.broadcast_to(a, (2, 3)).reshape(-1) for a in args)
    same_bits(y.reshape(-1), call(symbol, *flat))


def test_the_unknown_has_no_function():
    assert function_of("__nv_frobnicate") is None
    assert all(symbol in {row[0] for row in ROWS} for symbol in REFUSED)


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
    x, y = drawn(np.float32, 60, 0, spread=4), drawn(np.float32, 60, 1, spread=4)
    x = np.abs(x) if positive else x
    y = np.clip(y, -5, 5)
    rows = list(zip(x, y, strict=True))
    exact = [witness(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in rows]
    _within_half_an_ulp(call(f"__nv_{name}f", x, y), exact)
    if name in ("pow", "atan2", "hypot"):
        same_bits(call(f"__ocml_{name}_f32", x, y), call(f"__nv_{name}f", x, y))


def test_norms_and_remainders():
    args = [drawn(np.float32, 40, seed, spread=6) for seed in range(4)]
    for count in (3, 4):
        rows = list(zip(*args[:count], strict=True))
        exact = [mpmath.sqrt(sum(mpmath.mpf(float(v)) ** 2 for v in row)) for row in rows]
        _within_half_an_ulp(call(f"__nv_norm{count}df", *args[:count]), exact)
        inverse = [1 / e for e in exact]
        _within_half_an_ulp(call(f"__nv_rnorm{count}df", *args[:count]), inverse)
    large = call("__nv_norm3d", *(np.array([1e300]),) * 3)  # whose squares overflow
    _within_half_an_ulp(large, [mpmath.sqrt(3) * mpmath.mpf(1e300)], slack=2)
    x, y = drawn(np.float32, 100, 5, spread=20), drawn(np.float32, 100, 6, spread=3)
    for a, b, f, r in zip(
        x, y, call("__nv_fmodf", x, y), call("__nv_remainderf", x, y), strict=True
    ):
        quotient = Fraction(float(a)) / Fraction(float(b))
        assert Fraction(float(f)) == Fraction(float(a)) - math.trunc(quotient) * Fraction(float(b))
        assert Fraction(float(r)) == Fraction(float(a)) - round(quotient) * Fraction(float(b))
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    assert np.isnan(call("__nv_remainderf", one, zero)[0])
    assert np.isnan(call("__nv_fmodf", one, zero)[0])


def test_powers_of_two_and_integers():
    x = drawn(np.float32, 50, 0, spread=3)
    n = np.arange(-160, 140, 6, dtype=np.int32)
    exact = [Fraction(float(v)) * Fraction(2) ** int(k) for v, k in zip(x, n, strict=True)]
    wanted = np.array([rounded(e, np.float32) for e in exact])
    same_bits(call("__nv_ldexpf", x, n), wanted)
    same_bits(call("__nv_scalbnf", x, n), wanted)
    same_bits(call("__ocml_ldexp_f32", x, n), wanted)
    small = (n % 9 - 4).astype(np.int32)
    exact = [
        rounded(Fraction(float(v)) ** int(k), np.float32) for v, k in zip(x, small, strict=True)
    ]
    same_bits(call("__nv_powif", x, small), np.array(exact))
    same_bits(call("__ocml_pown_f32", x, small), np.array(exact))
    y = np.array([1, 1.5, 2, -0.75, 2.0**-149, 0, np.nan, np.inf], np.float32)
    low, high = -(2**31), 2**31 - 1
    assert call("__nv_ilogbf", y).tolist() == [0, 0, 1, -1, -149, low, low, high]
    assert call("__nv_logbf", y)[:6].tolist() == [0, 0, 1, -1, -149, -np.inf]


@pytest.mark.parametrize("end", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize(("letter", "dtype"), [("f", np.float32), ("d", np.float64)])
def test_directed_roundings_are_exact(letter, dtype, end):
    mode = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}[end]
    x, y, z = (drawn(dtype, 120, seed, spread=60) for seed in range(3))
    x[:40], z[:40] = drawn(dtype, 40, 7), -x[:40] * y[:40]
    fma = f"__nv_fma{'f' if letter == 'f' else ''}_{end}"
    rules = {
        f"__nv_{letter}add_{end}": (lambda a, b: a + b, (x, y)),
        f"__nv_{letter}sub_{end}": (lambda a, b: a - b, (x, y)),
        f"__nv_{letter}mul_{end}": (lambda a, b: a * b, (x, y)),
        f"__nv_{letter}div_{end}": (lambda a, b: a / b, (x, y)),
        f"__nv_{letter}rcp_{end}": (lambda a: 1 / a, (y,)),
        fma: (lambda a, b, c: a * b + c, (x, y, z)),
    }
    for symbol, (rule, args) in rules.items():
        got = call(symbol, *args)
        for i, row in enumerate(zip(*(a.tolist() for a in args), strict=True)):
            if all(math.isfinite(v) for v in row) and rule(*map(Fraction, row)) != 0:
                same_bits(got[i : i + 1], rounded(rule(*map(Fraction, row)), dtype, mode)[None])
    squares = np.abs(y)
    for value, root in zip(
        squares.tolist(), call(f"__nv_{letter}sqrt_{end}", squares), strict=True
    ):
        below, above = (Fraction(float(np.nextafter(root, dtype(v)))) for v in (0, np.inf))
        here, exact = Fraction(float(root)), Fraction(value)
        if end == "rn":
            assert ((below + here) / 2) ** 2 <= exact <= ((here + above) / 2) ** 2
        elif end == "ru":
            assert below**2 < exact <= here**2
        else:
            assert here**2 <= exact < above**2


@pytest.mark.parametrize("end", ["rn", "rz", "rd", "ru"])
def test_conversions(end):
    mode = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}[end]
    whole = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[end]
    x = np.concatenate(
        [drawn(np.float64, 60, 0, spread=70), [0.5, 1.5, -0.5, 2.5, -3e9, 4e9, 1e30]]
    )
    singles = [rounded(Fraction(v), np.float32, mode) for v in x.tolist()]
    same_bits(call(f"__nv_double2float_{end}", x), np.array(singles))
    for name, low, high in (
        ("int", -(2**31), 2**31), ("uint", 0, 2**32), ("ll", -(2**63), 2**63), ("ull", 0, 2**64),
    ):  # fmt: skip
        for source, real in (("double", x), ("float", x.astype(np.float32))):
            got = call(f"__nv_{source}2{name}_{end}", real)
            wanted = [min(max(whole(v), low), high - 1) for v in real.tolist()]
            assert [v % (high - low) for v in got.tolist()] == [v % (high - low) for v in wanted]
            nan = call(f"__nv_{source}2{name}_{end}", real[:1] * real.dtype.type(np.nan))
            top = 0 if source == "float" and high <= 2**32 else (high - low) // 2
            assert int(nan[0]) % (high - low) == top
        integers = np.random.default_rng(4).integers(
            low, high - 1, 80, f"{'u' if low == 0 else 'i'}8"
        )
        signless = integers.astype("i8" if high > 2**32 else "i4")
        for target, dtype in (("float", np.float32), ("double", np.float64)):
            if f"__nv_{name}2{target}_{end}" in {row[0] for row in ROWS}:
                exact = [rounded(Fraction(v), dtype, mode) for v in integers.tolist()]
                same_bits(call(f"__nv_{name}2{target}_{end}", signless), np.array(exact))


def test_roundings_to_integers():
    x = np.array([0.49999997, 0.5, -0.5, 1.5, 2.5, -2.5, 8388609.0, 1e30, -0.2], np.float32)
    away = [
        math.copysign(math.floor(abs(v) + Fraction(1, 2)), v) for v in map(Fraction, x.tolist())
    ]
    same_bits(call("__nv_roundf", x), away)
    same_bits(call("__ocml_round_f32", x), away)
    even = [math.copysign(round(v), v) for v in x.tolist()]
    for symbol in ("__nv_rintf", "__nv_nearbyintf", "__triton_hip_rint", "__ocml_nearbyint_f32"):
        same_bits(call(symbol, x), even)
    for name, rule in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc)):
        assert call(f"__nv_{name}f", x).tolist() == [rule(v) for v in x.tolist()]
    top = 2**63 - 1
    assert call("__nv_llrintf", x).tolist() == [min(int(v), top) for v in even]
    assert call("__nv_llroundf", x).tolist() == [min(int(v), top) for v in away]
    assert call("__triton_hip_llrint", x.astype(np.float64)).tolist()[:5] == [0, 0, 0, 2, 2]


def _edges(dtype, seed):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    edges = [info.min, info.min + 1, -1, 0, 1, info.max]
    return np.concatenate([np.array(edges, dtype), rng.integers(info.min, info.max, 60, dtype)])


@pytest.mark.parametrize(("dtype", "ends"), [("i4", ("", "32")), ("i8", ("ll", "64"))])
def test_bits_of_integers(dtype, ends):
    x = _edges(dtype, 0)
    width = 8 * x.itemsize
    text = [f"{v % 2**width:0{width}b}" for v in x.tolist()]
    assert call(f"__nv_popc{ends[0]}", x).tolist() == [t.count("1") for t in text]
    clz = [len(t) - len(t.lstrip("0")) for t in text]
    assert call(f"__nv_clz{ends[0]}", x).tolist() == clz
    assert call(f"__ockl_clz_u{ends[1]}", x).tolist() == clz
    assert call(f"__ockl_popcount_u{ends[1]}", x).tolist() == [t.count("1") for t in text]
    assert call(f"__nv_ffs{ends[0]}", x).tolist() == [
        t[::-1].find("1") + 1 if "1" in t else 0 for t in text
    ]
    reverse = call(f"__nv_brev{ends[0]}", x)
    assert [v % 2**width for v in reverse.tolist()] == [int(t[::-1], 2) for t in text]
    absolute = np.array([abs(v) % 2**width for v in x.tolist()], f"u{x.itemsize}").view(x.dtype)
    same_bits(call("__nv_abs" if dtype == "i4" else "__nv_llabs", x), absolute)
    same_bits(call("__triton_hip_iabs", x), absolute)


def test_products_and_sums_of_integers():
    def wrap(values, width):
        return np.array([v % 2**width for v in values], f"u{width // 8}").view(f"i{width // 8}")

    for width, mid in ((32, ""), (64, "64")):
        a, b = _edges(f"i{width // 8}", 0), _edges(f"i{width // 8}", 1)[::-1].copy()
        rows = list(zip(a.tolist(), b.tolist(), strict=True))
        unsigned = [(p % 2**width, q % 2**width) for p, q in rows]
        same_bits(call(f"__nv_mul{mid}hi", a, b), wrap([p * q >> width for p, q in rows], width))
        high = wrap([p * q >> width for p, q in unsigned], width)
        same_bits(call(f"__nv_umul{mid}hi", a, b), high)
        same_bits(call(f"__nv_umul{mid}hi", *(v.view(f"u{width // 8}") for v in (a, b))), high)
    a, b = _edges("i4", 0), _edges("i4", 1)[::-1].copy()
    c = _edges("i4", 2)
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    unsigned = [(p % 2**32, q % 2**32) for p, q in rows]
    cut = [(p % 2**24, q % 2**24) for p, q in rows]
    signed = [tuple(v - 2**24 if v >= 2**23 else v for v in row) for row in cut]
    same_bits(call("__nv_umul24", a, b), wrap([p * q for p, q in cut], 32))
    same_bits(call("__nv_mul24", a, b), wrap([p * q for p, q in signed], 32))
    thirds = c.tolist()
    for symbol, source in (("sad", rows), ("usad", unsigned)):
        sums = [abs(p - q) + r for (p, q), r in zip(source, thirds, strict=True)]
        same_bits(call(f"__nv_{symbol}", a, b, c), wrap(sums, 32))
    for prefix, source in (("", rows), ("u", unsigned)):
        same_bits(call(f"__nv_{prefix}hadd", a, b), wrap([(p + q) >> 1 for p, q in source], 32))
        half = [(p + q + 1) >> 1 for p, q in source]
        same_bits(call(f"__nv_{prefix}rhadd", a, b), wrap(half, 32))
    selected = call("__nv_byte_perm", a, b, np.full_like(a, 0x7531))
    packed = [struct.pack("<II", *row) for row in unsigned]
    assert [struct.pack("<i", v) for v in selected.tolist()] == [p[1::2] for p in packed]


def test_views_of_bits():
    x = np.array([1.5, -0.0, np.inf], np.float32)
    codes = [struct.unpack("<i", struct.pack("<f", v))[0] for v in x.tolist()]
    for symbol in ("float_as_int", "float_as_uint"):
        assert call(f"__nv_{symbol}", x).tolist() == codes
    for symbol in ("int_as_float", "uint_as_float"):
        same_bits(call(f"__nv_{symbol}", np.array(codes, np.int32)), x)
    d = np.array([math.pi, -2.0, 5e-324])
    wide = [struct.unpack("<q", struct.pack("<d", v))[0] for v in d.tolist()]
    assert call("__nv_double_as_longlong", d).tolist() == wide
    same_bits(call("__nv_longlong_as_double", np.array(wide)), d)
    low, high = call("__nv_double2loint", d), call("__nv_double2hiint", d)
    assert [
        (h << 32) + (v % 2**32) for h, v in zip(high.tolist(), low.tolist(), strict=True)
    ] == wide
    same_bits(call("__nv_hiloint2double", high, low), d)


def test_tests_signs_and_neighbours():
    x = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)
    d = x.astype(np.float64)
    for single, double, wanted in (
        ("__nv_isnanf", "__nv_isnand", [0, 0, 0, 0, 0, 0, 1]),
        ("__nv_isinff", "__nv_isinfd", [0, 0, 0, 0, 1, 1, 0]),
        ("__nv_finitef", "__nv_isfinited", [1, 1, 1, 1, 0, 0, 0]),
        ("__nv_signbitf", "__nv_signbitd", [0, 1, 0, 1, 0, 1, 0]),
        ("__ocml_isnan_f32", "__ocml_isnan_f64", [0, 0, 0, 0, 0, 0, 1]),
    ):
        assert call(single, x).tolist() == wanted
        assert call(double, d).tolist() == wanted
    assert call("__nv_saturatef", x).tolist() == [0, 0, 1, 0, 1, 0, 0]
    two = np.full_like(x, 2)
    same_bits(call("__nv_copysignf", two, x)[:6], [2, -2, 2, -2, 2, -2])
    up = call("__nv_nextafterf", x[:4], two[:4])
    same_bits(up[:3], [2.0**-149, 2.0**-149, 1 + 2.0**-23])
    assert call("__nv_nextafter", d[2:3], 2 * d[2:3])[0] == 1 + 2.0**-52
    same_bits(call("__nv_fabsf", x)[:6], [0, 0, 1, 1, np.inf, np.inf])


def test_the_fast_functions():
    x = np.array([0.3, 1.7, 9.5], np.float32)
    for name in ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10"):
        same_bits(call(f"__nv_fast_{name}f", x), call(f"__nv_{name}f", x))
    same_bits(call("__nv_fast_powf", x, x), call("__nv_powf", x, x))
    minus = np.array([-2.0], np.float32)
    assert call("__nv_powf", minus, -minus)[0] == 4
    assert np.isnan(call("__nv_fast_powf", minus, -minus)[0])
    huge = np.array([2.0**127], np.float32)
    assert call("__nv_fast_fdividef", huge, huge)[0] == 0
    assert call("__triton_hip_fast_fdividef", huge, huge)[0] == 1
    same_bits(call("__triton_hip_fast_tanhf", x), call("__nv_tanhf", x))
    same_bits(call("__nv_frsqrt_rn", x), call("__nv_rsqrtf", x))
