"""Special functions of float64: error functions, gamma and Bessel functions."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from gemmproof.reference.arithmetic import Array, two_product

# -- special functions ---------------------------------------------------------------------------
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


# -- bessel functions ----------------------------------------------------------------------------
_SPLIT = 25.0
_TERMS = 90  # |J_90(25)| < 1e-36: the start of the recurrence is negligible
_EULER = 0.5772156649015329


def _first_kind(order: int, x: Array) -> Array:
    """J_0 or J_1, one even and one odd."""
    size = np.abs(x)
    small = _first_kinds(np.minimum(size, _SPLIT))[order]
    y = np.where(size <= _SPLIT, small, _hankel(order, np.maximum(size, _SPLIT))[0])
    y = np.where(np.isinf(x), 0.0, y)
    return np.where(np.isnan(x), np.nan, np.copysign(1.0, x) * y if order else y)


def _first_kinds(x: Array) -> list[Array]:
    """J_0 to J_90 for 0 <= x <= _SPLIT: backward recurrence, normalised by DLMF 10.12.4.

    Below 1 the recurrence would overflow; the power series DLMF 10.2.2 takes its place there.
    """
    z = np.maximum(x, 1.0)
    rows = [np.zeros_like(z), np.full_like(z, 1e-300)]
    for k in range(_TERMS, 0, -1):
        rows.append(2 * k / z * rows[-1] - rows[-2])
    rows = rows[::-1]
    scale = rows[0] + 2 * sum(rows[2 : _TERMS + 1 : 2])
    return [np.where(x < 1, _series(k, x, -1.0), row / scale) for k, row in enumerate(rows)]


def _series(order: int, x: Array, sign: float, terms: int = 12) -> Array:
    """sum of sign^k (x/2)^(2k+n) / (k! (k+n)!): J_n (DLMF 10.2.2), with sign 1 I_n (10.25.2)."""
    quarter = sign * x * x / 4
    total = np.zeros_like(x)
    for k in range(terms, 0, -1):
        total = (1 + total) * quarter / (k * (k + order))
    # divided stepwise, for x**order and order! leave the range where their quotient does not
    lead = np.ones_like(x)
    for k in range(1, order + 1):
        lead = lead * (x / (2 * k))
    return lead * (1 + total)


def _second_kind(order: int, x: Array) -> Array:
    """Y_0 or Y_1: -inf at 0, NaN below."""
    inside = np.minimum(np.where(x > 0, x, 1.0), _SPLIT)
    y = np.where(x <= _SPLIT, _neumann(order, inside), _hankel(order, np.maximum(x, _SPLIT))[1])
    y = np.where(np.isinf(x), 0.0, np.where(x == 0, -np.inf, y))
    return np.where((x < 0) | np.isnan(x), np.nan, y)


def _neumann(order: int, x: Array) -> Array:
    """Y_0 as a series of J_k (Abramowitz and Stegun 9.1.89), and Y_1 = -Y_0' term by term.

    Stable, for every J_k is at most 1; derivatives are those of DLMF 10.6.2.
    """
    j = _first_kinds(x)
    log = np.log(x / 2) + _EULER
    steps = range(1, _TERMS // 2 - 1)
    if order == 0:
        tail = sum((-1) ** k * j[2 * k] / k for k in steps)
        return (2 * log * j[0] - 4 * tail) / np.pi
    tail = sum((-1) ** k * (j[2 * k - 1] - j[2 * k + 1]) / k for k in steps)
    return 2 * (log * j[1] - j[0] / x + tail) / np.pi


def _hankel(order: int, x: Array) -> tuple[Array, Array]:
    """J_n and Y_n for large x, DLMF 10.17.3 and 10.17.4, in sin x and cos x themselves."""
    term, p, q = np.ones_like(x), np.ones_like(x), np.zeros_like(x)
    for k in range(1, 24):
        term = term * ((4 * order * order - (2 * k - 1) ** 2) / (8.0 * k)) / x
        signed = term * (-1) ** (k // 2)
        p, q = (p, q + signed) if k % 2 else (p + signed, q)
    sine, cosine = np.sin(x), np.cos(x)
    # cos and sin of x - pi/4, times sqrt 2; one quarter of a turn more for order 1
    c, s = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -(cosine + sine))
    scale = 1 / np.sqrt(np.pi * x)
    return scale * (p * c - q * s), scale * (p * s + q * c)


def _modified(order: int, x: Array) -> Array:
    """I_0 or I_1: the power series (DLMF 10.25.2), all of one sign, and DLMF 10.40.1 beyond 30."""
    size = np.abs(x)
    small = _series(order, np.minimum(size, 30.0), 1.0, 90)
    z = np.maximum(size, 30.0)
    term, total = np.ones_like(z), np.ones_like(z)
    for k in range(1, 30):
        term = term * (((2 * k - 1) ** 2 - 4 * order * order) / (8.0 * k)) / z
        total = total + term
    half = np.exp(z / 2)  # exp(z) itself would overflow before the product does
    large = half * (total / np.sqrt(2 * np.pi * z)) * half
    y = np.where(size <= 30, small, np.where(np.isinf(z), np.inf, large))
    return np.where(np.isnan(x), np.nan, np.copysign(1.0, x) * y if order else y)


def _jn(n: float, x: float) -> float:
    """J_n by recurrence (DLMF 10.6.1): upwards while n < |x|, else Miller's, downwards."""
    order, size = int(n), abs(x)
    if order < 0 or math.isnan(x):
        return math.nan  # CUDA defines no value for negative orders
    sign = -1.0 if x < 0 and order % 2 else 1.0
    first, second = (float(_first_kind(k, np.array([size]))[0]) for k in (0, 1))
    if order < 2:
        return sign * (first, second)[order]
    if size == 0 or math.isinf(x):
        return sign * 0.0
    if order < size:
        for k in range(1, order):
            first, second = second, 2 * k / size * second - first
        return sign * second
    if order * math.log(math.e * size / (2 * order)) < -760:
        return sign * 0.0  # DLMF 10.14.4: |J_n(x)| <= (x/2)^n / n!
    last, here, target, total = 0.0, 1e-300, 0.0, 0.0
    for k in range(2 * ((order + math.isqrt(200 * order) + 30) // 2), 0, -1):
        if k == order:
            target = here
        total += 2 * here if k % 2 == 0 else 0.0
        last, here = here, 2 * k / size * here - last
        if abs(here) > 1e200:
            last, here, target, total = (v * 1e-200 for v in (last, here, target, total))
    return sign * target / (total + here)


def _yn(n: float, x: float) -> float:
    """Y_n by the upward recurrence (DLMF 10.6.1), which is stable for it."""
    order = int(n)
    if order < 0 or math.isnan(x) or x < 0:
        return math.nan
    if x == 0 or math.isinf(x):
        return 0.0 if x else -math.inf
    first, second = (float(_second_kind(k, np.array([x]))[0]) for k in (0, 1))
    if order == 0:
        return first
    for k in range(1, order):
        if math.isinf(second):
            break
        first, second = second, 2 * k / x * second - first
    return second


j0, j1 = partial(_first_kind, 0), partial(_first_kind, 1)
y0, y1 = partial(_second_kind, 0), partial(_second_kind, 1)
i0, i1 = partial(_modified, 0), partial(_modified, 1)
jn, yn = map_scalars(_jn), map_scalars(_yn)
