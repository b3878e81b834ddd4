"""Triton's scalar types and promotion rules, with the numpy type that holds each.

The dtype objects are Triton's own (they are plain Python), so a kernel that asks `x.dtype` or
`c_ptr.dtype.element_ty` meets the objects it knows. The rules are restated here from Triton's
documented semantics and compared, pair by pair, with Triton's own in the tests.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl

NUMPY = {
    "int1": np.dtype(np.bool_),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
    "fp8e4b8": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "fp8e5b16": np.dtype(ml_dtypes.float8_e5m2fnuz),
}

TORCH = {
    "torch.bool": tl.int1,
    "torch.int8": tl.int8,
    "torch.int16": tl.int16,
    "torch.int32": tl.int32,
    "torch.int64": tl.int64,
    "torch.uint8": tl.uint8,
    "torch.uint16": tl.uint16,
    "torch.uint32": tl.uint32,
    "torch.uint64": tl.uint64,
    "torch.float16": tl.float16,
    "torch.bfloat16": tl.bfloat16,
    "torch.float32": tl.float32,
    "torch.float64": tl.float64,
    "torch.float8_e4m3fn": tl.float8e4nv,
    "torch.float8_e5m2": tl.float8e5,
    "torch.float8_e4m3fnuz": tl.float8e4b8,
    "torch.float8_e5m2fnuz": tl.float8e5b16,
}

# Rank of a kind in "bool < integer < float": a Python number of a lower or equal kind than the
# tensor beside it takes the tensor's type.
_KIND = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2}


def is_pointer(dtype: tl.dtype) -> bool:
    return isinstance(dtype, tl.pointer_type)


def numpy_of(dtype: tl.dtype) -> np.dtype:
    """The numpy type whose array holds values of `dtype`; pointers are int64 byte addresses.

    Raises TypeError for a type the machine does not hold (fp8e4b15, void).
    """
    if is_pointer(dtype):
        return NUMPY["int64"]
    try:
        return NUMPY[dtype.name]
    except KeyError:
        raise TypeError(f"type {dtype} is not known to the machine") from None


def itemsize(dtype: tl.dtype) -> int:
    """Bytes of one element in memory (int1 takes a byte)."""
    return numpy_of(dtype).itemsize


def is_float(dtype: tl.dtype) -> bool:
    return not is_pointer(dtype) and dtype.is_floating()


def is_int(dtype: tl.dtype) -> bool:
    return not is_pointer(dtype) and dtype.is_int()


def type_of_number(x: Any) -> tl.dtype:
    """The type Triton gives a bare Python number: the smallest of its list that holds it."""
    if isinstance(x, bool | np.bool_):
        return tl.int1
    if isinstance(x, int | np.integer):
        for low, high, dtype in (
            (-(2**31), 2**31, tl.int32),
            (2**31, 2**32, tl.uint32),
            (-(2**63), 2**63, tl.int64),
            (2**63, 2**64, tl.uint64),
        ):
            if low <= x < high:
                return dtype
        raise ValueError(f"integer {x} fits no type of 64 bits")
    x = float(x)
    normal = 2.0**-126 <= abs(x) <= (2 - 2**-23) * 2.0**127
    return tl.float32 if normal or x == 0 or x != x or abs(x) == float("inf") else tl.float64


def _signed(dtype: tl.dtype) -> bool:
    return dtype.is_int_signed()


def promote_integers(a: tl.dtype, b: tl.dtype) -> tl.dtype:
    """C's usual arithmetic conversions: the wider wins, at equal width the unsigned one."""
    wide, narrow = (a, b) if a.int_bitwidth > b.int_bitwidth else (b, a)
    if wide.int_bitwidth > narrow.int_bitwidth or _signed(a) == _signed(b):
        return wide
    return a if not _signed(a) else b


@lru_cache(maxsize=4096)
def promote(
    a: tl.dtype, b: tl.dtype, a_number: bool = False, b_number: bool = False, div: bool = False
) -> tl.dtype:
    """The type in which `a op b` is computed.

    `a_number`, `b_number` say that the operand is a bare Python number: it does not take part when
    its kind (bool < int < float) is no higher than the tensor's. `div` marks / // and %: floats
    then compute in at least fp32. Raises TypeError for integers of mixed sign under `div`.
    """
    if a_number != b_number:
        number, tensor = (a, b) if a_number else (b, a)
        if _kind(number) <= _kind(tensor):
            a = b = tensor
    if a.is_fp64() or b.is_fp64():
        return tl.float64
    if div and (a.is_floating() or b.is_floating()):
        return tl.float32
    if a.is_fp32() or b.is_fp32():
        return tl.float32
    if a.is_fp16() or b.is_fp16():
        return tl.float16
    if a.is_bf16() or b.is_bf16():
        return tl.bfloat16 if a == b else tl.float32
    if a.is_floating() and b.is_floating():
        return a if a == b else tl.float16
    if a.is_floating() or b.is_floating():
        raise TypeError(f"no arithmetic between {a} and {b}")
    if div and _signed(a) != _signed(b):
        raise TypeError(f"/, // and % need integers of one signedness, got {a} and {b}")
    return promote_integers(a, b)


def _kind(dtype: tl.dtype) -> int:
    return 0 if dtype.is_int1() else _KIND[np.dtype(numpy_of(dtype)).kind]


@lru_cache(maxsize=64)
def int_range(dtype: tl.dtype) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    if dtype.is_int1():
        return 0, 1
    bits = dtype.int_bitwidth
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if _signed(dtype) else (0, 2**bits - 1)
