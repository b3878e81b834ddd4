"""Special functions of float64 arrays that numpy lacks: of the error function, gamma and powers.

Sources are formulas of the NIST Digital Library of Mathematical Functions (DLMF, dlmf.nist.gov).
Names are libdevice's. Floating-point warnings are the caller's to silence.
"""

import math
from collections.abc import Callable

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.arithmetic.errorfree import two_product

_ROOT_PI = math.sqrt(math.pi)


def map_scalars(
    function: Callable[..., float], special: Callable[..., float] | None = None
) -> Callable[..., Array]:
    """function element by element; where it raises, `special`'s value, or NaN."""

    def compute(*args: float) -> float:
        try:
            return function(*args)
        except (ValueError, OverflowError):
            return special(*args) if special else math.nan

    def run(*args: Array) -> Array:
        whole = np.broadcast_arrays(*args)
        rows = zip(*(a.ravel().tolist() for a in whole), strict=True)
        values = np.array([compute(*row) for row in rows], np.float64)
        return values.reshape(whole[0].shape)

    return run


erf = map_scalars(math.erf)
erfc = map_scalars(math.erfc)
lgamma = map_scalars(math.lgamma, lambda x: math.inf)


def _gamma_at_pole(x: float) -> float:
    """Overflow and the pole at 0 give infinity, negative integers and -inf NaN (C17 F.10.5.4)."""
    if x == -math.inf or (x < 0 and math.floor(x) == x):
        return math.nan
    return math.copysign(math.inf, x)


tgamma = map_scalars(math.gamma, _gamma_at_pole)


def erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x): the product itself below 2, DLMF 7.9.3's continued fraction above."""
    small = np.minimum(x, 2.0)
    square, error = two_product(small, small)
    error = np.where(np.isfinite(error), error, 0.0)
    product = np.exp(square) * (1 + error) * erfc(small)
    z = np.maximum(x, 2.0)
    tail = z
    for k in range(160, 0, -1):
        tail = z + (k / 2) / tail
    return np.where(x > 2, 1 / (_ROOT_PI * tail), product)


def erfinv(y: Array) -> Array:
    """Newton's method on erf up to 1/2, erfcinv of the exact 1 - |y| beyond."""
    size = np.abs(y)
    inner = np.where(size <= 0.5, y, 0.0)
    x = inner * (_ROOT_PI / 2)
    for _ in range(6):
        x = x - (erf(x) - inner) * (_ROOT_PI / 2) * np.exp(x * x)
    outer = np.copysign(_erfcinv_below_half(np.where(size > 0.5, 1 - size, 0.25)), y)
    return np.where(size <= 0.5, np.where(y == 0, y, x), np.where(size <= 1, outer, np.nan))


def erfcinv(y: Array) -> Array:
    """The inverse of erfc on [0, 2]; 1 - y is exact from 1/2 on."""
    return np.where(y < 0.5, _erfcinv_below_half(np.minimum(y, 0.5)), erfinv(1 - y))


def _erfcinv_below_half(y: Array) -> Array:
    """Newton's method on log erfc, whose slope is -2 / (sqrt(pi) erfcx(x)): DLMF 7.10.1.

    log erfc is concave, so from the right of the root every step stays there and converges.
    """
    x = np.sqrt(-np.log(y))
    start = np.where(np.isfinite(x), x, 1.0)
    root = start
    for _ in range(8):
        scaled = erfcx(root)
        gap = np.log(scaled) - root * root - np.log(y)
        root = root + np.where(np.isfinite(gap), gap, 0.0) * scaled * (_ROOT_PI / 2)
    return np.where(y == 0, np.inf, np.where((y < 0) | np.isnan(y), np.nan, root))


def normcdf(x: Array) -> Array:
    """Phi(x) = erfc(-x / sqrt 2) / 2, DLMF 7.1; the tail's argument with its rounding error."""
    scale, rest = math.sqrt(0.5), -4.833646656726457e-17  # sqrt(1/2) to 107 bits
    z, error = two_product(-x, scale)
    error = np.where(np.isfinite(error), error - x * rest, 0.0)
    slope = np.where(np.abs(z) < 27, -2 / _ROOT_PI * np.exp(-z * z), 0.0)
    return 0.5 * (erfc(z) + slope * error)


def normcdfinv(p: Array) -> Array:
    """The inverse of Phi, -sqrt(2) erfcinv(2 p)."""
    return -math.sqrt(2.0) * erfcinv(2 * p)


def _turns(x: Array) -> tuple[Array, Array]:
    """x modulo 2 as quarters of a turn, 0 to 3, and an exact rest within [-1/4, 1/4]."""
    part = np.fmod(x, 2.0)
    quarters = np.rint(2 * part)
    rest = part - quarters / 2
    return np.where(np.isfinite(x), quarters, 0).astype(np.int64) & 3, rest


def sinpi(x: Array) -> Array:
    """sin(pi x), zeros exact and of the sign of x."""
    quarter, rest = _turns(x)
    s, c = np.sin(np.pi * rest), np.cos(np.pi * rest)
    y = np.choose(quarter, [s, c, -s, -c])
    return np.where(y == 0, np.copysign(0.0, x), y)


def cospi(x: Array) -> Array:
    """cos(pi x), zeros exact and positive."""
    quarter, rest = _turns(x)
    s, c = np.sin(np.pi * rest), np.cos(np.pi * rest)
    return np.choose(quarter, [c, -s, -c, s]) + 0.0


def round_away(x: Array) -> Array:
    """To the nearest integer, halves away from zero (C17 round)."""
    whole = np.trunc(x)
    away = np.abs(x - whole) >= 0.5
    return np.where(away, whole + np.copysign(1.0, x), whole).astype(x.dtype)


remainder = map_scalars(math.remainder)
