"""Error-free transformations: a rounded sum or product together with its exact error."""

from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array


def two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """s = fl(x + y) and its exact error (Knuth), while nothing overflows."""
    s = x + y
    part = s - x
    return s, (x - (s - part)) + (y - part)


def two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """p = fl(x * y) and its exact error (Veltkamp, Dekker) in float64, for |x|, |y| < 2**970."""
    p = x * y
    x_high, y_high = ((134217729.0 * v) - ((134217729.0 * v) - v) for v in (x, y))
    x_low, y_low = x - x_high, y - y_high
    return p, ((x_high * y_high - p) + x_high * y_low + x_low * y_high) + x_low * y_low


def sum_to_odd(x: Array, y: Array) -> Array:
    """x + y rounded to odd."""
    return cut_to_odd(*two_sum(x, y))


def cut_to_odd(near: Array, error: Any) -> Array:
    """near + error rounded to odd, in place: cut, with the last bit set when inexact.

    near: the rounding to nearest, float32 or float64; of the error only the sign counts. A further
    rounding to nearest of at least two bits less is then the rounding of the exact value (Boldo and
    Melquiond, IEEE TC 57(4), 2008).
    """
    code = near.view(f"i{near.dtype.itemsize}")
    even = (error != 0) & np.isfinite(error) & np.isfinite(near) & ((code & 1) == 0)
    if even.any():
        # one step towards the error's side: up in magnitude when both have one sign
        code += even * np.where((error > 0) == (near > 0), 1, -1).astype(code.dtype)
    return near
