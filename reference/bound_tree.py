"""How far a sum of products may lie from the exact one, whatever the order of its additions.

All arrays are float64 (..., M, N), in magnitudes.
"""

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.dot.fdpa import Unit
from gemmproof.reference.formats import Format


@dataclass(frozen=True, slots=True)
class Addends:
    """What is summed: |c|, the number of products that are not zero, the sum of their magnitudes.

    `additions`: a tree with n + 1 addends that are not zero makes n of them, so that K = 1 makes
    none and what meets only zeros stays as it is.
    """

    start: Array
    products: Array
    size: Array

    @staticmethod
    def of(a: Array, b: Array, start: Array) -> "Addends":
        """Those of start + a b, for finite float64 a (..., M, K) and b (..., K, N)."""
        products = (a != 0).astype(np.float64) @ (b != 0).astype(np.float64)
        return Addends(np.abs(start), products, np.abs(a) @ np.abs(b))

    @property
    def additions(self) -> Array:
        return np.maximum(self.products + (self.start > 0) - 1, 0)

    @property
    def total(self) -> Array:
        return self.start + self.size


def sum_to_nearest(addends: Addends, formats: tuple[Format, Format, Format]) -> tuple[Array, Array]:
    """|sum| and |sum - exact| of IEEE arithmetic: n u S + m eta / 2, S = |c| + |a||b|, in any tree.

    formats: of a, b and the accumulator. n is the number of additions, plus one where products have
    more bits than the accumulator and are rounded themselves (Jeannerod and Rump, SIMAX 34, 2013),
    so split-K, blocked loops and atomics in the accumulator's format are admitted. A fused node
    RN(s + p), s a float with n roundings over S, keeps the claim for n + 1: its rounding is at most
    |p| (s is itself a float) and at most u |s + p|; if |p| <= u S the first gives n u S + u S, else
    the second gives n u S + u (S + n u S + |p|) < (n + 1) u (S + |p|).

    Below the normal range an addition is exact, and one of the m products or fused nodes is off by
    at most eta / 2, which later roundings may enlarge by n u; by nothing where every product is a
    multiple of eta.
    """
    a_fmt, b_fmt, acc = formats
    rounded = _bits(a_fmt) + _bits(b_fmt) > acc.p
    n = addends.additions + rounded * (addends.products > 0)
    lost = 0.0 if a_fmt.eta * b_fmt.eta >= acc.eta else addends.products * acc.eta / 2
    growth = n * acc.u
    underflow = lost * (1 + growth)
    return addends.total * (1 + growth) + underflow, addends.total * growth + underflow


def sum_by_unit(
    addends: Addends, unit: Unit, formats: tuple[Format, Format, Format], part: int = 0
) -> tuple[Array, Array]:
    """|sum| and |sum - exact| of fused steps and of additions to nearest, in any tree.

    A step that joins m + 1 addends cuts at most m of them, each by less than 2**-F of the sum of
    their magnitudes T: the largest is whole, because 2 (p - 1) <= F for products and p - 1 <= F for
    c (else c is cut once more where it enters; c from an addition to nearest has that addition to
    spare). The sum is rounded once, by at most r T, r = 2**-fraction when cut and half of that to
    nearest. So with addends known to (g_i - 1) S_i, the sum is known to (g - 1) sum S_i where
    g = (1 + m 2**-F) (1 + r) max g_i, and 1 + m 2**-F <= (1 + 2**-F)**m. An addition to nearest in
    the accumulator's format, u <= 2**-F + r, is within this too. In any tree of n additions then,
    steps that join two addends being the worst, |error| <= ((1 + 2**-F)**n (1 + r)**n - 1) S. Where
    a product has more bits than the sum keeps, its own rounding adds a factor 1 + r. T counts a
    subnormal operand as 2**emin, which is how the unit aligns it: `addends` are those of `aligned`.

    With `part`, sums start from zero at least every `part` k and are added to nearest. Such a sum
    has at most min(part, products) addends, and at most ceil(part / L) steps whatever the k hold;
    then it passes at most n additions to nearest.

    Below the normal range a step is off by 2**(emin - F) for each cut and 2**(emin - fraction) for
    its rounding, at most n + (number of products) times; by nothing where every addend is a
    multiple of the last bit.
    """
    a_fmt, b_fmt, acc = formats
    n, begun = addends.additions, addends.start > 0
    r = 2.0 ** -(unit.fraction + (unit.rounding == "rne"))
    lone = (_bits(a_fmt) + _bits(b_fmt) > unit.fraction + 1) * (addends.products > 0)
    if part:
        cuts = np.maximum(np.minimum(addends.products, part) - 1, 0)
        roundings, joins = np.minimum(cuts + lone, -(-part // unit.L)), n
    else:
        cuts, roundings, joins = n + begun * (acc.p - 1 > unit.F), n + lone, 0 * n
    growth = np.expm1(
        cuts * np.log1p(2.0**-unit.F) + roundings * np.log1p(r) + joins * np.log1p(acc.u)
    )
    last = 2.0 ** (acc.emin - unit.fraction)
    step = 2.0 ** (acc.emin - unit.F) + last
    lossless = a_fmt.eta * b_fmt.eta >= last and (acc.eta >= last or not begun.any())
    underflow = 0.0 if lossless else step * (n + addends.products) * (1 + growth)
    return addends.total * (1 + growth) + underflow, addends.total * growth + underflow


def aligned(x: Array, fmt: Format) -> Array:
    """|x|, 2**emin where that is subnormal, 0 for zeros: no less than 2**e of the encoding."""
    return np.where(x == 0, 0.0, np.maximum(np.abs(x), 2.0**fmt.emin))


def _bits(fmt: Format) -> int:
    # who may ignore the low bits of fp32 operands may use them too
    return fmt.stored.p
