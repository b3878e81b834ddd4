"""A correctly rounded float64 fused multiply-add on arrays."""

import numpy as np

from gemmproof.reference.arithmetic import rationals
from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.arithmetic.errorfree import sum_to_odd, two_product, two_sum


def fma_fp64(a: Array, b: Array, acc: Array) -> Array:
    """RN(a * b + acc), broadcasting.

    Three error-free transformations and one rounding to odd (Boldo and Melquiond, IEEE TC 57(4),
    2008, Fma); exact rationals, slowly, where those could over- or underflow.
    """
    if not (_moderate(a, 400) and _moderate(b, 400) and _moderate(acc, 900)):
        return rationals.calculate("fma", a, b, acc)[0]
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
