"""Bessel functions of float64 arrays, to about 1e-14 of their scale.

Sources are formulas of the NIST Digital Library of Mathematical Functions (DLMF, dlmf.nist.gov).
Up to _SPLIT Miller's backward recurrence (DLMF 3.6(iii)), beyond it Hankel's expansion.
"""

import math
from functools import partial

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.libdevice.special_functions import map_scalars

_SPLIT = 25.0
_TERMS = 90  # |J_90(25)| < 1e-36: what the recurrence starts from is negligible
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
    last, here, wanted, total = 0.0, 1e-300, 0.0, 0.0
    for k in range(2 * ((order + math.isqrt(200 * order) + 30) // 2), 0, -1):
        if k == order:
            wanted = here
        total += 2 * here if k % 2 == 0 else 0.0
        last, here = here, 2 * k / size * here - last
        if abs(here) > 1e200:
            last, here, wanted, total = (v * 1e-200 for v in (last, here, wanted, total))
    return sign * wanted / (total + here)


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
