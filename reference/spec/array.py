"""SpecArray: float64 values with a running bound of what a kernel's evaluation may be off by.

The claim, for every element, about any evaluation of the same formula in the declared formats that
associates its sums and distributes its products as it likes:

    |computed - value| <= error / (1 - count u),        computed = value where `exact` holds.

`size` bounds the sum of the magnitudes of all monomials, and `count` the roundings that any of them
goes through, in units of u. Adding x + y charges u for the new rounding over both sizes, and lets
each side ride through the roundings of the other, n_x u size_y + n_y u size_x: a bias may be what
an accumulator starts from, and (x + y) + z is covered when it is computed as x + (y + z). A product
charges one rounding over the product of the sizes, which is also the sum of the sizes of the
products if it is distributed. A factor that is `pure` may be: a scale inside a sum over k. Of two
sums nobody multiplies out the product, so both are collapsed first: each is one monomial then, off
by what it was off. Terms of second order are within 1 / (1 - count u), since
(1 + u)**n - 1 <= n u / (1 - n u) (Higham, Accuracy and Stability, lemma 3.1).

`low` is an exponent such that every monomial is a multiple of 2**low. Where size <= 2**(p + low)
at every step so far, each partial sum in whatever order is a multiple of 2**low of at most p bits,
so nothing rounds, and `exact` holds. `error` is kept all the same, for what comes later.

float64's own roundings are charged alike, with 2**-53, so `error` bounds the distance to the exact
value of the formula too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, format_of, widen
from gemmproof.reference.formats import FORMATS, Format

# The exponent of the grid of a zero: it is a multiple of everything.
NO_GRID = 1 << 20
U64 = 2.0**-53
# The fields of a SpecArray that have an entry for each of its elements.
ELEMENTS = ("value", "error", "size", "count", "low", "exact")


@dataclass(frozen=True, slots=True)
class Rules:
    """How the kernel may evaluate: the target's dots, their accumulator, what is between them.

    `target` is one of gpus.TARGETS or None for IEEE multiply-adds; `accumulator` and `between` are
    formats by name: of the sums of float dots, and of every other intermediate value.
    """

    target: str | None = None
    accumulator: str = "fp32"
    between: str = "fp32"

    @property
    def fmt(self) -> Format:
        """The format of intermediate values."""
        return FORMATS[self.between]


@dataclass(frozen=True, slots=True, eq=False)
class SpecArray:
    """An array in a spec; all arrays have its shape. `fmt`: the format it is stored in, if any.

    `whole`: integers in integer arithmetic, exact below 2**31 and unknown beyond. `pure`: an
    operand, or a product of operands and constants.
    """

    rules: Rules
    value: Array
    error: Array
    size: Array
    count: Array
    low: Array
    exact: Array
    fmt: Format | None = None
    whole: bool = False
    pure: bool = False

    # Operators, numpy's functions and methods are installed by `operators`.

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return self.value.ndim

    @property
    def bound(self) -> Array:
        """How far a computed element may lie from `value`; 0 where nothing may round."""
        slack = 1 - self.count * self.rules.fmt.u
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = np.where(slack > 0.5, self.error / slack, np.inf)
        return np.where(self.exact, 0.0, np.where(np.isnan(bound), np.inf, bound))

    @property
    def reach(self) -> Array:
        """The largest magnitude that a computed element may have."""
        return np.abs(self.value) + self.bound

    def __bool__(self) -> bool:
        raise ValueError("spec: got an array as a condition, expected np.where(condition, x, y)")

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("spec: got a number to iterate over, expected an array")
        return (self[i] for i in range(self.shape[0]))  # type: ignore[index]

    def __len__(self) -> int:
        return self.shape[0]


def operand(x: Array, rules: Rules, name: str | None = None) -> SpecArray:
    """An operand's elements, a storage array of the format called `name` (the dtype's own)."""
    fmt = format_of(x.dtype) if name is None else FORMATS[name]
    return exactly(widen(x), rules, fmt, whole=fmt.kind == "int")


def constant(x: Any, rules: Rules) -> SpecArray:
    """A number or array written in the spec; a kernel has it rounded to the intermediate format."""
    value = np.asarray(x)
    if value.dtype.kind not in "buif":
        raise TypeError(f"spec: got a constant of {value.dtype}, expected numbers")
    whole = value.dtype.kind in "bui"
    made = exactly(value.astype(np.float64), rules, None, whole)
    if whole:
        return made
    return rounded(made, rules.fmt)


def exactly(
    value: Array, rules: Rules, fmt: Format | None = None, whole: bool = False
) -> SpecArray:
    """float64 values that every evaluation has exactly."""
    zeros = np.zeros(value.shape)
    true = np.ones(value.shape, bool)
    size = np.abs(value)
    return SpecArray(rules, value, zeros, size, zeros, lowest_bit(value), true, fmt, whole, True)


def collapse(x: SpecArray) -> SpecArray:
    """x as one monomial, whatever it is a sum of."""
    low = np.where(x.exact, lowest_bit(x.value), -NO_GRID)
    zeros = np.zeros(x.shape)
    return SpecArray(x.rules, x.value, x.bound, x.reach, zeros, low, x.exact, x.fmt, x.whole)


def rounded(x: SpecArray, fmt: Format) -> SpecArray:
    """x, which a kernel may have rounded to a float format here, or not.

    |RN(x) - x| <= u |x| + eta / 2; Inf where x may overflow; exact where every monomial is a
    multiple of one unit and size <= 2**p units.
    """
    rules, size = x.rules, x.size * (1 + fmt.u) + fmt.eta
    error = x.error + fmt.u * (x.size + x.error) + fmt.eta / 2
    error = np.where(x.reach > fmt.max, np.inf, error)
    count = x.count + fmt.u / rules.fmt.u
    exact = x.exact & fits(x.size, x.low, fmt)
    return SpecArray(rules, x.value, error, size, count, x.low, exact, pure=x.pure)


def fits(size: Array, low: Array, fmt: Format) -> Array:
    """Whether all multiples of 2**low up to `size` are values of the format."""
    top = np.ldexp(1.0, np.clip(low + fmt.p, -1080, 1023))
    inside = (size <= top) & (size <= fmt.max) & (low >= fmt.emin - fmt.p + 1)
    return np.asarray(inside | (size == 0))


def lowest_bit(value: Array) -> Array:
    """The exponent of the lowest set bit of float64 values; NO_GRID of 0, Inf and NaN."""
    mantissa, e = np.frexp(np.where(np.isfinite(value), value, 0.0))
    whole = (np.abs(mantissa) * 2.0**53).astype(np.int64)
    _, trailing = np.frexp((whole & -whole).astype(np.float64))
    return np.where(whole == 0, NO_GRID, e.astype(np.int64) - 54 + trailing)
