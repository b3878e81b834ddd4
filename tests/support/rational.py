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


def rounded(value, dtype, mode="rn"):
    """`value`, a Fraction other than 0, as a scalar of dtype; mode is rn, rz, rm or rp."""
    p, emin, emax = SHAPES[np.dtype(dtype)]
    size = abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < Fraction(2) ** e
    quantum = Fraction(2) ** (max(e, emin) - p + 1)
    whole = size / quantum
    count = math.floor(whole)
    outwards = (mode == "rp" and value > 0) or (mode == "rm" and value < 0)
    if mode == "rn":
        count = round(whole)
    elif outwards:
        count = math.ceil(whole)
    result = count * quantum
    top = (2 - Fraction(2) ** (1 - p)) * Fraction(2) ** emax
    if result > top:
        magnitude = math.inf if mode == "rn" or outwards else float(top)
    else:
        magnitude = float(result)
    return np.array(magnitude if value > 0 else -magnitude).astype(dtype)


def drawn(dtype, count, seed, spread=None):
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
