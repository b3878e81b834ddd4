"""Arithmetic on float64 arrays by exact rationals: slow, and right whatever over- or underflows."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array

NATIVE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "mul": np.multiply,
    # a product that overflows must not meet an infinite addend
    "fma": lambda x, y, z: np.where(np.isinf(z) & np.isfinite(x * 0 + y * 0), z, x * y + z),
    "div": np.divide,
    "sqrt": np.sqrt,
}

_RATIONAL: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
    "div": lambda x, y: x / y,
}


def calculate(op: str, *operands: Array) -> tuple[Array, Array]:
    """add, mul, fma, div or sqrt of float64 arrays, broadcasting.

    Gives the exact values' roundings to nearest, and as int8 the signs of (exact value - rounding).
    """
    whole = np.broadcast_arrays(*operands)
    shape, args = whole[0].shape, [a.reshape(-1) for a in whole]
    with np.errstate(all="ignore"):
        near = NATIVE[op](*args)
    rest = np.zeros(near.shape, np.int8)
    regular = np.logical_and.reduce([np.isfinite(a) for a in args])
    if op == "div":
        regular &= args[1] != 0
    if op == "sqrt":
        regular &= args[0] >= 0
    for i in np.flatnonzero(regular):
        values = [Fraction(float(a[i])) for a in args]
        if op == "sqrt":
            gap = values[0] - Fraction(float(near[i])) ** 2
        else:
            exact = _RATIONAL[op](*values)
            gap = exact
            if exact:  # of an exact zero, numpy has the sign
                near[i] = _round_to_nearest(exact)
                gap = exact - Fraction(near[i]) if np.isfinite(near[i]) else -exact
        rest[i] = (gap > 0) - (gap < 0)
    return near.reshape(shape), rest.reshape(shape)


def _round_to_nearest(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator  # Python rounds the quotient of integers once
    except OverflowError:
        return math.inf if x > 0 else -math.inf
