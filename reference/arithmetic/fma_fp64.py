"""A correctly rounded float64 fused multiply-add on arrays."""

from fractions import Fraction

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.arithmetic.errorfree import sum_to_odd, two_product, two_sum


def fma_fp64(a: Array, b: Array, acc: Array) -> Array:
    """RN(a * b + acc), broadcasting.

    Three error-free transformations and one rounding to odd (Boldo and Melquiond, IEEE TC 57(4),
    2008, Fma); exact rationals, slowly, where those could over- or underflow.
    """
    if not (_moderate(a, 400) and _moderate(b, 400) and _moderate(acc, 900)):
        return np.asarray(_exactly(a, b, acc)).astype(np.float64)
    high, low = two_product(a, b)
    near, near_error = two_sum(acc, low)
    total, total_error = two_sum(high, near)
    result = total + sum_to_odd(near_error, total_error)
    return np.where(result == 0, high + acc, result)  # an exact zero has the sign of the plain sum


def _moderate(x: Array, exponent: int) -> bool:
    size = np.abs(x)
    low = size.min(where=size > 0, initial=1.0)
    return bool(np.isfinite(size).all() and size.max(initial=0.0) < 2.0**exponent) and bool(
        low > 2.0**-exponent
    )


def _fma(a: float, b: float, acc: float) -> float:
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(acc)):
        # a product that overflows only when it is rounded must not meet an infinite addend
        return acc if np.isfinite(a) and np.isfinite(b) else a * b + acc
    value = Fraction(a) * Fraction(b) + Fraction(acc)
    if value == 0:
        return a * b + acc if a * b == 0 else 0.0
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


_exactly = np.frompyfunc(_fma, 3, 1)
