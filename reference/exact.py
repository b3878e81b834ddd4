"""The exact product: float64 with a bound of its own error, or exact integers."""

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, format_of, widen
from gemmproof.reference.arithmetic.errorfree import two_product, two_sum

# A relative guard for the few roundings made while a bound itself is computed in float64.
_OUTWARD = 1.0 + 2.0**-40


def exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """c ~ a @ b and e with |c - a @ b| <= e element by element; a (..., M, K), b (..., K, N).

    Integers: c is exact (int64, or object when int64 could overflow), e = 0. Floats of at most
    24 bits: every product is exact in float64, so summed in any order
    e = K 2**-53 |a||b| (Jeannerod and Rump, SIMAX 34, 2013), or 0 where the data fit one window
    of 53 bits in fixed point. float64 operands: compensated (Ogita, Rump and Oishi, SISC 26, 2005,
    Dot2), e = 2**-53 |c| + gamma_K(2**-53)**2 |a||b|, valid while nothing over- or underflows.
    Inf and NaN spread as in IEEE, and e is then 0.
    """
    if format_of(a.dtype).kind == "int" and format_of(b.dtype).kind == "int":
        return _exact_integers(a, b)
    K = a.shape[-1]
    wide_a, wide_b = widen(a), widen(b)
    with np.errstate(all="ignore"):
        if max(format_of(a.dtype).p, format_of(b.dtype).p) > 24:
            c, e = _multiply_compensated(wide_a, wide_b)
        else:
            c = wide_a @ wide_b
            e = K * 2.0**-53 * _OUTWARD * (np.abs(wide_a) @ np.abs(wide_b))
            if _fits_window(wide_a, wide_b):
                e = np.zeros_like(c)
        special = special_values(wide_a, wide_b)
        if special is not None:
            c = np.where(np.isnan(special) | np.isinf(special), special, c)
        e = np.where(np.isfinite(c), e, 0.0)
    return c, e


def magnitude_product(a: Array, b: Array) -> Array:
    """An upper bound of |a| |b| in float64, summed over k; Inf and NaN operands count as zero."""
    wide_a, wide_b = (np.where(np.isfinite(x), np.abs(x), 0.0) for x in (widen(a), widen(b)))
    return (wide_a @ wide_b) * (1.0 + a.shape[-1] * 2.0**-52)


def special_values(a: Array, b: Array) -> Array | None:
    """What Inf and NaN among float64 operands make of a @ b, whatever the order of the sum.

    None when all are finite. Else NaN, +Inf or -Inf where that is the result, 0 elsewhere: NaN for
    any NaN, Inf * 0, or infinities of both signs; a finite sum that overflows is not seen here.
    """
    if np.isfinite(a).all() and np.isfinite(b).all():
        return None
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    nan = _some(np.isnan(a), np.ones_like(finite_b)) | _some(np.ones_like(finite_a), np.isnan(b))
    nan |= _some(np.isinf(a), b == 0) | _some(a == 0, np.isinf(b))
    plus, minus = np.zeros_like(nan), np.zeros_like(nan)
    for x, y in ((np.isinf(a), np.ones_like(finite_b)), (np.ones_like(finite_a), np.isinf(b))):
        for sign_a, sign_b in ((a > 0, b > 0), (a < 0, b < 0)):
            plus |= _some(x & sign_a, y & sign_b)
        for sign_a, sign_b in ((a > 0, b < 0), (a < 0, b > 0)):
            minus |= _some(x & sign_a, y & sign_b)
    result = np.where(plus, np.inf, np.where(minus, -np.inf, 0.0))
    return np.where(nan | (plus & minus), np.nan, result)


def _some(a: Array, b: Array) -> Array:
    """Whether any k has both a[m, k] and b[k, n]."""
    count: Array = a.astype(np.float32) @ b.astype(np.float32)
    return count > 0


def _fits_window(a: Array, b: Array) -> bool:
    """Whether all products and partial sums are multiples of one unit below 2**53 of it."""
    grid = 0
    for x in (a, b):
        finite = np.abs(x[np.isfinite(x) & (x != 0)])
        if not finite.size:
            return True
        _, top = np.frexp(finite.max())
        # the lowest set bit of each value, from its 53-bit integer
        mantissa, e = np.frexp(finite)
        whole = (mantissa * 2.0**53).astype(np.int64)
        _, trailing = np.frexp((whole & -whole).astype(np.float64))
        grid += int(top) - int((e + trailing).min()) + 54
    return grid <= 53 and a.shape[-1] << grid <= 2**53


def _exact_integers(a: Array, b: Array) -> tuple[Array, Array]:
    K = a.shape[-1]
    size = [max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0 for x in (a, b)]
    largest = K * size[0] * size[1]
    c: Array
    if largest <= 2**53:
        c = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    elif largest < 2**63:
        c = a.astype(np.int64) @ b.astype(np.int64)
    else:
        c = a.astype(object) @ b.astype(object)
    return c, np.zeros(c.shape)


def _multiply_compensated(a: Array, b: Array) -> tuple[Array, Array]:
    K = a.shape[-1]
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    c, low, size = (np.zeros(shape) for _ in range(3))
    for k in range(K):
        x, y = a[..., :, k, None], b[..., k, None, :]
        product, error = two_product(x, y)
        c, carry = two_sum(c, product)
        low += carry + error
        size += np.abs(product)
    gamma = K * 2.0**-53 / (1 - K * 2.0**-53)
    c = c + low
    return c, (2.0**-53 * np.abs(c) + gamma * gamma * size) * _OUTWARD
