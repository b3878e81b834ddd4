"""Elementwise operations, gathers and moves of a formula."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.provenance import Heartbeat
from gemmproof.reference.spec.array import (
    ELEMENTS,
    NO_GRID,
    U64,
    Condition,
    Rules,
    Scaled,
    SpecArray,
    constant,
    fits,
    growth,
    keep_exact,
    known_product,
    known_quotient,
    known_sum,
    rounded,
    scale,
    settle,
)

ACTIVITY = "evaluating the formula"  # as progress shows it

# -- arithmetic ----------------------------------------------------------------------------------
INT32 = FORMATS["int32"]
U32 = FORMATS["fp32"].u


def add(x: Any, y: Any) -> SpecArray:
    """x + y: error_x + error_y + g(n_y + 1) (size_x + error_x) + g(n_x + 1) (size_y + error_y).

    An exact 0 is added exactly.
    """
    x, y = pair(x, y)
    full_x, full_y = x.size + x.error, y.size + y.error
    both = (full_x > 0) & (full_y > 0)
    moved = growth(y.count + 1, x.rules) * full_x + growth(x.count + 1, x.rules) * full_y
    error = x.error + y.error + np.where(both, moved, 0.0)
    count = np.where(both, x.count + y.count + 1, np.maximum(x.count, y.count))
    with np.errstate(invalid="ignore"):
        value = x.value + y.value
    result = _combine(x, y, value, error, x.size + y.size, count, np.minimum(x.low, y.low))
    return settle(result, lambda: known_sum(x, y))


def negative(x: SpecArray) -> SpecArray:
    """-x, exactly."""
    return replace(x, value=-x.value)


def subtract(x: Any, y: Any) -> SpecArray:
    """x - y, as x + (-y)."""
    x, y = pair(x, y)
    return add(x, negative(y))


def multiply(x: Any, y: Any) -> SpecArray:
    """x y: e = error_x size_y + error_y size_x + error_x error_y, and g(1) (size + e), and eta for
    every product that may underflow.

    Of two sums e is that of the computed values, and the product's rounding is over the larger of
    |x| size_y and size_x |y|: one may be multiplied out. A scaled operand may be a sum, so that of
    it and its scale only the scale spares the rounding by being a power of two.
    """
    x, y = to_alike(x, y)  # what depends on one operand is computed before it is repeated
    rules, fmt = x.rules, x.rules.fmt
    out = x.pure or y.pure
    with np.errstate(invalid="ignore", over="ignore"):
        value = x.value * y.value
        at_x, at_y = (z.size if out else np.abs(z.value) for z in (x, y))
        size = x.size * y.size if out else np.maximum(x.reach * y.size, x.size * y.reach)
        error = _product_error(x, at_x, y, at_y)
        of_x, of_y = scale(x, y), scale(y, x)
        spares_x, spares_y = (s is None and _is_power(z) for z, s in ((x, of_x), (y, of_y)))
        rounds = ~np.asarray(spares_x | spares_y)
        products = 1 + (x.count + y.count if out else 0.0)
        some = (size > 0) | (error > 0)
        error = error + growth(rounds, rules) * (size + error) + some * products * fmt.eta
    count = x.count + y.count + 1 if out else np.ones(value.shape)
    if x.pure and y.pure:
        count = np.zeros(value.shape)  # nothing is added before
    low = np.where((x.low >= NO_GRID) | (y.low >= NO_GRID), NO_GRID, x.low + y.low)
    result = _combine(x, y, value, error, size, count, low, x.pure and y.pure)
    if (was := of_x or of_y) is not None:
        factor = np.broadcast_to(was.factor, value.shape)
        result = replace(result, scaled=Scaled(broadcast(was.stored, value.shape), factor))
    return settle(result, lambda: known_product(x, y))


def _product_error(x: SpecArray, at_x: Array, y: SpecArray, at_y: Array) -> Array | float:
    """Return error_x at_y + error_y at_x + error_x error_y; mostly both have no error."""
    sound = all(np.isfinite(z).all() for z in (at_x, at_y))
    if sound and not (x.error.any() or y.error.any()):
        return 0.0
    return x.error * at_y + y.error * at_x + x.error * y.error


def divide(x: Any, y: Any) -> SpecArray:
    """x / y: (error_x + |q| error_y) / (|y| - error_y), and the division's own; exact where y is a
    power of two.

    div.full.f32, which Triton emits for `/`, is off by at most 2 ulp (PTX ISA), 4 u of the
    quotient; so is rcp.approx (1 ulp) with the product that follows it. A narrower format rounds
    once more. y may be divided by factor by factor. Unknown where y or 1 / y may leave the normal
    range.
    """
    x, y = pair(x, y)
    x, y = to_float(x), to_float(y)
    rules, fmt = x.rules, x.rules.fmt
    with np.errstate(all="ignore"):
        value = x.value / y.value
        least = np.abs(y.value) - y.bound
        error = (x.error + np.abs(value) * y.bound) / least
        size = x.size / least
        quotient = 4 * min(U32, fmt.u) + (fmt.u if fmt.u > U32 else 0.0)
        own = quotient / fmt.u * (1 + y.count)
        error = error + growth(own, rules) * (size + error) + (1 + x.count) * fmt.eta
        error = error + U64 * np.abs(value)
    power = _is_power(y)
    normal = (least >= 2.0**fmt.emin) & (y.reach <= 2.0**-fmt.emin)
    error = np.where(normal, error, np.inf)
    _, e = np.frexp(y.value)
    low = np.where(power & (x.low < NO_GRID), x.low - e + 1, -NO_GRID)
    low = np.where((x.low >= NO_GRID) & (y.value != 0), NO_GRID, low)
    exact = keep_exact(x.exact & power, size, low, fmt, *_formats(x.held))
    error = _overflow(error, size, fmt.max)
    pure = x.pure and y.pure
    count = np.zeros(value.shape) if pure else x.count + own
    scaled = scale(x, y, np.divide)
    parts = (value, error, size, count, low, exact, None, False, pure, x.held, scaled)
    return settle(SpecArray(rules, *parts), lambda: known_quotient(x, y))


def total(x: Any, axis: Any = None, keepdims: bool = False) -> SpecArray:
    """The sum along axes as `add` makes it, in any order: each addend goes through the additions
    and through the roundings of all the others, but for those that are exactly 0."""
    if isinstance(x, DeferredProduct):
        return _total_of_bands(x, axis, keepdims)
    x = spread(x)

    def over(z: Array, keep: bool = keepdims) -> Array:
        return np.asarray(np.sum(z, axis=axis, keepdims=keep))

    full = x.size + x.error
    real = full > 0
    count = np.where(real, x.count, 0.0)
    through = over(count + real, True) - count - real
    with np.errstate(invalid="ignore"):
        value, size = over(x.value), over(x.size)
        addends = x.value.size // max(1, value.size)
        error = over(x.error + growth(through, x.rules) * full + addends * U64 * x.size)
    low = np.asarray(np.min(x.low, axis=axis, keepdims=keepdims, initial=NO_GRID))
    every = np.asarray(np.all(x.exact, axis=axis, keepdims=keepdims))
    fmt = INT32 if x.whole else x.rules.fmt
    exact = keep_exact(every, size, low, fmt, *_formats(x.held))
    error = np.where(exact, 0.0, np.inf) if x.whole else _overflow(error, size, fmt.max)
    count = np.maximum(over(count + real) - 1, 0.0)

    def known() -> Array:
        nan = np.isnan(x.value) & x.exact
        every = np.all(x.known, axis=axis, keepdims=keepdims)
        return np.asarray(np.any(nan, axis=axis, keepdims=keepdims) | every)

    result = SpecArray(x.rules, value, error, size, count, low, exact, None, x.whole, False, x.held)
    return settle(result, known)


def pair(x: Any, y: Any) -> tuple[SpecArray, SpecArray]:
    """Return both as arrays of one shape."""
    x, y = to_alike(x, y)
    if x.shape == y.shape:
        return x, y
    shape = np.broadcast_shapes(x.shape, y.shape)
    return broadcast(x, shape), broadcast(y, shape)


def to_alike(x: Any, y: Any) -> tuple[SpecArray, SpecArray]:
    """Return both as arrays that broadcast, of integers or of floats."""
    x, y = both(x, y)
    try:
        _ = x.shape == y.shape or np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise ValueError(
            f"spec: got shapes {x.shape} and {y.shape}, expected ones that broadcast"
        ) from None
    if x.whole != y.whole:
        x, y = to_float(x), to_float(y)
    return x, y


def both(x: Any, y: Any) -> tuple[SpecArray, SpecArray]:
    """Return both as SpecArrays, if one is a number or a plain array."""
    if isinstance(x, SpecArray) and isinstance(y, SpecArray):
        return x, y
    rules = rules_of(x, y)
    x, y = (z if isinstance(z, SpecArray) else constant(z, rules) for z in (x, y))
    return x, y


def rules_of(*arrays: Any) -> Rules:
    """Return the rules of the first array that has some."""
    rules: Rules = next(z.rules for z in arrays if hasattr(z, "rules"))
    return rules


def to_float(x: SpecArray) -> SpecArray:
    """Convert integers to the intermediate format: one rounding where they are too long.

    A sum of integers may be converted in `count` + 1 slices, which are added as floats.
    """
    if not x.whole:
        return x
    if x.fmt is not None and x.fmt.p <= x.rules.fmt.p:
        return replace(x, whole=False)
    if not x.count.any():
        return rounded(replace(x, whole=False), x.rules.fmt)
    exact = x.exact & fits(x.size, x.low, x.rules.fmt)
    error = x.error + growth(x.count + ~exact, x.rules) * x.size
    return replace(x, error=error, exact=exact, fmt=None, whole=False)


def broadcast(x: SpecArray, shape: tuple[int, ...]) -> SpecArray:
    """Return x repeated to a shape."""
    if x.shape == shape:
        return x
    return apply(x, lambda z: np.broadcast_to(z, shape))


def apply(x: SpecArray, move: Any) -> SpecArray:
    """Return x with its elements moved by a function of arrays."""
    moved = {name: move(getattr(x, name)) for name in ELEMENTS}
    if x.scaled is not None:
        moved["scaled"] = Scaled(apply(x.scaled.stored, move), move(x.scaled.factor))
    return replace(x, **moved)


def held_by(*arrays: SpecArray) -> tuple[str, ...]:
    """Return the formats that partial sums of any of the arrays may be in."""
    return tuple(dict.fromkeys(name for x in arrays for name in x.held))


def _combine(
    x: SpecArray,
    y: SpecArray,
    value: Array,
    error: Array,
    size: Array,
    count: Array,
    low: Array,
    pure: bool = False,
) -> SpecArray:
    rules, whole, held = x.rules, x.whole, held_by(x, y)
    fmt = INT32 if whole else rules.fmt
    exact = keep_exact(x.exact & y.exact, size, low, fmt, *_formats(held))
    count, low, exact = (
        z if z.shape == value.shape else np.broadcast_to(z, value.shape)
        for z in (count, low, exact)
    )
    if whole:
        error = np.where(exact, 0.0, np.inf)
    else:
        error = _overflow(error + U64 * np.abs(value), size, fmt.max)
    return SpecArray(rules, value, error, size, count, low, exact, None, whole, pure, held)


def _formats(held: tuple[str, ...]) -> Iterator[Format]:
    return (FORMATS[name] for name in held)


def _is_power(x: SpecArray) -> Array:
    """Return a mask of x where it is one power of two: products and quotients by it are exact."""
    mantissa, _ = np.frexp(x.value)
    return np.asarray((np.abs(mantissa) == 0.5) & x.exact & x.pure)


def _overflow(error: Array, size: Array, top: float) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(size + error <= top, error, np.inf)


# -- gathers -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """base[ids] of a base (E, K, N) and ids of any axes, spread only for other operations than `@`.

    Operators, numpy's functions and methods are installed in spec/__init__.py.
    """

    base: SpecArray
    ids: Array

    @property
    def rules(self) -> Any:
        """The base's."""
        return self.base.rules

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""
        return (*self.ids.shape, *self.base.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.ids.ndim + 2

    @property
    def mT(self) -> Gathered:
        """Every matrix transposed."""
        return Gathered(apply(self.base, lambda z: np.swapaxes(z, -1, -2)), self.ids)

    def spread(self) -> SpecArray:
        """Return all matrices, copied."""
        return apply(self.base, lambda z: z[self.ids])


@dataclass(frozen=True, slots=True, eq=False)
class DeferredProduct:
    """The product of factors that broadcast to `shape`, multiplied only for the bands of a sum.

    Every other operation multiplies all of it. Its operators are installed as those of `Gathered`.
    """

    factors: tuple[SpecArray | Gathered, ...]
    shape: tuple[int, ...]

    @property
    def rules(self) -> Rules:
        """The factors'."""
        return self.factors[0].rules

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def cut(self, axis: int, begin: int, end: int) -> SpecArray:
        """Return the part between two numbers of an axis."""
        parts = [_cut(x, axis - self.ndim + x.ndim, begin, end) for x in self.factors]
        return functools.reduce(multiply, map(spread, parts))

    def spread(self) -> SpecArray:
        """Return all of it."""
        return functools.reduce(multiply, map(spread, self.factors))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return iter(self.spread())


def _cut(x: SpecArray | Gathered, axis: int, begin: int, end: int) -> SpecArray | Gathered:
    if axis < 0 or x.shape[axis] == 1:
        return x
    key = (slice(None),) * axis + (slice(begin, end),)
    if not isinstance(x, Gathered):
        return apply(x, lambda z: z[key])
    if axis < x.ids.ndim:
        return Gathered(x.base, x.ids[key])
    inner = (slice(None), *key[x.ids.ndim :])
    return Gathered(apply(x.base, lambda z: z[inner]), x.ids)


# Elements of a product of three axes or more that is not multiplied at once, and of its bands.
DEFERRED, BAND = 2**16, 2**15


def defer(x: Any, y: Any) -> DeferredProduct | None:
    """Return the product of x and y if it is large and of floats, so that a sum may follow."""
    rules = rules_of(x, y)
    arrays = (SpecArray, Gathered, DeferredProduct)
    x, y = (z if isinstance(z, arrays) else constant(z, rules) for z in (x, y))
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return None
    if len(shape) < 3 or math.prod(shape) <= DEFERRED:
        return None
    factors = (*(x.factors if isinstance(x, DeferredProduct) else (x,)), y)
    # products are multiplied from the left, and those of integers have another format
    if isinstance(y, DeferredProduct) or all(map(_is_whole, factors)):
        return None
    floats = (to_float(spread(z)) if _is_whole(z) else z for z in factors)
    return DeferredProduct(tuple(floats), shape)


def _is_whole(x: SpecArray | Gathered) -> bool:
    return x.base.whole if isinstance(x, Gathered) else x.whole


def _total_of_bands(x: DeferredProduct, axis: Any, keepdims: bool) -> SpecArray:
    """Return the sum of a product along one axis, band after band of the longest other one.

    numpy adds along one axis in the same order in bands, but not along several.
    """
    if not isinstance(axis, int):
        return total(x.spread(), axis, keepdims)
    kept = [i for i in range(x.ndim) if i != axis % x.ndim]
    along = max(kept, key=lambda i: x.shape[i])
    rows = max(1, BAND * x.shape[along] // math.prod(x.shape))
    parts = []
    for begin in range(0, x.shape[along], rows):
        Heartbeat.give(ACTIVITY)
        parts.append(total(x.cut(along, begin, begin + rows), axis, keepdims))
    where = along if keepdims else kept.index(along)
    return concatenate(parts, where)


def spread(x: Any) -> Any:
    """Return x with nothing left to gather or to multiply."""
    return x.spread() if isinstance(x, Gathered | DeferredProduct) else x


# -- shapes and moves ----------------------------------------------------------------------------
def index(x: SpecArray, key: Any) -> SpecArray | Gathered:
    """x[key]: slices, None, integers, masks, and arrays of integers, operands among them."""
    keys = key if isinstance(key, tuple) else (key,)
    plain = tuple(to_plain(k) for k in keys)
    ids = plain[0]
    whole = len(plain) == 1 and isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"
    try:
        if whole and ids.ndim and x.ndim == 3:
            return Gathered(x, np.arange(x.shape[0])[ids])
        return apply(x, lambda z: np.asarray(z[plain]))
    except IndexError as error:
        raise ValueError(f"spec: {error}") from None


def take(x: Any, ids: Any, axis: int | None = None) -> Any:
    """Return the elements, or the lines along an axis, that have these numbers."""
    x = spread(x)
    if not isinstance(x, SpecArray):
        return np.take(x, to_plain(ids), axis)
    if axis is None:
        return index(reshape(x, -1), ids)
    return index(x, (*[slice(None)] * (axis % x.ndim), ids) if axis % x.ndim else ids)


def to_plain(key: Any) -> Any:
    """Return integers or a mask of a formula as a plain array; anything else as it is."""
    if isinstance(key, Condition):
        return key.mask
    if not isinstance(key, SpecArray):
        return key
    if not (key.whole and key.exact.all()):
        raise TypeError("spec: got an index that may be rounded, expected an operand of integers")
    return key.value.astype(np.int64)


def reshape(x: SpecArray, *shape: Any) -> SpecArray:
    """Return the elements in another shape."""
    sides = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return apply(x, lambda z: z.reshape(sides))


def transpose(x: SpecArray, *axes: Any) -> SpecArray:
    """Return the axes in another order; reversed if none is given."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return apply(x, lambda z: np.transpose(z, order))


def swapaxes(x: SpecArray, first: int, second: int) -> SpecArray:
    """Exchange two axes."""
    return apply(x, lambda z: np.swapaxes(z, first, second))


def expand_dims(x: SpecArray, axis: Any) -> SpecArray:
    """Insert axes of one element."""
    return apply(x, lambda z: np.expand_dims(z, axis))


def squeeze(x: SpecArray, axis: Any = None) -> SpecArray:
    """Remove axes of one element."""
    return apply(x, lambda z: np.squeeze(z, axis))


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat each element, or line: a scale for every element of its group."""
    x, counts = spread(x), to_plain(repeats)
    if not isinstance(x, SpecArray):
        return np.repeat(x, counts, axis)
    return apply(x, lambda z: np.repeat(z, counts, axis))


def tile(x: SpecArray, counts: Any) -> SpecArray:
    """Repeat the whole array along its axes."""
    return apply(x, lambda z: np.tile(z, counts))


def moveaxis(x: SpecArray, source: Any, destination: Any) -> SpecArray:
    """Move axes to other positions."""
    return apply(x, lambda z: np.moveaxis(z, source, destination))


def ravel(x: SpecArray) -> SpecArray:
    """Return the elements along one axis."""
    return reshape(x, -1)


def split(x: SpecArray, parts: Any, axis: int = 0) -> list[SpecArray]:
    """Split an axis into equal parts, or at the given positions, as views."""
    pieces = np.split(np.arange(x.shape[axis]), to_plain(parts))
    return [apply(x, lambda z, i=i: np.take(z, i, axis)) for i in pieces]


def broadcast_to(x: SpecArray, shape: Sequence[int]) -> SpecArray:
    """Repeat x to a shape."""
    return apply(x, lambda z: np.broadcast_to(z, shape))


def concatenate(arrays: Sequence[Any], axis: int = 0) -> SpecArray:
    """Concatenate arrays."""
    return _join(arrays, lambda parts: np.concatenate(parts, axis=axis))


def stack(arrays: Sequence[Any], axis: int = 0) -> SpecArray:
    """Stack arrays of one shape along a new axis."""
    return _join(arrays, lambda parts: np.stack(parts, axis=axis))


def _join(arrays: Sequence[Any], join: Any) -> SpecArray:
    rules = next(x.rules for x in arrays if hasattr(x, "rules"))
    operands = [spread(x) if hasattr(x, "rules") else constant(x, rules) for x in arrays]
    whole, pure = all(x.whole for x in operands), all(x.pure for x in operands)
    operands = operands if whole else [to_float(x) for x in operands]
    first = operands[0]
    parts = {name: join([getattr(x, name) for x in operands]) for name in ELEMENTS}
    fmt = first.fmt if all(x.fmt is first.fmt for x in operands) else None
    scaled = [x.scaled for x in operands if x.scaled is not None]
    were = None
    if len(scaled) == len(operands):
        were = Scaled(_join([x.stored for x in scaled], join), join([x.factor for x in scaled]))
        were = were if were.stored.fmt is not None else None
    return replace(
        first, **parts, fmt=fmt, whole=whole, pure=pure, held=held_by(*operands), scaled=were
    )
