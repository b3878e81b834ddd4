"""Functions of a formula, of floats and of integers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array, round_to, widen
from gemmproof.reference.formats import CODES, Format, format_named
from gemmproof.reference.spec.array import (
    NO_GRID,
    Condition,
    SpecArray,
    constant,
    exactly,
    fits,
    has_nan,
    keep_exact,
    lowest_bit,
    rounded,
    settle,
    truth,
)
from gemmproof.reference.spec.operations import (
    INT32,
    U32,
    DeferredProduct,
    add,
    broadcast,
    defer,
    divide,
    held_by,
    multiply,
    negative,
    pair,
    rules_of,
    spread,
    to_float,
    total,
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


def invert(x: Any) -> Any:
    """~x."""
    return ~x if isinstance(x, Condition) else bitwise_xor(x, -1)


def logic(of_integers: Callable[[Any, Any], SpecArray], of_masks: Any) -> Callable[[Any, Any], Any]:
    """Return an operation of integers that is also one of comparisons and masks."""

    def evaluate(x: Any, y: Any) -> Any:
        if not any(isinstance(z, Condition) for z in (x, y)):
            return of_integers(x, y)
        rules = rules_of(x, y)
        return of_masks(*(Condition(*truth(z), rules) for z in (x, y)))

    return evaluate


def of_truth(of_masks: Any) -> Callable[..., Condition]:
    """Return an operation of comparisons and masks; of numbers, what is not 0 holds."""
    return lambda *x: of_masks(*(Condition(*truth(z), rules_of(*x)) for z in x))


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
    value, certain = truth(condition)
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


def times(x: Any, y: Any) -> SpecArray | DeferredProduct:
    """x y; by a mask it is x or 0."""
    for z, mask in ((x, y), (y, x)):
        if _is_mask(mask) and not _is_mask(z):
            rules = rules_of(x, y)
            number = spread(z) if hasattr(z, "rules") else constant(z, rules)
            return select(number, Condition(*truth(mask), rules))
    product = defer(x, y)
    return multiply(spread(x), spread(y)) if product is None else product


def _is_mask(x: Any) -> bool:
    return isinstance(x, Condition) or (isinstance(x, np.ndarray) and x.dtype.kind == "b")


def select(x: SpecArray, mask: Condition) -> SpecArray:
    """Return x where the mask holds, else 0: exact, and in the format of x.

    A kernel may multiply by the mask or leave elements out, so that what is not finite may give NaN
    or 0: it is unknown.
    """
    _note_choice("where")
    shape = np.broadcast_shapes(x.shape, mask.shape)
    x, holds = broadcast(x, shape), np.broadcast_to(mask.value, shape)
    certain = np.broadcast_to(mask.certain, shape)
    result = masked(x, holds) if certain.all() else where(mask, x, 0 if x.whole else 0.0)
    unknown = ~(holds & certain) & ~(x.known & np.isfinite(x.value))
    if not unknown.any():
        return result
    error, exact = np.where(unknown, np.inf, result.error), result.exact & ~unknown
    return replace(result, error=error, exact=exact)


def masked(x: SpecArray, holds: Array) -> SpecArray:
    """Return x where the mask holds, else 0, whatever x is there."""
    fields = {"value": 0.0, "error": 0.0, "size": 0.0, "count": 0.0, "low": NO_GRID, "exact": True}
    own: dict[str, Any] = {n: np.where(holds, getattr(x, n), z) for n, z in fields.items()}
    if x.scaled is not None:
        own["scaled"] = replace(x.scaled, stored=masked(x.scaled.stored, holds))
    return replace(x, **own)


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

    def known() -> Array:
        both = x.known & y.known & numbers
        return both if nan is None else both | nan

    return settle(SpecArray(x.rules, *parts), known)


def largest(x: SpecArray, axis: Any = None, keepdims: bool = False) -> SpecArray:
    """Return the largest element along axes; NaN may be dropped or kept."""
    return _choose_along(x, axis, keepdims, np.max)


def smallest(x: SpecArray, axis: Any = None, keepdims: bool = False) -> SpecArray:
    """Return the smallest element along axes; NaN may be dropped or kept."""
    return negative(_choose_along(negative(x), axis, keepdims, np.max))


def _choose_along(x: SpecArray, axis: Any, keepdims: bool, choose: Any) -> SpecArray:
    """Return the largest element: off by no more than one that some evaluation may choose.

    Such an element reaches the largest lower end of all. If m is the largest value, the computed
    one is no less than m less the error of m's element, and no more than any of their upper ends.
    """
    _note_choice("maximum")

    def along(z: Array, reduce: Any = np.max, **options: Any) -> Array:
        return np.asarray(reduce(z, axis=axis, keepdims=keepdims, **options))

    value, nan = along(x.value), along(np.isnan(x.value), np.any)
    with np.errstate(invalid="ignore"):
        least = np.max(x.value - x.bound, axis=axis, keepdims=True)
        may = ~(x.value + x.bound < least)
    error, size, count = (
        along(np.where(may, z, 0.0), initial=0.0) for z in (x.error, x.size, x.count)
    )
    low = along(np.where(may, x.low, NO_GRID), np.min, initial=NO_GRID)
    exact = along(~may | x.exact, np.all)
    parts = (np.where(nan, np.nan, value), error, size, count, low, exact)
    result = SpecArray(x.rules, *parts, None, x.whole, False, x.held)
    return settle(result, lambda: ~nan & along(~may | x.known, np.all))


def mean(x: SpecArray, axis: Any = None, keepdims: bool = False) -> SpecArray:
    """The sum along axes over the number of its addends."""
    result = total(x, axis, keepdims)
    return divide(result, float(max(1, x.value.size // max(1, result.value.size))))


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


def exp2(x: SpecArray) -> SpecArray:
    """2**x: 2 ulp (exp2f), and a relative error of 2**-22 (ex2.approx in the PTX ISA)."""
    rise = lambda v, d: np.exp2(v) * np.expm1(d * math.log(2))  # noqa: E731
    return _approximate(x, np.exp2, rise, 4 * U32)


def log(x: SpecArray) -> SpecArray:
    """The natural logarithm: __logf is off by 2**-21.41 between 0.5 and 2, elsewhere by 3 ulp, logf
    by 1 ulp. log(x) - log(x - d) is -log(1 - d / x). Unknown where an error may make x negative."""
    return _approximate(x, np.log, _log_rise, 6 * U32, _near_1(x, 2.0**-21.41))


def log2(x: SpecArray) -> SpecArray:
    """The logarithm to base 2: __log2f is off by 2**-22 between 0.5 and 2, elsewhere by 2 ulp."""
    rise = lambda v, d: _log_rise(v, d) / math.log(2)  # noqa: E731
    return _approximate(x, np.log2, rise, 4 * U32, _near_1(x, 2.0**-22))


def _log_rise(v: Array, d: Array) -> Array:
    return np.where(v > d, -np.log1p(-d / v), np.inf)


def _near_1(x: SpecArray, error: float) -> Array:
    return np.where((x.value + x.bound >= 0.5) & (x.value - x.bound <= 2), error, 0.0)


def rsqrt(x: Any) -> SpecArray:
    """1 / sqrt(x), whose bound is that of a root and a quotient; rsqrt.approx is off by less."""
    return divide(1.0, sqrt(x))


def power(x: Any, y: Any) -> SpecArray:
    """x**y for y = 0, 1, 2, ..., -1, 0.5 or -0.5, or 2 to the power of integers, exactly."""
    if isinstance(y, SpecArray):
        if not (y.whole and y.exact.all() and np.all(np.asarray(x) == 2)):
            raise TypeError("spec: got a power of an array, expected 2 to the power of integers")
        return rounded(exactly(np.exp2(y.value), y.rules), y.rules.fmt)
    if isinstance(y, int) and y >= 0:
        return functools.reduce(multiply, [x] * y) if y else add(multiply(x, 0), 1)
    special = {0.5: sqrt, -0.5: rsqrt, -1: lambda x: divide(1.0, x)}
    if y not in special:
        raise TypeError(f"spec: got a power of {y!r}, expected 0, 1, 2, ..., -1, 0.5 or -0.5")
    return special[y](x)


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
        error = np.where(np.isinf(x.value), np.inf, error)
    return approximated(x, value, error, x.exact & np.isnan(x.value))


def approximated(x: SpecArray, value: Array, error: Array, nan: Array) -> SpecArray:
    """Return the values of an approximated function, with its error; `nan`: NaN for certain."""
    error = np.where(bool(_choices), np.inf, error)
    return _fresh(x, value, error, np.zeros(x.shape, bool), None, nan)


def _fresh(
    x: SpecArray, value: Array, error: Array, exact: Array, fmt: Format | None, special: Array
) -> SpecArray:
    """Return a new monomial; `special`: where Inf or NaN is every evaluation's."""
    held = fmt if fmt is not None else x.rules.fmt
    low, size = lowest_bit(value), np.abs(value)
    with np.errstate(invalid="ignore"):
        error = np.where(size + error <= held.max, error, np.inf)
    exact = keep_exact(exact, size, low, held)
    result = SpecArray(x.rules, value, error, size, np.zeros(value.shape), low, exact, fmt)
    return settle(result, lambda: special)


def rint(x: SpecArray) -> SpecArray:
    """Round to the nearest integer, ties to even."""
    return step(x, np.rint, None)


def floor(x: SpecArray) -> SpecArray:
    """Round to the integer below."""
    return step(x, np.floor, None)


def ceil(x: SpecArray) -> SpecArray:
    """Round to the integer above."""
    return step(x, np.ceil, None)


def trunc(x: SpecArray) -> SpecArray:
    """Round to the integer nearer to 0."""
    return step(x, np.trunc, None)


def square(x: SpecArray) -> SpecArray:
    """x * x."""
    return multiply(x, x)
