"""Activations of a formula, made of its operations, and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gemmproof.reference.spec import functions
from gemmproof.reference.spec.array import SpecArray
from gemmproof.reference.spec.functions import FLUSHED, approximated, erf, sigmoid, tanh
from gemmproof.reference.spec.operations import U32, add, multiply, to_float


def relu(x: SpecArray) -> SpecArray:
    """max(x, 0); the kernel may keep NaN or return 0."""
    return functions.clip(x, 0.0, None)


def silu(x: SpecArray) -> SpecArray:
    """x sigmoid(x), or x / (1 + e**-x), which has no more roundings."""
    return multiply(x, sigmoid(x))


def gelu(x: SpecArray) -> SpecArray:
    """x / 2 (1 + erf(x / sqrt(2))), by its factors: they may be multiplied out."""
    return multiply(multiply(x, 0.5), add(erf(multiply(x, math.sqrt(0.5))), 1.0))


def gelu_tanh(x: SpecArray) -> SpecArray:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))).

    Or x sigmoid(2 z), as the bound of a tanh is that of 2 sigmoid(2 z) - 1 at least.
    """
    cube = multiply(multiply(multiply(x, x), x), 0.044715)
    z = multiply(add(x, cube), math.sqrt(2 / math.pi))
    return multiply(multiply(x, 0.5), add(tanh(z), 1.0))


SLICE = 16  # columns: the least side of a tl.dot


def softmax(x: Any, axis: int = -1) -> SpecArray:
    """e**(x - m) / sum(e**(x - m)) along an axis, with the maximum m of it, or of what was read so
    far: then earlier parts are rescaled by e**(m - m'), once for each slice of 16 or more.

    For n elements in q slices at most, r = m - x, and X the largest magnitude of an argument: the
    argument's rounding is u (|x| + X + r), with the factor log2(e) multiplied before or after the
    difference, and 2 u X for each rescaling; the exponentials are off by (2 + 1.173 r) ulp
    (__expf), 2 more for each rescaling; then the rescalings and sums are q and n roundings. The
    quotient is off by 2 ulp, a sum by the mean of its addends' errors. Arguments that are off by d
    change x by d, and the logarithm of the sum by the largest d. -Inf is a weight of 0.
    """
    x = to_float(x)
    u = max(U32, x.rules.fmt.u)

    def along(reduce: Any, z: Any) -> Any:
        return reduce(z, axis=axis, keepdims=True)

    none = np.isneginf(x.value) & x.exact
    n = x.shape[axis]
    q = max(0, -(-n // SLICE) - 1)
    with np.errstate(all="ignore"):
        v, d = np.where(none, 0.0, x.value), np.where(none, 0.0, x.bound)
        top = along(np.max, np.where(none, -np.inf, v)) if n else np.zeros(v.shape)
        weight = np.where(none, 0.0, np.exp(v - top))
        sums = along(np.sum, weight)
        value = weight / sums
        most = along(np.max, np.abs(v) + d) if n else 0.0
        widest = along(np.max, d) if n else 0.0
        r = top - v + 2 * widest
        arguments = np.abs(v) + d + most + r + 2 * q * most
        relative = np.expm1(u * (arguments + 2 * (2 * (q + 1) + 1.173 * r) + q + n))
        below = along(np.sum, value * relative) + (n + 1) * FLUSHED
        own = (1 + relative) / np.where(below < 1, 1 - below, np.nan) * (1 + 4 * u) - 1
        moved = value * np.expm1(d + widest)
        error = moved + (value + moved) * own + (1 + n) * (FLUSHED + x.rules.fmt.eta)
        error = np.where(np.isnan(error) | along(np.any, ~np.isfinite(v)), np.inf, error)
    nan = along(np.any, np.isnan(x.value) & x.exact)
    return approximated(x, value, error, np.broadcast_to(nan, value.shape))
