"""Running error bounds of one accumulating chain: |computed - exact|, and |computed|.

All arrays are float64, in magnitudes: `size` bounds |acc|, `error` bounds |acc - exact|.
"""

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.bound_tree import Addends, sum_to_nearest
from gemmproof.reference.dot.fdpa import Unit
from gemmproof.reference.formats import Format


@dataclass(frozen=True, slots=True)
class Running:
    """Bounds (M, N) of an accumulator: its magnitude, and its distance from the exact sum."""

    size: Array
    error: Array


def start_at(c: Array) -> Running:
    """An accumulator that holds c exactly."""
    return Running(np.abs(c), np.zeros(c.shape))


def chain_error(
    a: Array, b: Array, start: Running, unit: Unit, formats: tuple[Format, Format, Format]
) -> Running:
    """The bound after a chain over a (..., M, K) and b (..., K, N), finite float64 values.

    formats: of a, b and the accumulator.
    """
    if unit.kind == "integer":
        return Running(start.size + np.abs(a) @ np.abs(b), start.error)
    if unit.kind == "fma":
        size, error = sum_to_nearest(Addends.of(a, b, start.size), formats)
        return Running(size, start.error + error)
    return _fused(a, b, start, unit, formats)


def _fused(
    a: Array, b: Array, start: Running, unit: Unit, formats: tuple[Format, Format, Format]
) -> Running:
    """Per step: error += n 2**-F max(|c|, 2**e) + r (|c| + |a||b|) + underflow.

    e is the largest product exponent of the step, n = L the number of addends that can be cut: the
    largest is held exactly, because 2 (p - 1) <= F for the products, and p - 1 <= F for c, or else
    n = L + 1 while c may have more than F + 1 bits. A cut is below 2**(e_max - F) and never
    enlarges an addend, so |sum| <= |c| + |a||b| without growth. The sum is then cut
    (r = 2**-fraction) or rounded to nearest (r = 2**-(fraction + 1), and |acc| grows by 1 + r).
    Where a subnormal c or the floor holds e_max up, the cuts are below 2**(emin - F). 2**e comes
    from the encodings, as the smaller of max 2**e_a max 2**e_b and sum 2**(e_a + e_b).
    """
    a_fmt, b_fmt, acc = formats
    nearest = unit.rounding == "rne"
    r = 2.0 ** -(unit.fraction + nearest)
    underflow = (unit.L + 1) * 2.0 ** (acc.emin - unit.F) + 2.0 ** (acc.emin - unit.fraction)
    size, error = start.size, start.error
    power_a, power_b = power_of(a, a_fmt), power_of(b, b_fmt)
    a, b = np.abs(a), np.abs(b)
    held = acc.p - 1 <= unit.F or not start.size.any()
    for k in range(0, a.shape[-1], unit.L):
        ks = slice(k, k + unit.L)
        p, q = power_a[..., ks], power_b[..., ks, :]
        top = np.minimum(p.max(-1)[..., :, None] * q.max(-2)[..., None, :], p @ q)
        cut = unit.L + (not held)
        total = size + a[..., ks] @ b[..., ks, :]
        error = error + cut * 2.0**-unit.F * np.maximum(size, top) + r * total + underflow
        size = total * (1 + r) + underflow if nearest else total
        held = True
    return Running(size, error)


def power_of(x: Array, fmt: Format) -> Array:
    """2**e of finite float64 values by their encoding in fmt: e >= emin, 0 for zeros."""
    _, e = np.frexp(x)
    return np.where(x == 0, 0.0, np.ldexp(1.0, np.maximum(e - 1, fmt.emin)))


def add_rounded(x: Running, y: Running, acc: Format) -> Running:
    """RN(x + y): the errors add, and u (|x| + |y|) for the rounding, 0 if subnormal or x + 0."""
    size = x.size + y.size
    u = np.where((x.size > 0) & (y.size > 0), acc.u, 0.0)
    return Running(size * (1 + u), x.error + y.error + u * size)
