"""Functions of a formula, of floats and of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array, round_to, widen
from gemmproof.reference.formats import CODES, Format, format_named
from gemmproof.reference.spec.array import (
    SpecArray,
    constant,
    exactly,
    fits,
    has_nan,
    lowest_bit,
    rounded,
    settle,
)
from gemmproof.reference.spec.operations import (
    INT32,
    U32,
    broadcast,
    held_by,
    multiply,
    pair,
    to_float,
)

# -- integers ------------------------------------------------------------------------------------
Whole = Callable[[Array, Array], Array]


def whole(name: str, function: Whole) -> Callable[[Any, Any], SpecArray]:
    """Return a function of two integer arrays; unknown where operands or result may be off."""

    def evaluate(x: Any, y: Any) -> SpecArray:
        x, y = pair(x, y)
        if not (x.whole and y.whole):
            raise TypeError(f"spec: got floats for {name}, expected integers on both sides")
        with np.errstate(all="ignore"):
            value = function(x.value.astype(np.int64), y.value.astype(np.int64)).astype(np.float64)
        size, low, zeros = np.abs(value), lowest_bit(value), np.zeros(value.shape)
        exact = x.exact & y.exact & fits(size, low, INT32)
        error = np.where(exact, 0.0, np.inf)
        return SpecArray(x.rules, value, error, size, zeros, low, exact, None, True)

    return evaluate


def _left(x: Array, y: Array) -> Array:
    # a result beyond 32 bits is unknown by `fits`; one beyond 64 must not wrap back
    return np.where(y < 32, x << np.minimum(y, 31), 1 << 40)


bitwise_and = whole("&", np.bitwise_and)
bitwise_or = whole("|", np.bitwise_or)
bitwise_xor = whole("^", np.bitwise_xor)
left_shift = whole("<<", _left)
right_shift = whole(">>", lambda x, y: x >> np.clip(y, 0, 63))
floor_divide = whole("//", lambda x, y: np.where(y == 0, 1 << 40, x // np.where(y == 0, 1, y)))
remainder = whole("%", lambda x, y: np.where(y == 0, 1 << 40, x % np.where(y == 0, 1, y)))


def decode(x: SpecArray, name: str) -> SpecArray:
    """Decode integers as codes of a float format: e2m1 unpacked from a byte, or e8m0 scales.

    e2m1 takes the low four bits.
    """
    fmt = CODES[name] if name in CODES else format_named(name)
    if not (x.whole and x.exact.all()):
        raise TypeError("spec: got codes that may be rounded, expected an operand of integers")
    codes = x.value.astype(np.int64).astype(f"u{fmt.itemsize}")
    if name == "e2m1":
        codes &= np.uint8(15)
    value = codes.view(fmt.storage).astype(np.float64)
    return exactly(value, x.rules, fmt)


def invert(x: SpecArray) -> SpecArray:
    """~x."""
    return bitwise_xor(x, -1)


# -- functions -----------------------------------------------------------------------------------
# ex2.approx.ftz and the like give 0 for a subnormal
FLUSHED = 2.0**-126
_choices: list[list[str]] = []  # of each context of `approximations_unknown`


@contextmanager
def approximations_unknown() -> Iterator[list[str]]:
    """Make the elements of approximated functions unknown within.

    It gives the names of functions whose result may be exact although an argument is not: they
    choose between arguments, or round.
    """
    choices: list[str] = []
    _choices.append(choices)
    try:
        yield choices
    finally:
        _choices.remove(choices)


def _note_choice(name: str) -> None:
    for choices in _choices:
        choices.append(name)


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
        value, certain = _truth(other)
        decided = (self.certain & ~self.value) | (certain & ~value)
        return Condition(self.value & value, (self.certain & certain) | decided, self.rules)

    def __or__(self, other: Any) -> Condition:
        return ~(~self & ~Condition(*_truth(other), self.rules))

    def __getitem__(self, index: Any) -> Condition:
        return Condition(self.value[index], self.certain[index], self.rules)


def _truth(x: Any) -> tuple[Array, Array]:
    if isinstance(x, Condition):
        return x.value, x.certain
    value = np.asarray(x, bool)
    return value, np.ones(value.shape, bool)


def compare(x: Any, y: Any, holds: Callable[[Array, Array], Array]) -> Condition:
    """Compare x with y; certain where |x - y| exceeds both bounds, or nothing rounds.

    With NaN it is never certain: a kernel may test the opposite.
    """
    x, y = pair(x, y)
    apart = np.abs(x.value - y.value) > x.bound + y.bound
    numbers = ~(np.isnan(x.value) | np.isnan(y.value))
    return Condition(holds(x.value, y.value), (apart | (x.exact & y.exact)) & numbers, x.rules)


def where(condition: Any, x: Any, y: Any) -> SpecArray:
    """Return x where the condition holds, else y; where an error may decide, allow both."""
    _note_choice("where")
    rules = next(z.rules for z in (condition, x, y) if hasattr(z, "rules"))
    x, y = pair(*(z if isinstance(z, SpecArray) else constant(z, rules) for z in (x, y)))
    value, certain = _truth(condition)
    shape = np.broadcast_shapes(value.shape, x.shape)
    x, y = broadcast(x, shape), broadcast(y, shape)
    value, certain = np.broadcast_to(value, shape), np.broadcast_to(certain, shape)

    def choose(name: str) -> Array:
        return np.where(value, getattr(x, name), getattr(y, name))

    with np.errstate(invalid="ignore"):
        other = np.abs(x.value - y.value) + np.where(value, y.bound, x.bound)
        error = np.where(certain, choose("error"), np.maximum(choose("error"), other))
    size = np.where(certain, choose("size"), np.maximum(x.size, y.size))
    count = np.where(certain, choose("count"), np.maximum(x.count, y.count))
    parts = (choose("value"), error, size, count, choose("low"), choose("exact") & certain)
    return SpecArray(rules, *parts, None, x.whole and y.whole, held=held_by(x, y))


def maximum(x: Any, y: Any) -> SpecArray:
    """Return the larger of both, NaN if either is NaN.

    An error of either is an error of at most that size.
    """
    x, y = pair(x, y)
    return _extreme(x, y, np.maximum, _list_nan(x, y))


def minimum(x: Any, y: Any) -> SpecArray:
    """Return the smaller of both, NaN if either is NaN."""
    x, y = pair(x, y)
    return _extreme(x, y, np.minimum, _list_nan(x, y))


def fmax(x: Any, y: Any) -> SpecArray:
    """Return the larger of both, the number if one is NaN."""
    x, y = pair(x, y)
    return _drop_nan(x, y, np.maximum)


def fmin(x: Any, y: Any) -> SpecArray:
    """Return the smaller of both, the number if one is NaN."""
    x, y = pair(x, y)
    return _drop_nan(x, y, np.minimum)


def clip(x: Any, low: Any, high: Any) -> SpecArray:
    """Return x, no less than low and no more than high; None for no limit.

    The kernel may keep NaN or return a limit.
    """
    for limit, choose in ((low, np.maximum), (high, np.minimum)):
        x = x if limit is None else _extreme(*pair(x, limit), choose, None)
    return x


def _list_nan(x: SpecArray, y: SpecArray) -> Array:
    return np.asarray(has_nan(x) | has_nan(y))


def _drop_nan(x: SpecArray, y: SpecArray, choose: Any) -> SpecArray:
    result = _extreme(x, y, choose, None)
    result = where(has_nan(x), y, result) if has_nan(x).any() else result
    return where(has_nan(y), x, result) if has_nan(y).any() else result


def _extreme(x: SpecArray, y: SpecArray, choose: Any, nan: Array | None) -> SpecArray:
    """Return the larger or smaller of both, which is NaN for certain where `nan` is true.

    With None, or by rules that drop NaN, it may be NaN or the other operand.
    """
    _note_choice(choose.__name__)
    if nan is not None and x.rules.drops_nan:
        return _drop_nan(x, y, choose)
    value = choose(x.value, y.value)
    first = value == x.value
    # an operand that cannot be chosen adds nothing
    decided = np.abs(x.value - y.value) > x.bound + y.bound

    def chosen(name: str, otherwise: Callable[[Array, Array], Array]) -> Array:
        of_x, of_y = getattr(x, name), getattr(y, name)
        return np.where(decided, np.where(first, of_x, of_y), otherwise(of_x, of_y))

    error, size, count = (chosen(name, np.maximum) for name in ("error", "size", "count"))
    low, exact = np.where(first, x.low, y.low), chosen("exact", np.logical_and)
    parts = (value, error, size, count, low, exact, None, x.whole, False, held_by(x, y))
    numbers = ~(np.isnan(x.value) | np.isnan(y.value))
    known = x.known & y.known & numbers
    return settle(SpecArray(x.rules, *parts), known if nan is None else known | nan)


def absolute(x: SpecArray) -> SpecArray:
    """Return |x|: where an error may flip the sign, it moves |x| by less than the error."""
    return replace(x, value=np.abs(x.value), fmt=x.fmt if not x.whole else None)


def to(x: SpecArray, name: str) -> SpecArray:
    """Store x in a format, as the formula demands: floats to nearest even, integers truncated.

    An integer format takes whole numbers: the spec must round them, with np.rint or np.floor. A
    value that does not fit overflows, for floats, and must be clipped first, for integers.
    """
    fmt = format_named(name)
    if fmt.kind == "float":
        return step(x, lambda v: widen(round_to(v, fmt)), fmt)
    result = step(x, np.trunc, None)
    inside = (result.reach <= fmt.max) | (result.value == -fmt.max - 1)
    error = np.where(inside, result.error, np.inf)
    parts = (result.value, error, result.size, result.count, result.low, result.exact & inside)
    return SpecArray(x.rules, *parts, fmt, True)


def may_round(x: SpecArray, name: str) -> SpecArray:
    """Return x, which the kernel may store in a float format on the way, or may not."""
    fmt = format_named(name)
    if fmt.kind != "float":
        raise ValueError(f"spec: got may_round({name!r}), expected a float format")
    return rounded(x, fmt)


def step(x: SpecArray, function: Callable[[Array], Array], fmt: Format | None) -> SpecArray:
    """Apply an exact, never falling function: its error is its change within the bound."""
    _note_choice("step")
    with np.errstate(invalid="ignore", over="ignore"):
        value = function(x.value)
        # float64's rounding of the ends is outward
        up = function(np.nextafter(x.value + x.bound, np.inf))
        down = function(np.nextafter(x.value - x.bound, -np.inf))
        error = np.where(x.bound > 0, np.maximum(up - value, value - down), 0.0)
    # conversions to fp8 saturate Inf, or do not
    keeps = np.isnan(x.value) | (np.isinf(x.value) & (fmt is None or not fmt.is_fp8))
    return _fresh(x, value, error, error == 0, fmt, x.exact & keeps)


def exp(x: SpecArray) -> SpecArray:
    """e**x; __expf is off by at most 2 + floor(1.173 |x|) ulp, expf by 2."""
    ulps = 2 + np.floor(1.173 * x.reach)
    return _approximate(x, np.exp, lambda v, d: np.exp(v) * np.expm1(d), 2 * ulps * U32)


def tanh(x: SpecArray) -> SpecArray:
    """Hyperbolic tangent: 2 ulp (tanhf), or as 2 s - 1 with s = sigmoid(2 x) and __expf.

    The latter is off by 2 s (1 - s) times the relative error of the exponential, twice by 2 ulp of
    the quotient and one rounding of the sum, and by one rounding of the difference: 12 u. The slope
    4 s (1 - s) is at most 1, and at most 4 exp(-2 |x|).
    """

    def slope(v: Array, d: Array) -> Array:
        return np.minimum(1.0, 4 * np.exp(-2 * np.maximum(np.abs(v) - d, 0.0)))

    exponential = 2 * (2 + np.floor(1.173 * 2 * x.reach)) * U32
    absolute_error = slope(x.value, x.bound) / 2 * exponential + 12 * U32
    rise = lambda v, d: slope(v, d) * d  # noqa: E731
    return _approximate(x, np.tanh, rise, 4 * U32, absolute_error)


def erf(x: SpecArray) -> SpecArray:
    """The error function: 2 ulp (erff); its slope is 2 / sqrt(pi) exp(-x**2)."""

    def rise(v: Array, d: Array) -> Array:
        near = np.maximum(np.abs(v) - d, 0.0)
        return 2 / math.sqrt(math.pi) * np.exp(-near * near) * d

    return _approximate(x, np.vectorize(math.erf, otypes=[float]), rise, 4 * U32)


def sqrt(x: SpecArray) -> SpecArray:
    """The square root: sqrt.approx is off by 1 ulp; sqrt(x) - sqrt(x - d) is at most sqrt(d), and
    d / (2 sqrt(x - d)). Unknown where an error may make x negative."""

    def rise(v: Array, d: Array) -> Array:
        least = np.sqrt(np.maximum(v - d, 0.0))
        small = np.minimum(np.sqrt(d), np.where(least > 0, d / (2 * least), np.inf))
        return np.where(v >= d, small, np.inf)

    return _approximate(x, np.sqrt, rise, 2 * U32)


def sigmoid(x: SpecArray) -> SpecArray:
    """s = 1 / (1 + e**-x): off by 1 - s times the error of the exponential, 2 ulp of the quotient
    and one rounding of the sum, in all 5 u; 0 where the exponential overflows, as s would flush.

    Its slope s (1 - s) changes by no more than e**d within d, as abs(1 - 2 s) <= 1.
    """

    def value(v: Array) -> Array:
        far = np.exp(-np.abs(v))
        return np.where(v >= 0, 1, far) / (1 + far)

    def rise(v: Array, d: Array) -> Array:
        far = np.exp(-np.abs(v))
        return np.minimum(far / (1 + far) ** 2 * np.expm1(d), 1.0)

    ulps = 2 + np.floor(1.173 * x.reach)
    with np.errstate(over="ignore"):
        share = 1 / (1 + np.exp(np.minimum(x.value - x.bound, 700.0)))
    return _approximate(x, value, rise, share * 2 * ulps * U32 + 5 * U32)


def _approximate(
    x: SpecArray,
    function: Callable[[Array], Array],
    rise: Callable[[Array, Array], Array],
    relative: Any,
    least: Any = 0.0,
) -> SpecArray:
    """Apply a smooth function: `rise(v, d)` bounds |f(v + e) - f(v)|, |e| <= d, `relative` its own.

    A narrower intermediate format rounds the result once more. For Inf it is unknown: a formula
    with exponentials may yield Inf / Inf instead of the exact limit.
    """
    x, u = to_float(x), x.rules.fmt.u
    with np.errstate(all="ignore"):
        value = function(x.value)
        moved = np.where(x.bound > 0, rise(x.value, x.bound), 0.0)
        own = (relative + (u if u > U32 else 0.0) + 2.0**-50) * (np.abs(value) + moved)
        error = moved + np.maximum(own, least) + FLUSHED + x.rules.fmt.eta
        error = np.where(np.isinf(x.value) | bool(_choices), np.inf, error)
    nothing = np.zeros(x.shape, bool)
    return _fresh(x, value, error, nothing, None, x.exact & np.isnan(x.value))


def _fresh(
    x: SpecArray, value: Array, error: Array, exact: Array, fmt: Format | None, special: Array
) -> SpecArray:
    """Return a new monomial; `special`: where Inf or NaN is every evaluation's."""
    held = fmt if fmt is not None else x.rules.fmt
    low, size = lowest_bit(value), np.abs(value)
    with np.errstate(invalid="ignore"):
        error = np.where(size + error <= held.max, error, np.inf)
    exact = exact & fits(size, low, held)
    result = SpecArray(x.rules, value, error, size, np.zeros(value.shape), low, exact, fmt)
    return settle(result, special)


def rint(x: SpecArray) -> SpecArray:
    """Round to the nearest integer, ties to even."""
    return step(x, np.rint, None)


def floor(x: SpecArray) -> SpecArray:
    """Round to the integer below."""
    return step(x, np.floor, None)


def square(x: SpecArray) -> SpecArray:
    """x * x."""
    return multiply(x, x)
