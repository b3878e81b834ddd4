"""Conversions between formats on arrays: widening is exact, narrowing rounds once."""

from typing import Any

import ml_dtypes
import numpy as np

from gemmproof.reference.formats import FORMATS, Format, format_named

Array = np.ndarray[Any, np.dtype[Any]]

_BY_STORAGE = {f.storage: f.stored for f in FORMATS.values()}


def bits(x: Array) -> Array:
    """The same memory as unsigned integers of the same width."""
    return x.view(f"u{x.dtype.itemsize}")


def format_of(dtype: object) -> Format:
    """The format stored by a numpy dtype (float32 is fp32, never tf32).

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
    """The same values as float64, exactly.

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
    """What tensor cores read of a float32 operand under tf32: the low 13 bits are dropped.

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
