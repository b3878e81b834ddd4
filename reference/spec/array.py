"""SpecArray: float64 values with a running bound of what a kernel's evaluation may be off by.

The claim, for every element, about any evaluation of the same formula in the declared formats that
associates its sums, distributes its products over them, and fuses x * y + z as it likes:

    |computed - value| <= error,        computed = value where `exact` holds,

while no partial product leaves the normal range of its format. `size` bounds the sum of the
magnitudes of all monomials. `count` bounds, in units of u, the roundings of this array's own sums
and outer products: whatever is added later may have been what an accumulator started from, and have
gone through them. A monomial that goes through n more roundings moves by at most

    g(n) (size + error),        g(n) = exp(n u) - 1 >= (1 + u)**n - 1,

so every rule has the form error + g(n) (size + error), without terms of higher order to leave out:

* x + y: each side goes through one addition, and through the roundings of the other. What is an
  exact zero is added exactly, and counts for nothing.
* x * y, y `pure` (an operand, or a product of operands and constants; it may be inside a sum over
  k): one rounding of every monomial, none for a power of two. Of two sums one may be multiplied
  out, over the other as it was computed: |x| times the monomials of y, or the reverse.
* a fused node RN(x y + z) has one of the two roundings that are charged.

`low` is an exponent such that every monomial is a multiple of 2**low. Where size <= 2**(p + low) in
every format `held` that a partial sum may be in, each partial sum in whatever order is a multiple
of 2**low of at most p bits, so nothing rounds, and `exact` holds. `error` is kept all the same, for
what comes later.

Inf and NaN are values like others where any evaluation must have them: exact, with size 0. Where
evaluations may differ, and where something may overflow, the bound is Inf: unknown. `special` says
which is which.

float64's own roundings of the value are charged alike, with 2**-53, so `error` bounds the distance
to the exact value of the formula too.
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
# For the roundings of the bounds themselves: fewer than 2**12 for one element.
_OUTWARD = 1 + 2.0**-40


@dataclass(frozen=True, slots=True)
class Rules:
    """How the kernel may evaluate: the target's dots, their accumulator, what is between them.

    `target` is one of gpus.TARGETS or None for IEEE multiply-adds; `accumulator` and `between` are
    formats by name: of the sums of float dots, and of every other intermediate value. A sum in the
    narrow registers of fp8 units is added to one in `accumulator` after at most `promotion` k (128
    in CUTLASS, cuBLAS and DeepGEMM), unless "e8m13" itself is the accumulator.
    """

    target: str | None = None
    accumulator: str = "fp32"
    between: str = "fp32"
    promotion: int = 128

    @property
    def fmt(self) -> Format:
        """The format of intermediate values."""
        return FORMATS[self.between]


@dataclass(frozen=True, slots=True, eq=False)
class SpecArray:
    """An array in a spec; all arrays have its shape. `fmt`: the format it is stored in, if any.

    `whole`: integers in integer arithmetic, exact below 2**31 and unknown beyond. `pure`: an
    operand, or a product of operands and constants. `held`: formats besides the intermediate one
    that partial sums may have been in. `scaled`: of an fp8 operand times scales, what they were.
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
    held: tuple[str, ...] = ()
    scaled: Scaled | None = None

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
        bound = np.where(np.isnan(self.error), np.inf, self.error * _OUTWARD)
        return np.where(self.exact, 0.0, bound)

    @property
    def reach(self) -> Array:
        """The largest magnitude that a computed element may have."""
        return np.abs(self.value) + self.bound

    @property
    def known(self) -> Array:
        """Where any evaluation has `value` within a finite bound."""
        return np.isfinite(self.bound)

    def __bool__(self) -> bool:
        raise ValueError("spec: got an array as a condition, expected np.where(condition, x, y)")

    def __iter__(self) -> Any:
        if not self.ndim:
            raise TypeError("spec: got a number to iterate over, expected an array")
        return (self[i] for i in range(self.shape[0]))  # type: ignore[index]

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """stored * factor, for each element: what is stored in fp8, and the product of its scales."""

    stored: SpecArray
    factor: Array


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
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    return SpecArray(rules, value, zeros, size, zeros, lowest_bit(value), true, fmt, whole, True)


def growth(n: Any, rules: Rules) -> Any:
    """g(n): how far n roundings, in units of u, move a monomial of magnitude 1."""
    return np.expm1(n * rules.fmt.u)


def collapse(x: SpecArray) -> SpecArray:
    """x as one monomial, whatever it is a sum of."""
    finite = np.isfinite(x.value)
    low = np.where(x.exact, lowest_bit(x.value), -NO_GRID)
    parts = (x.value, x.bound, np.where(finite, x.reach, 0.0), np.zeros(x.shape), low, x.exact)
    return SpecArray(x.rules, *parts, x.fmt, x.whole, scaled=x.scaled)


def rounded(x: SpecArray, fmt: Format) -> SpecArray:
    """x, which a kernel may have stored in a float format here, or not.

    |RN(x) - x| <= u |x| + eta / 2 for the number that it has computed, so what is added later goes
    through no more roundings. Unknown where x may overflow; exact where x is a value of the format.
    """
    reach = x.reach
    error = x.error + fmt.u * reach + fmt.eta / 2
    exact = x.exact & fits(reach, lowest_bit(x.value), fmt)
    error = np.where(exact, x.error, error)
    size = np.where(exact, x.size, np.maximum(x.size, reach * (1 + fmt.u) + fmt.eta))
    odd = ~np.isfinite(x.value)
    keeps = np.isnan(x.value) | (odd & (not fmt.is_fp8))  # conversions to fp8 saturate Inf
    error = np.where((odd & x.known & keeps) | (reach <= fmt.max), error, np.inf)
    size, exact = np.where(odd, 0.0, size), np.where(odd, x.exact & keeps, exact)
    parts = (x.value, error, size, x.count, x.low, exact)
    return SpecArray(x.rules, *parts, None, False, x.pure, x.held, x.scaled)


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
