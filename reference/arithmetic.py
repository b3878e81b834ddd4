"""Correctly rounded arithmetic of every format, conversions and error-free transformations."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import ml_dtypes
import numpy as np

from gemmproof.reference.formats import FORMATS, Format, format_named

# -- conversions ---------------------------------------------------------------------------------
Array = np.ndarray[Any, np.dtype[Any]]

_BY_STORAGE = {f.storage: f.stored for f in FORMATS.values()}


def bits(x: Array) -> Array:
    """Return the same memory as unsigned integers of the same width."""
    return x.view(f"u{x.dtype.itemsize}")


def format_of(dtype: object) -> Format:
    """Return the format stored by a numpy dtype (float32 is fp32, never tf32).

    Raises ValueError for a dtype without a format, foreign byte orders included.
    """
    key: np.dtype[Any] = np.dtype(dtype)  # type: ignore[call-overload]
    if key not in _BY_STORAGE:
        raise ValueError(
            f"dtype: got {key!s} ({key.str}), expected one of "
            + " ".join(str(d) for d in _BY_STORAGE)
        )
    return _BY_STORAGE[key]


def widen(x: Array) -> Array:
    """Return the same values as float64, exactly.

    Raises ValueError when a 64-bit integer has no float64 of the same value.
    """
    format_of(x.dtype)
    with np.errstate(invalid="ignore"):
        wide = (_widen_bf16(x) if x.dtype == ml_dtypes.bfloat16 else x).astype(np.float64)
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        # 2**63 and 2**64 are floats but not of the integer's range, so compare before casting back
        inside = np.abs(wide) < 2.0**63
        if not (inside & (np.where(inside, wide, 0.0).astype(x.dtype) == x)).all():
            raise ValueError(f"widen: got {x.dtype} values beyond 2**53, expected exact float64")
    return wide


def widen_nearest(x: Array) -> Array:
    """Return the same values as float64, those of 64-bit integers rounded to nearest."""
    return x.astype(np.float64) if x.dtype.kind in "iu" else widen(x)


# Every fp16 code as float32: looking one up takes less time than numpy's conversion.
with np.errstate(invalid="ignore"):
    _FP16_VALUES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


def _widen_bf16(x: Array) -> Array:
    return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_fp32(x: Array) -> Array:
    """The same values as float32, for formats of at most 24 significant bits and fp32's range."""
    if x.dtype == ml_dtypes.bfloat16:
        return _widen_bf16(x)
    if x.dtype == np.float16:
        return _FP16_VALUES.take(x.view(np.uint16))
    fmt = format_of(x.dtype)
    if fmt.p > 24:
        raise ValueError(f"to_fp32: got {fmt.name}, expected a format within 24 bits")
    with np.errstate(invalid="ignore"):
        return x.astype(np.float32)


def fp32_to_odd(x: Array) -> Array:
    """float64 to float32 by truncation with a sticky last bit.

    One more rounding to nearest, to at most 22 significant bits, gives the rounding of x itself
    (Boldo and Melquiond, IEEE TC 57(4), 2008).
    """
    with np.errstate(all="ignore"):
        y = x.astype(np.float32)
        back = y.astype(np.float64)
    inexact = (back != x) & (x == x)
    if inexact.any():
        code = y.view(np.uint32)
        code -= (inexact & (np.abs(back) > np.abs(x))).astype(np.uint32)
        code |= inexact.astype(np.uint32)
    return y


def round_to(x: Array, fmt: Format | str, *, saturate: bool = False) -> Array:
    """Round to nearest, ties to even, once, from the exact value of x to `fmt`'s storage dtype.

    x: floats of any format or integers, any shape. Overflow gives Inf (fp8e4m3: NaN); with
    `saturate` every |x| > max, Inf included, gives max. NaN gives the device's quiet NaN.
    Raises ValueError for integer targets.
    """
    fmt = format_named(fmt) if isinstance(fmt, str) else fmt
    if fmt.kind != "float":
        raise ValueError(f"round_to: got format {fmt.name}, expected a float format")
    shape = np.shape(x)
    x = _as_float(np.atleast_1d(x), fmt)
    if saturate:
        x = np.clip(x, -fmt.max, fmt.max)
    with np.errstate(all="ignore"):
        if fmt.name == "fp64" or (fmt.name == "fp32" and x.dtype != np.float32):
            y = x.astype(fmt.storage)
        elif fmt.name == "fp32":
            y = x.copy()
        elif fmt.name == "fp16":
            y = x.astype(np.float16)
        else:
            y = _narrow(x if x.dtype == np.float32 else fp32_to_odd(x), fmt)
    nan = np.isnan(x)
    if nan.any():
        y[nan] = fmt.nan
    return y.reshape(shape)


def _as_float(x: Array, fmt: Format) -> Array:
    """float32 or float64 of the same value, or one whose rounding to `fmt` is that of x."""
    source = format_of(x.dtype)
    if x.dtype in (np.float32, np.float64):
        return x
    if source.p <= 24:
        return to_fp32(x)
    wide = x.astype(np.float64)
    if source.p > 53 and fmt.p < 52:
        # numpy has rounded to 53 bits; a sticky bit instead leaves only the next rounding
        low = x & x.dtype.type(0x7FF)
        odd = (x - low) | ((low != 0).astype(x.dtype) << x.dtype.type(11))
        wide = np.where(np.abs(wide) < 2.0**52, wide, odd.astype(np.float64))
    return wide


def _narrow(x: Array, fmt: Format) -> Array:
    """float32 to fewer bits, nearest even; NaN is left to the caller."""
    if fmt.emax != 127:
        return x.astype(fmt.storage)
    # fp32's exponents: rounding is an addition to the code
    drop = 24 - fmt.p
    code = x.view(np.uint32)
    code = code + (((code >> drop) & 1) + np.uint32((1 << (drop - 1)) - 1))
    if fmt.itemsize == 4:
        return (code & np.uint32(2**32 - 2**drop)).view(np.float32)
    return (code >> drop).astype(np.uint16).view(fmt.storage)


def truncate_tf32(x: Array) -> Array:
    """Return a float32 operand as tensor cores read it under tf32: without the low 13 bits.

    Of NaN too: one with its payload only in those bits becomes Inf.
    """
    _require_float32("truncate_tf32", x)
    code = x.view(np.uint32)
    return (code & np.uint32(0xFFFFE000)).view(np.float32)


def round_tf32_rna(x: Array) -> Array:
    """`cvt.rna.tf32.f32`: nearest, ties away from zero, overflow to Inf; float32 in and out."""
    _require_float32("round_tf32_rna", x)
    code = np.atleast_1d(x).view(np.uint32) + np.uint32(0x1000)
    y = (code & np.uint32(0xFFFFE000)).view(np.float32)
    nan = np.atleast_1d(np.isnan(x))
    if nan.any():
        y[nan] = FORMATS["tf32"].nan
    return y.reshape(x.shape)


def _require_float32(where: str, x: Array) -> None:
    if x.dtype != np.float32:
        raise ValueError(f"{where}: got dtype {x.dtype}, expected float32")


# -- exact rationals -----------------------------------------------------------------------------
NATIVE: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "mul": np.multiply,
    # a product that overflows must not meet an infinite addend
    "fma": lambda x, y, z: np.where(np.isinf(z) & np.isfinite(x * 0 + y * 0), z, x * y + z),
    "div": np.divide,
    "sqrt": np.sqrt,
}

_RATIONAL: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
    "div": lambda x, y: x / y,
}


def calculate(op: str, *operands: Array) -> tuple[Array, Array]:
    """add, mul, fma, div or sqrt of float64 arrays, broadcasting.

    Gives the exact values' roundings to nearest, and as int8 the signs of (exact value - rounding).
    """
    whole = np.broadcast_arrays(*operands)
    shape, args = whole[0].shape, [a.reshape(-1) for a in whole]
    with np.errstate(all="ignore"):
        near = NATIVE[op](*args)
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
                near[i] = _round_to_nearest(exact)
                gap = exact - Fraction(near[i]) if np.isfinite(near[i]) else -exact
        rest[i] = (gap > 0) - (gap < 0)
    return near.reshape(shape), rest.reshape(shape)


def _round_to_nearest(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator  # Python rounds the quotient of integers once
    except OverflowError:
        return math.inf if x > 0 else -math.inf


# -- error-free transformations ------------------------------------------------------------------
def two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """s = fl(x + y) and its exact error (Knuth), while nothing overflows."""
    s = x + y
    part = s - x
    return s, (x - (s - part)) + (y - part)


def two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """p = fl(x * y) and its exact error (Veltkamp, Dekker) in float64, for |x|, |y| < 2**970."""
    p = x * y
    x_high, y_high = ((134217729.0 * v) - ((134217729.0 * v) - v) for v in (x, y))
    x_low, y_low = x - x_high, y - y_high
    return p, ((x_high * y_high - p) + x_high * y_low + x_low * y_high) + x_low * y_low


def sum_to_odd(x: Array, y: Array) -> Array:
    """x + y rounded to odd."""
    return cut_to_odd(*two_sum(x, y))


def cut_to_odd(near: Array, error: Any) -> Array:
    """near + error rounded to odd, in place: cut, with the last bit set when inexact.

    near: the rounding to nearest, float32 or float64; of the error only the sign counts. A further
    rounding to nearest of at least two bits less is then the rounding of the exact value (Boldo and
    Melquiond, IEEE TC 57(4), 2008).
    """
    code = near.view(f"i{near.dtype.itemsize}")
    even = (error != 0) & np.isfinite(error) & np.isfinite(near) & ((code & 1) == 0)
    if even.any():
        # one step towards the error's side: up in magnitude when both have one sign
        code += even * np.where((error > 0) == (near > 0), 1, -1).astype(code.dtype)
    return near


# -- fma of float64 ------------------------------------------------------------------------------
def fma_fp64(a: Array, b: Array, acc: Array) -> Array:
    """RN(a * b + acc), broadcasting.

    Three error-free transformations and one rounding to odd (Boldo and Melquiond, IEEE TC 57(4),
    2008, Fma); exact rationals, slowly, where those could over- or underflow.
    """
    if not (_moderate(a, 400) and _moderate(b, 400) and _moderate(acc, 900)):
        return calculate("fma", a, b, acc)[0]
    high, low = two_product(a, b)
    near, near_error = two_sum(acc, low)
    total, total_error = two_sum(high, near)
    result = total + sum_to_odd(near_error, total_error)
    return np.where(result == 0, high + acc, result)  # an exact zero has the sign of the plain sum


def _moderate(x: Array, exponent: int) -> bool:
    size = np.abs(x)
    low = size.min(where=size > 0, initial=1.0)
    return bool(np.isfinite(size).all() and size.max(initial=0.0) < 2.0**exponent) and bool(
        low > 2.0**-exponent
    )


# -- rounding ------------------------------------------------------------------------------------
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
