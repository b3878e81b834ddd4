"""Arrays of exact values with error bounds, their scales and special values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array, format_of, widen
from gemmproof.reference.formats import FORMATS, FP8, Format

# -- arrays with error bounds --------------------------------------------------------------------
# The exponent of the grid of a zero, which is a multiple of everything.
NO_GRID = 1 << 20
U64 = 2.0**-53
# The fields of a SpecArray that have an entry for each of its elements.
ELEMENTS = ("value", "error", "size", "count", "low", "exact")
# For the roundings of the bounds themselves: fewer than 2**12 for one element.
_OUTWARD = 1 + 2.0**-40


@dataclass(frozen=True, slots=True)
class Rules:
    """The permitted evaluation: the target's dots, their accumulator, the format between them.

    `target` is one of gpus.TARGETS or None for IEEE multiply-adds; `accumulator` and `between` are
    formats by name: of the sums of float dots, and of every other intermediate value. A sum in the
    narrow registers of fp8 units is added to one in `accumulator` after at most `promotion` k (128
    in CUTLASS, cuBLAS and DeepGEMM), unless "e8m13" itself is the accumulator. `drops_nan`: maximum
    and minimum return the other operand instead of NaN, as a GPU's do by default.
    """

    target: str | None = None
    accumulator: str = "fp32"
    between: str = "fp32"
    promotion: int = 128
    drops_nan: bool = False

    @property
    def fmt(self) -> Format:
        """The format of intermediate values."""
        return FORMATS[self.between]


@dataclass(frozen=True, slots=True, eq=False)
class SpecArray:
    """An array in a spec; all arrays have its shape. `fmt`: the format it is stored in, if any.

    `whole`: integers in integer arithmetic, exact below 2**31 and unknown beyond. `pure`: an
    operand, or a product of operands and constants. `held`: formats other than the intermediate
    one that partial sums may have been in. `scaled`: an fp8 operand and the scales times it.
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
        """The number of axes."""
        return self.value.ndim

    @property
    def bound(self) -> Array:
        """The largest distance of a computed element from `value`; 0 where nothing may round."""
        bound = np.where(np.isnan(self.error), np.inf, self.error * _OUTWARD)
        return np.where(self.exact, 0.0, bound)

    @property
    def reach(self) -> Array:
        """The largest magnitude that a computed element may have."""
        return np.abs(self.value) + self.bound

    @property
    def known(self) -> Array:
        """A mask of the elements that any evaluation has within a finite bound of `value`."""
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
    """stored * factor, for each element: the fp8 array, and the product of its scales."""

    stored: SpecArray
    factor: Array


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison: its result for the exact values, and where no error can change that."""

    value: Array
    certain: Array
    rules: Any

    def __bool__(self) -> bool:
        raise ValueError("spec: got a comparison as a condition, expected np.where(...)")

    def __invert__(self) -> Condition:
        return Condition(~self.value, self.certain, self.rules)

    def __and__(self, other: Any) -> Condition:
        value, certain = truth(other)
        decided = (self.certain & ~self.value) | (certain & ~value)
        return Condition(self.value & value, (self.certain & certain) | decided, self.rules)

    def __or__(self, other: Any) -> Condition:
        return ~(~self & ~Condition(*truth(other), self.rules))

    def __xor__(self, other: Any) -> Condition:
        value, certain = truth(other)
        return Condition(self.value ^ value, self.certain & certain, self.rules)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __getitem__(self, index: Any) -> Condition:
        return Condition(self.value[index], self.certain[index], self.rules)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.value.ndim

    @property
    def mask(self) -> Array:
        """The comparison as a plain mask. Raises ValueError where an error may decide it."""
        if not self.certain.all():
            raise ValueError("spec: got a mask that errors may change, expected exact operands")
        return self.value

    @property
    def number(self) -> SpecArray:
        """1 where it holds, else 0."""
        number = exactly(self.value.astype(np.float64), self.rules, None, whole=True)
        if self.certain.all():
            return number
        error, exact = np.where(self.certain, 0.0, 1.0), self.certain
        return replace(number, error=error, size=np.maximum(number.size, error), exact=exact)


def truth(x: Any) -> tuple[Array, Array]:
    """Return a condition's value, and where it is certain."""
    if isinstance(x, Condition):
        return x.value, x.certain
    if isinstance(x, SpecArray):  # a mask that is an operand: what is not 0 holds
        return (x.value != 0) | np.isnan(x.value), x.exact | (np.abs(x.value) > x.bound)
    value = np.asarray(x, bool)
    return value, np.ones(value.shape, bool)


def operand(x: Array, rules: Rules, name: str | None = None) -> SpecArray:
    """Return an operand's elements, in storage of the format called `name` (the dtype's own)."""
    fmt = format_of(x.dtype) if name is None else FORMATS[name]
    return exactly(widen(x), rules, fmt, whole=fmt.kind == "int")


def constant(x: Any, rules: Rules) -> SpecArray:
    """Return a number or array of the spec, which a kernel rounds to the intermediate format."""
    if isinstance(x, Condition):
        return x.number
    value = np.asarray(x)
    if value.dtype.kind not in "buif":
        raise TypeError(f"spec: got a constant of {value.dtype}, expected numbers")
    whole = value.dtype.kind in "bui"
    result = exactly(value.astype(np.float64), rules, None, whole)
    if whole:
        return result
    return rounded(result, rules.fmt)


def exactly(
    value: Array, rules: Rules, fmt: Format | None = None, whole: bool = False
) -> SpecArray:
    """Return float64 values that every evaluation has exactly."""
    zeros = np.zeros(value.shape)
    true = np.ones(value.shape, bool)
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    return SpecArray(rules, value, zeros, size, zeros, lowest_bit(value), true, fmt, whole, True)


def growth(n: Any, rules: Rules) -> Any:
    """Return g(n): how far n roundings, in units of u, move a monomial of magnitude 1."""
    if isinstance(n, np.ndarray) and n.dtype == bool:
        return np.where(n, np.expm1(rules.fmt.u), 0.0)
    return np.expm1(n * rules.fmt.u)


def collapse(x: SpecArray) -> SpecArray:
    """Return x as one monomial, whatever it is a sum of."""
    finite = np.isfinite(x.value)
    low = np.where(x.exact, lowest_bit(x.value), -NO_GRID)
    parts = (x.value, x.bound, np.where(finite, x.reach, 0.0), np.zeros(x.shape), low, x.exact)
    return SpecArray(x.rules, *parts, x.fmt, x.whole, scaled=x.scaled)


def rounded(x: SpecArray, fmt: Format) -> SpecArray:
    """Return x, which a kernel may have stored in a float format here, or not.

    |RN(x) - x| <= u |x| + eta / 2 for the number that it has computed, so later addends go through
    no more roundings. Unknown where x may overflow; exact where x is a value of the format.
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
    """Return whether all multiples of 2**low up to `size` are values of the format."""
    top = np.ldexp(1.0, np.minimum(np.maximum(low + fmt.p, -1080), 1023))
    inside = (size <= top) & (size <= fmt.max) & (low >= fmt.emin - fmt.p + 1)
    return np.asarray(inside | (size == 0))


def keep_exact(exact: Array, size: Array, low: Array, *formats: Format) -> Array:
    """Return a mask of the exact elements whose sums, of that size, fit in all of the formats."""
    for fmt in formats:
        if not exact.any():  # as in most formulas of floats
            break
        exact = exact & fits(size, low, fmt)
    return exact


def lowest_bit(value: Array) -> Array:
    """Return the exponent of the lowest set bit of float64 values; NO_GRID of 0, Inf and NaN."""
    mantissa, e = np.frexp(np.where(np.isfinite(value), value, 0.0))
    whole = (np.abs(mantissa) * 2.0**53).astype(np.int64)
    _, trailing = np.frexp((whole & -whole).astype(np.float64))
    return np.where(whole == 0, NO_GRID, e.astype(np.int64) - 54 + trailing)


# -- NaN and infinity ----------------------------------------------------------------------------
def settle(x: SpecArray, known: Callable[[], Array]) -> SpecArray:
    """Return x, whose values that are not finite are exact where `known()`, unknown elsewhere."""
    odd = ~np.isfinite(x.value)
    if not odd.any():
        return x
    is_known = known()
    sure, unsure = odd & is_known, odd & ~is_known
    return replace(
        x,
        error=np.where(sure, 0.0, np.where(unsure, np.inf, x.error)),
        size=np.where(odd, 0.0, x.size),
        count=np.where(odd, 0.0, x.count),
        low=np.where(odd, NO_GRID, x.low),
        exact=np.where(odd, sure, x.exact),
    )


def has_nan(x: SpecArray) -> Array:
    """Return a mask of the elements that are NaN in every evaluation."""
    return np.isnan(x.value) & x.exact


def may_vanish(x: SpecArray) -> Array:
    """Return a mask of the elements that may be computed as 0 or not, or with either sign."""
    return np.asarray(~x.exact & (np.abs(x.value) <= x.bound))


def known_sum(x: SpecArray, y: SpecArray) -> Array:
    """Return a mask of x + y where its Inf or NaN is every evaluation's."""
    return has_nan(x) | has_nan(y) | (x.known & y.known)


def known_product(x: SpecArray, y: SpecArray) -> Array:
    """Return known_sum's mask for x y: Inf times a sum multiplied out may be Inf - Inf."""
    both = x.known & y.known
    for f, g in ((x, y), (y, x)):
        out = f.pure and not g.pure
        both = both & ~(np.isinf(f.value) & (may_vanish(g) | out))
    return has_nan(x) | has_nan(y) | both


def known_quotient(x: SpecArray, y: SpecArray) -> Array:
    """Return known_sum's mask for x / y: False where y may be 0, whose sign is open."""
    sound = x.known & y.known & ((y.value != 0) | (x.exact & (x.value == 0)))
    return has_nan(x) | has_nan(y) | (sound & ~may_vanish(y))


def known_contraction(x: SpecArray, y: SpecArray, tiny: float) -> Array:
    """Return known_sum's mask for x @ y; values below `tiny` may be read as 0."""

    def some(a: Array, b: Array) -> Array:
        return np.asarray(a.astype(np.float32) @ b.astype(np.float32) > 0)

    def unsure(z: SpecArray) -> Array:
        return may_vanish(z) | ((np.abs(z.value) < tiny) & (z.value != 0))

    all_x, all_y = np.ones(x.shape, bool), np.ones(y.shape, bool)
    nan = some(has_nan(x), all_y) | some(all_x, has_nan(y))
    open_ = some(~x.known, all_y) | some(all_x, ~y.known)
    open_ |= some(np.isinf(x.value), unsure(y)) | some(unsure(x), np.isinf(y.value))
    return nan | ~open_


# -- scales --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class Unscaled:
    """Both operands of a contraction as they are stored, and their factors.

    For each element of the result: `alike` products at most have both factors in common. `most` is
    no less than s, t and s t, than the number of products, and than the sum of |x y|, with either
    factor, both or none.
    """

    stored: tuple[SpecArray, SpecArray]
    factors: tuple[Array, Array]
    alike: Array
    most: Array


def scale(x: SpecArray, by: SpecArray, how: Callable[..., Any] = np.multiply) -> Scaled | None:
    """Return x times (`how`) a scale, if x is in fp8 or scaled already and `by` is not, or None.

    Of two numbers of 8 bits neither is known to be the scale, but e8m0 is always a scale.
    """
    was = _stored(x)
    narrow = by.fmt is not None and by.fmt.itemsize == 1 and by.fmt.p > 1
    if was is None or not by.pure or narrow or by.scaled is not None:
        return None
    return Scaled(was.stored, how(was.factor, by.value))


def unscale(x: SpecArray, y: SpecArray) -> Unscaled | None:
    """Return two operands before they were scaled, if both were in fp8."""
    x_was, y_was = _stored(x), _stored(y)
    if x_was is None or y_was is None or (x.scaled is None and y.scaled is None):
        return None
    alike, parts, odd = [], [], []
    for z, axis in ((x_was, -1), (y_was, -2)):
        alike.append(_count_equal(z.factor, axis))
        size = z.stored.size
        reach = np.maximum(size, 1) * np.maximum(np.abs(z.factor), 1)
        parts.append(np.where(size > 0, reach, 0.0))
        odd.append(np.isinf(z.factor).any(axis, keepdims=True))
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.where(odd[0] | odd[1], np.inf, parts[0] @ parts[1])
    return Unscaled(
        (x_was.stored, y_was.stored), (x_was.factor, y_was.factor), np.minimum(*alike), most
    )


def fits_unscaled(was: Unscaled, registers: Iterable[Format], between: Format) -> Array:
    """Return whether x y is no finer than registers hold, nor x y s, x y t, s t than `between`."""
    sums, scales = (
        sum(
            np.minimum(z.min(axis, initial=0, keepdims=True), 0)
            for z, axis in zip(lows, (-1, -2), strict=True)
        )
        for lows in ([z.low for z in was.stored], [lowest_bit(z) for z in was.factors])
    )
    inside = sums + scales >= _finest(between)
    for fmt in registers:
        inside = inside & (sums >= _finest(fmt))
    return np.asarray(inside)


def _finest(fmt: Format) -> int:
    return fmt.emin - fmt.p + 1


def _stored(x: SpecArray) -> Scaled | None:
    if x.fmt is not None and x.fmt.name in FP8:
        return Scaled(x, np.broadcast_to(1.0, x.shape))
    return x.scaled


def _count_equal(factor: Array, axis: int) -> Array:
    """Count the most frequent number along an axis; the axis stays, of length 1."""
    lines = np.sort(np.moveaxis(factor, axis, -1))
    k = np.arange(lines.shape[-1])
    begins = np.ones(lines.shape, bool)
    begins[..., 1:] = lines[..., 1:] != lines[..., :-1]
    after = k - np.maximum.accumulate(np.where(begins, k, 0), -1)
    return np.moveaxis(after.max(-1, initial=-1, keepdims=True) + 1, -1, axis)
