"""Inf and NaN in a spec: a value where every evaluation has it, else unknown.

NaN goes through sums, products, quotients, conversions and smooth functions. Inf goes through where
no finite part can overflow to the other sign, no partner may be 0 by an error, and multiplying out
does not make Inf - Inf. Whether max, min, and a comparison let NaN through is the kernel's choice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.spec.array import NO_GRID, SpecArray


def settle(made: SpecArray, known: Array) -> SpecArray:
    """`made`, whose values that are not finite are exact where `known`, unknown elsewhere."""
    odd = ~np.isfinite(made.value)
    if not odd.any():
        return made
    sure, unsure = odd & known, odd & ~known
    return replace(
        made,
        error=np.where(sure, 0.0, np.where(unsure, np.inf, made.error)),
        size=np.where(odd, 0.0, made.size),
        count=np.where(odd, 0.0, made.count),
        low=np.where(odd, NO_GRID, made.low),
        exact=np.where(odd, sure, made.exact),
    )


def has_nan(x: SpecArray) -> Array:
    """Where every evaluation has NaN."""
    return np.isnan(x.value) & x.exact


def may_vanish(x: SpecArray) -> Array:
    """Where a computed value may be 0 or not, or of either sign."""
    return np.asarray(~x.exact & (np.abs(x.value) <= x.bound))


def known_sum(x: SpecArray, y: SpecArray) -> Array:
    """Where the Inf or NaN of x + y is every evaluation's."""
    return has_nan(x) | has_nan(y) | (x.known & y.known)


def known_product(x: SpecArray, y: SpecArray) -> Array:
    """Where the Inf or NaN of x y is: Inf times a sum may be Inf - Inf when multiplied out."""
    both = x.known & y.known
    for f, g in ((x, y), (y, x)):
        out = f.pure and not g.pure
        both = both & ~(np.isinf(f.value) & (may_vanish(g) | out))
    return has_nan(x) | has_nan(y) | both


def known_quotient(x: SpecArray, y: SpecArray) -> Array:
    """Where the Inf or NaN of x / y is: not where y may be 0, whose sign is open."""
    sound = x.known & y.known & ((y.value != 0) | (x.exact & (x.value == 0)))
    return has_nan(x) | has_nan(y) | (sound & ~may_vanish(y))


def known_contraction(x: SpecArray, y: SpecArray, tiny: float) -> Array:
    """Where the Inf or NaN of x @ y is; what is below `tiny` may be read as 0."""

    def some(a: Array, b: Array) -> Array:
        return np.asarray(a.astype(np.float32) @ b.astype(np.float32) > 0)

    def unsure(z: SpecArray) -> Array:
        return may_vanish(z) | ((np.abs(z.value) < tiny) & (z.value != 0))

    all_x, all_y = np.ones(x.shape, bool), np.ones(y.shape, bool)
    nan = some(has_nan(x), all_y) | some(all_x, has_nan(y))
    open_ = some(~x.known, all_y) | some(all_x, ~y.known)
    open_ |= some(np.isinf(x.value), unsure(y)) | some(unsure(x), np.isinf(y.value))
    return nan | ~open_
