"""Casts by Triton's rules: nearest even from the exact value, saturating fp8, wrapping integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.formats import FORMATS, round_to, to_fp32
from gemmproof.reference.machine import execution
from gemmproof.reference.machine.types import int_range, is_int, is_pointer, numpy_of
from gemmproof.reference.machine.value import Value, lift

# Triton's float types that the numerics know by another name; the rest go through ml_dtypes.
_FORMAT = {
    "fp16": "fp16",
    "bf16": "bf16",
    "fp32": "fp32",
    "fp64": "fp64",
    "fp8e4nv": "fp8e4m3",
    "fp8e5": "fp8e5m2",
}


def format_name(dtype: tl.dtype) -> str:
    """The name under which the numerics know a float or integer type.

    Raises Unsupported for a type they do not know.
    """
    if is_int(dtype):
        return "uint8" if dtype.is_int1() else str(dtype.name)
    try:
        return _FORMAT[dtype.name]
    except KeyError:
        raise execution.unsupported(f"arithmetic in {dtype}") from None


def cast(x: Any, dtype: tl.dtype, rounding: str | None = None, bitcast: bool = False) -> Value:
    """tl.cast: convert or, with `bitcast`, reinterpret. `rounding` is None, "rtne" or "rtz"."""
    value = lift(x)
    if isinstance(dtype, tl.block_type):
        dtype = dtype.element_ty
    if not isinstance(dtype, tl.dtype):
        raise execution.kernel_error(f"cast to {dtype!r}, expected a Triton dtype")
    if bitcast and not is_pointer(dtype) and not is_pointer(value.dtype):
        return _reinterpret(value, dtype)
    if rounding not in (None, "rtne", "rtz"):
        raise execution.kernel_error(f"rounding: got {rounding!r}, expected 'rtne' or 'rtz'")
    return convert(value, dtype, toward_zero=rounding == "rtz")


def _reinterpret(value: Value, dtype: tl.dtype) -> Value:
    source, target = numpy_of(value.dtype), numpy_of(dtype)
    if source.itemsize != target.itemsize:
        raise execution.kernel_error(f"cannot bitcast {value.dtype} to {dtype}: sizes differ")
    data = np.ascontiguousarray(value.data).view(target)
    return Value(data, dtype, value.poison, loaded=value.loaded)


def convert(value: Value, dtype: tl.dtype, toward_zero: bool = False) -> Value:
    """`value` as `dtype`, with Triton's conversions; the same object where the type is the same."""
    if value.dtype == dtype:
        return value
    converted = _converted(value, dtype, toward_zero)
    converted.loaded = value.loaded
    return converted


def _converted(value: Value, dtype: tl.dtype, toward_zero: bool) -> Value:
    source, data = value.dtype, value.data
    if is_pointer(source) or is_pointer(dtype):
        return _pointer(value, dtype)
    if dtype.is_int1():
        return Value(data != np.zeros((), data.dtype), dtype, value.poison)
    with np.errstate(all="ignore"):
        if is_int(source) and is_int(dtype):
            return _integer(value, dtype)
        if is_int(dtype):
            return Value(_to_integer(data, dtype), dtype, value.poison)
        if is_int(source):
            wide = data.astype(np.uint8) if source.is_int1() else data
            return Value(_to_float(wide, dtype), dtype, value.poison)
        made = _cut(data, dtype) if toward_zero else _to_float(data, dtype)
        return Value(made, dtype, value.poison)


def _pointer(value: Value, dtype: tl.dtype) -> Value:
    if is_pointer(value.dtype) and is_int(dtype):
        if dtype.int_bitwidth != 64:
            raise execution.kernel_error(f"a pointer casts to 64-bit integers, not {dtype}")
        return Value(value.data.astype(numpy_of(dtype)), dtype, value.poison, value.exact)
    if is_pointer(dtype) and (is_int(value.dtype) or is_pointer(value.dtype)):
        data = value.data.astype(np.int64)
        return Value(data, dtype, value.poison, value.exact, value.base)
    raise execution.kernel_error(f"cannot cast {value.dtype} to {dtype}")


def _integer(value: Value, dtype: tl.dtype) -> Value:
    target = numpy_of(dtype)
    data = value.data.astype(target)
    exact = value.exact
    if exact is None and target.itemsize < value.data.dtype.itemsize:
        wide = value.data.astype(np.int64)
        exact = wide if (wide != data).any() else None
    elif exact is not None and (exact == data).all():
        exact = None
    return Value(data, dtype, value.poison, exact)


def _to_integer(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """Floats to integers: cut toward zero, saturating, NaN to 0 (PTX cvt.rzi)."""
    low, high = int_range(dtype)
    x = np.trunc(data.astype(np.float64))
    x = np.where(np.isnan(x), 0.0, x)
    result = np.where(x <= low, low, np.where(x >= high, high, 0)).astype(numpy_of(dtype))
    inside = (x > low) & (x < high)
    return np.where(inside, np.where(inside, x, 0).astype(numpy_of(dtype)), result)


def _to_float(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """Numbers to floats, nearest even; fp8 saturates as PTX's conversions do."""
    target = numpy_of(dtype)
    if dtype.name not in _FORMAT:  # the fnuz types of AMD: widen to fp32, then ml_dtypes rounds
        return data.astype(np.float32).astype(target)
    if data.dtype.name not in _KNOWN_STORAGE:
        data = data.astype(np.float32)
    if target == np.float32 and data.dtype.kind == "f" and data.dtype.itemsize <= 4:
        return data.astype(target)
    if target == np.float32 and data.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return to_fp32(data)
    return round_to(data, FORMATS[_FORMAT[dtype.name]], saturate=target.itemsize == 1)


_KNOWN_STORAGE = {f.storage.name for f in FORMATS.values()}


def _cut(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """Floats to narrower floats, toward zero: the nearest, stepped back where it lies beyond."""
    near = _to_float(data, dtype)
    exact, rounded = data.astype(np.float64), near.astype(np.float64)
    bits = near.view(f"u{near.dtype.itemsize}")
    beyond = np.abs(rounded) > np.abs(exact)
    return (bits - beyond.astype(bits.dtype)).view(near.dtype)
