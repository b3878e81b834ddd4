"""One rounding of an exact result in any direction, as GPU instructions with a mode deliver it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, bits, format_of, round_to, widen
from gemmproof.reference.arithmetic.errorfree import two_product, two_sum
from gemmproof.reference.arithmetic.fma_fp64 import fma_fp64
from gemmproof.reference.formats import FORMATS

# Nearest even, towards zero, down, up: in PTX's letters.
Mode = Literal["rn", "rz", "rm", "rp"]

TO_INTEGRAL: dict[Mode, Callable[[Array], Array]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
}


@dataclass(frozen=True, slots=True)
class Exact:
    """Real numbers: `near`, their roundings to nearest float64, and the signs of what is missing.

    `rest` is the sign of (exact value - near), so that 0 says that near is exact.
    """

    near: Array
    rest: Array


def arithmetic(op: str, mode: Mode, *args: Array) -> Array:
    """add, mul, fma, div or sqrt of floats of one format, rounded once to it.

    NaN results are the device's quiet NaN. Directed roundings of float64 take exact rationals, and
    are slow.
    """
    fmt = format_of(args[0].dtype)
    with np.errstate(all="ignore"):
        if fmt.name != "fp64":
            wide = [widen(a) for a in args]
            exact = _NARROW[op](*wide)
        else:
            wide = list(args)
            exact = _exactly(_NEAREST[op](*wide)) if mode == "rn" else _by_fractions(op, wide)
        y = round_exact(exact, fmt.name, mode)
        if mode == "rm" and op in ("add", "fma"):
            # IEEE 754-2019 6.3: an exact sum of zero is -0 here unless both addends are +0
            first = wide[0] if op == "add" else wide[0] * wide[1]
            negative = np.signbit(first) | np.signbit(wide[-1])
            y[(exact.near == 0) & (exact.rest == 0) & negative] = -0.0
    return y


def round_exact(x: Exact, name: str, mode: Mode) -> Array:
    """The values x in the float format called `name`: one rounding, to nearest or directed."""
    fmt = FORMATS[name]
    with np.errstate(all="ignore"):
        if name == "fp64":
            y, above, below = x.near.copy(), x.rest < 0, x.rest > 0
            y[np.isnan(y)] = fmt.nan
        else:
            value = _to_odd(x)
            y = round_to(value, fmt)
            back = widen(y)
            above, below = back > value, back < value
    if mode == "rn":
        return y
    negative = np.signbit(x.near) if name == "fp64" else np.signbit(value)
    down = above & (~negative if mode == "rz" else np.full(y.shape, mode == "rm"))
    up = below & (negative if mode == "rz" else np.full(y.shape, mode == "rp"))
    return _step(y, up.astype(np.int8) - down.astype(np.int8))


def round_float(x: Array, name: str, mode: Mode) -> Array:
    """Floats of any format in the format called `name`, rounded once."""
    return round_exact(_exactly(widen(x)), name, mode)


def integer_to_float(x: Array, name: str, mode: Mode) -> Array:
    """Integers up to 64 bits in the float format called `name`, rounded once."""
    wide = x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
    high = (wide >> wide.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (wide & wide.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return round_exact(_sum(high, low), name, mode)


def float_to_integer(x: Array, dtype: Any, mode: Mode) -> Array:
    """`cvt.*i` of PTX: rounded to an integer, clamped to the range of dtype.

    NaN gives 0, or, where either side has 64 bits, the top bit alone (PTX ISA, cvt).
    """
    target = np.dtype(dtype)
    info = np.iinfo(target)
    with np.errstate(all="ignore"):
        whole = TO_INTEGRAL[mode](widen(x))
        inside = (whole >= float(info.min)) & (whole < float(info.max + 1))
        y = np.where(inside, whole, 0).astype(target)
    y[whole < float(info.min)] = info.min
    y[whole >= float(info.max + 1)] = info.max
    if x.dtype == np.float64 or target.itemsize == 8:
        bits(y)[np.isnan(whole)] = 1 << (info.bits - 1)
    return y


def _exactly(x: Array) -> Exact:
    return Exact(x, np.zeros(x.shape, np.int8))


def _signed(near: Array, rest: Array) -> Exact:
    return Exact(near, np.where(np.isfinite(rest), np.sign(rest), 0).astype(np.int8))


def _sum(x: Array, y: Array) -> Exact:
    return _signed(*two_sum(x, y))


def _quotient(x: Array, y: Array) -> Exact:
    near = x / y
    product, error = two_product(near, y)
    # x - product is exact, for both lie within an ulp of each other
    return _signed(near, ((x - product) - error) * np.sign(y))


def _root(x: Array) -> Exact:
    near = np.sqrt(x)
    square, error = two_product(near, near)
    return _signed(near, (x - square) - error)


# For formats of at most 24 bits and fp32's range: float64 holds every product of two, and no
# intermediate leaves its range.
_NARROW: dict[str, Callable[..., Exact]] = {
    "add": _sum,
    "mul": lambda x, y: _exactly(x * y),
    "fma": lambda x, y, z: _sum(x * y, z),
    "div": _quotient,
    "sqrt": _root,
}

_NATIVE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "mul": np.multiply,
    # a product that overflows must not meet an infinite addend
    "fma": lambda x, y, z: np.where(np.isinf(z) & np.isfinite(x * 0 + y * 0), z, x * y + z),
    "div": np.divide,
    "sqrt": np.sqrt,
}

_NEAREST = _NATIVE | {"fma": fma_fp64}

_RATIONAL: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
    "div": lambda x, y: x / y,
}


def _by_fractions(op: str, operands: list[Array]) -> Exact:
    whole = np.broadcast_arrays(*operands)
    shape, args = whole[0].shape, [a.reshape(-1) for a in whole]
    near = _NATIVE[op](*args)
    rest = np.zeros(near.shape, np.int8)
    regular = np.logical_and.reduce([np.isfinite(a) for a in args])
    if op == "div":
        regular &= args[1] != 0
    if op == "sqrt":
        regular &= args[0] >= 0
    for i in np.flatnonzero(regular):
        values = [Fraction(float(a[i])) for a in args]
        if op == "sqrt":
            gap = values[0] - Fraction(float(near[i])) ** 2
        else:
            exact = _RATIONAL[op](*values)
            gap = exact
            if exact:  # of an exact zero, numpy has the sign
                near[i] = _nearest(exact)
                gap = exact - Fraction(near[i]) if np.isfinite(near[i]) else -exact
        rest[i] = (gap > 0) - (gap < 0)
    return Exact(near.reshape(shape), rest.reshape(shape))


def _nearest(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator  # Python rounds the quotient of integers once
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _to_odd(x: Exact) -> Array:
    """Cut to 53 bits, with the last one set when inexact: one more rounding is then the only one.

    (Boldo and Melquiond, IEEE TC 57(4), 2008.)
    """
    code = x.near.view(np.int64)
    even = (x.rest != 0) & np.isfinite(x.near) & ((code & 1) == 0)
    towards = np.where((x.rest > 0) == (x.near > 0), 1, -1)
    return (code + even * towards).view(np.float64)


def _step(y: Array, direction: Array) -> Array:
    """The neighbour in y's own format: upwards where direction is 1, downwards where -1."""
    moved = direction != 0
    if not moved.any():
        return y
    width = 8 * y.dtype.itemsize
    signed = bits(y)[moved].view(f"i{y.dtype.itemsize}").astype(np.int64)
    top = np.int64(-1) << np.int64(width - 1)
    # the magnitudes of negative numbers counted downwards make one line of all numbers
    line = np.where(signed < 0, top - signed, signed)
    line = line + direction[moved]
    # a step up from the least negative number ends at -0, as rounding it there would
    code = np.where((line < 0) | ((line == 0) & (signed < 0)), top - line, line)
    out = y.copy()
    bits(out)[moved] = code.astype(f"i{y.dtype.itemsize}").view(bits(y).dtype)
    return out
