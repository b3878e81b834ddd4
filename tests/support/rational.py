"""A witness of roundings: exact rationals to a float format in integer arithmetic alone."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

# significand bits, least and greatest exponent
SHAPES = {
    np.dtype(np.float16): (11, -14, 15),
    np.dtype(ml_dtypes.bfloat16): (8, -126, 127),
    np.dtype(np.float32): (24, -126, 127),
    np.dtype(np.float64): (53, -1022, 1023),
}


def _root(a):
    """The root to 800 bits and a sticky one: on the root's side of every boundary."""
    root = Fraction(math.isqrt(int(a * 4**800)), 2**800)
    return root + (root * root != a) * Fraction(1, 2**802)


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "sqrt": _root,
}


def spacing(value, p, emin):
    """The distance of neighbours about `value`, not 0, with p bits and exponents from emin."""
    size = abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    return Fraction(2) ** (max(emin, e - (size < Fraction(2) ** e)) - p + 1)


ROUNDINGS = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}


def round_exactly(value, dtype, mode="rn"):
    """`value`, a Fraction other than 0, as a scalar of dtype; mode is rn, rz, rm or rp."""
    p, emin, emax = SHAPES[np.dtype(dtype)]
    step = spacing(value, p, emin)
    size = abs(ROUNDINGS[mode](value / step) * step)
    top = (2 - Fraction(2) ** (1 - p)) * Fraction(2) ** emax
    if size > top:
        inwards = mode in ("rz", "rp" if value < 0 else "rm")
        size = top if inwards else math.inf
    return np.array(float(size) if value > 0 else -float(size)).astype(dtype)


def draw(dtype, count, seed, spread=None):
    """Finite numbers of all exponents, or of magnitudes about 2**-spread to 2**spread."""
    rng = np.random.default_rng(seed)
    if spread is None:
        size = np.dtype(dtype).itemsize
        x = rng.integers(0, 256, count * size, np.uint8).view(dtype)
        with np.errstate(invalid="ignore"):
            regular = np.isfinite(x.astype(np.float64))
        return np.where(regular, x, x.dtype.type(1.5))
    x = rng.standard_normal(count) * 2.0 ** rng.integers(-spread, spread + 1, count)
    return x.astype(dtype)


def map_rows(rule, dtype, *args):
    """rule of each row of args in Python's own numbers, integers wrapped to the integer dtype."""
    info = np.iinfo(dtype)
    rows = zip(*(a.tolist() for a in args), strict=True)
    return np.array([(rule(*row) - info.min) % 2**info.bits + info.min for row in rows], dtype)


def same_bits(got, expected):
    """Bitwise equality, so that NaN payloads and signs of zeros count; a list has got's dtype."""
    expected = expected if isinstance(expected, np.ndarray) else np.array(expected, got.dtype)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(
        got.view(f"u{got.itemsize}"), np.ascontiguousarray(expected).view(f"u{got.itemsize}")
    )


def check_rounded_once(got, op, args, mode):
    """got is `op` of each row of args, rounded once; two thirds are numbers other than 0."""
    checked = 0
    for y, *row in zip(got, *(a.astype(np.float64).tolist() for a in args), strict=True):
        if not all(map(math.isfinite, row)) or (op in ("div", "rcp") and row[-1] == 0):
            continue
        exact = EXACT[op](*map(Fraction, row))
        if exact == 0:
            assert y == 0
            continue
        same_bits(y[None], round_exactly(exact, got.dtype, mode)[None])
        checked += 1
    assert checked > 2 / 3 * len(got)
