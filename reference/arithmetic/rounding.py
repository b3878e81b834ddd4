"""One rounding of an exact result in any direction, as GPU instructions with a mode deliver it."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, bits, format_of, round_to, widen
from gemmproof.reference.arithmetic.errorfree import cut_to_odd, two_product, two_sum
from gemmproof.reference.arithmetic.fma_fp64 import fma_fp64
from gemmproof.reference.arithmetic.rationals import NATIVE, calculate
from gemmproof.reference.formats import FORMATS

# Nearest even, towards zero, down, up: in PTX's letters.
Mode = Literal["rn", "rz", "rm", "rp"]

TO_INTEGRAL: dict[Mode, Callable[[Array], Array]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
}


def arithmetic(op: str, mode: Mode, *args: Array) -> Array:
    """add, sub, mul, fma, div, rcp or sqrt of floats of one format, rounded once to it.

    NaN results are the device's quiet NaN. Directed roundings of float64 take exact rationals, and
    are slow.
    """
    if op == "sub":
        return arithmetic("add", mode, args[0], np.negative(args[1]))
    if op == "rcp":
        return arithmetic("div", mode, np.ones_like(args[0]), args[0])
    fmt = format_of(args[0].dtype)
    with np.errstate(all="ignore"):
        if fmt.name != "fp64":
            wide = [widen(a) for a in args]
            near, rest = _NARROW[op](*wide)
        else:
            wide = list(args)
            near, rest = (_NEAREST[op](*wide), 0.0) if mode == "rn" else calculate(op, *wide)
        y = _round_exact(near, rest, fmt.name, mode)
        if mode == "rm" and op in ("add", "fma"):
            # IEEE 754-2019 6.3: an exact sum of zero is -0 here unless both addends are +0
            first = wide[0] if op == "add" else wide[0] * wide[1]
            negative = np.signbit(first) | np.signbit(wide[-1])
            y[(near == 0) & (rest == 0) & negative] = -0.0
    return y


def _round_exact(near: Array, rest: Array | float, name: str, mode: Mode) -> Array:
    """Real numbers in the float format called `name`: one rounding, to nearest or directed.

    near: their roundings to nearest float64; rest: anything of the sign of (exact value - near).
    """
    fmt = FORMATS[name]
    with np.errstate(all="ignore"):
        if name == "fp64":
            y, above, below = near.copy(), rest < 0, rest > 0
            y[np.isnan(y)] = fmt.nan
        else:
            odd = cut_to_odd(near.copy(), rest)
            y = round_to(odd, fmt)
            back = widen(y)
            above, below = back > odd, back < odd
        if mode == "rn":
            return y
        top = np.inf if fmt.has_inf else fmt.max
        passed, goal = {
            "rz": (np.where(np.signbit(near), below, above), 0.0),
            "rm": (above, -top),
            "rp": (below, top),
        }[mode]
        return np.where(passed, np.nextafter(y, np.array(goal).astype(y.dtype)), y)


def round_float(x: Array, name: str, mode: Mode) -> Array:
    """Floats of any format in the format called `name`, rounded once."""
    return _round_exact(widen(x), 0.0, name, mode)


def integer_to_float(x: Array, name: str, mode: Mode) -> Array:
    """Integers up to 64 bits in the float format called `name`, rounded once."""
    wide = x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
    high = (wide >> wide.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (wide & wide.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return _round_exact(*two_sum(high, low), name, mode)


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


def _divide(x: Array, y: Array) -> tuple[Array, Array]:
    near = x / y
    product, error = two_product(near, y)
    # x - product is exact, for both lie within an ulp of each other
    return near, ((x - product) - error) * np.sign(y)


def _take_root(x: Array) -> tuple[Array, Array]:
    near = np.sqrt(x)
    square, error = two_product(near, near)
    return near, (x - square) - error


# For formats of at most 24 bits and fp32's range: float64 holds every product of two, and no
# intermediate leaves its range.
_NARROW: dict[str, Callable[..., tuple[Array, Any]]] = {
    "add": two_sum,
    "mul": lambda x, y: (x * y, 0.0),
    "fma": lambda x, y, z: two_sum(x * y, z),
    "div": _divide,
    "sqrt": _take_root,
}

_NEAREST = NATIVE | {"fma": fma_fp64}
