"""Operators of values by Triton's rules: promotion, wrap at the type's width, C division."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.formats import FORMATS, nan_of
from gemmproof.reference.machine import execution
from gemmproof.reference.machine.types import (
    int_range,
    is_float,
    is_int,
    is_pointer,
    itemsize,
    numpy_of,
    promote,
)
from gemmproof.reference.machine.value import (
    Number,
    Value,
    check_shapes,
    is_number,
    lift,
    pad_rank,
    scalar,
    union,
)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C division: the quotient is cut toward zero; by zero it is undefined (0 here, poisoned)."""
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = x // safe
    if x.dtype.kind == "i":
        rest = x - quotient * safe
        quotient = quotient + ((rest != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
    return quotient


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C remainder: its sign is the dividend's; by zero it is undefined (0 here, poisoned)."""
    return np.fmod(x, np.where(y == 0, np.ones_like(y), y))


def _shift_left(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    return np.where((y >= 0) & (y < bits), x << np.clip(y, 0, bits - 1), np.zeros_like(x))


def _shift_right(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    far = np.where(x < 0, -np.ones_like(x), 0) if x.dtype.kind == "i" else np.zeros_like(x)
    return np.where((y >= 0) & (y < bits), x >> np.clip(y, 0, bits - 1), far).astype(x.dtype)


ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": _divide,
    "%": _remainder,
    "/": np.true_divide,
    "min": np.minimum,
    "max": np.maximum,
}
BITWISE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": _shift_left,
    ">>": _shift_right,
}
COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
CANONICAL = {name: nan_of(FORMATS[name]) for name in ("fp16", "bf16", "fp32", "fp64")}
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "min": min,
    "max": max,
}


def binary(op: str, x: Any, y: Any) -> Any:
    """`x op y` by Triton's rules: promotion, wrap at the type's width, C division.

    Raises KernelError where Triton would refuse to compile the expression.
    """
    if is_number(x) and is_number(y):
        return _PYTHON[op](x, y)
    if op in ("==", "!=") and (x is None or y is None):
        return op == "!="  # a tensor is never None
    x_number, y_number = is_number(x), is_number(y)
    a, b = lift(x), lift(y)
    if a.shape != b.shape and a.shape and b.shape:
        check_shapes(a, b)
    if is_pointer(a.dtype) or is_pointer(b.dtype):
        return _pointer(op, a, b)
    if op == "+" and (a.fold or b.fold) and a.dtype == b.dtype and a.shape == b.shape:
        return b.fold(a) if b.fold else a.fold(b)  # type: ignore[misc]
    dtype = _promoted(op, a, b, x_number, y_number)
    if op == "/" and is_int(dtype):
        dtype = tl.float32
    if is_float(dtype) and (op in BITWISE or op == "//"):
        raise execution.kernel_error(f"{op} needs integers, got {a!r} and {b!r}")
    if a.dtype is not dtype:
        a = _number_as(x, dtype) if x_number else execution.vocabulary().convert(a, dtype)
    if b.dtype is not dtype:
        b = _number_as(y, dtype) if y_number else execution.vocabulary().convert(b, dtype)
    ndim = max(a.data.ndim, b.data.ndim)
    left, right = pad_rank(a.data, ndim), pad_rank(b.data, ndim)
    poison = union(a.poison, b.poison)
    loaded = min((v.loaded for v in (a, b) if v.loaded), default=0)
    if op in COMPARE:
        return Value(COMPARE[op](left, right), tl.int1, poison, loaded=loaded)
    if op in BITWISE:
        return _bitwise(op, a, b, left, right, dtype, poison)
    if is_float(dtype):
        return Value(_float(op, left, right, dtype), dtype, poison, loaded=loaded)
    if op in ("//", "%") and (right == 0).any():
        poison = union(poison, (right == 0) * execution.source("a division by zero"))
    return _integer(op, a, b, left, right, dtype, poison)


def _promoted(op: str, a: Value, b: Value, a_number: bool, b_number: bool) -> tl.dtype:
    try:
        return promote(a.dtype, b.dtype, a_number, b_number, op in ("/", "//", "%"))
    except TypeError as error:
        raise execution.kernel_error(f"{a!r} {op} {b!r}: {error}") from None


def _number_as(x: Number, dtype: tl.dtype) -> Value:
    if is_int(dtype):
        low, high = int_range(dtype)
        if not low <= x <= high:
            raise execution.kernel_error(f"scalar {x} is out of range for {dtype}")
    return scalar(x, dtype)


def _float(op: str, left: np.ndarray, right: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    if op == "%":
        return np.fmod(left, right)
    if op in "+-*/":
        execution.rounds(op)
    result = ARITHMETIC[op](left, right)
    if result.dtype != numpy_of(dtype):
        result = result.astype(numpy_of(dtype))
    nan = np.isnan(result)
    if dtype.name in CANONICAL and nan.any():  # the device has one NaN, whatever the operands'
        result[nan] = CANONICAL[dtype.name]
    return result


def _bitwise(
    op: str,
    a: Value,
    b: Value,
    left: np.ndarray,
    right: np.ndarray,
    dtype: tl.dtype,
    poison: np.ndarray | None,
) -> Value:
    """Bit operations; a defined 0 under & and defined ones under | settle the other side's lane."""
    if poison is not None and op in "&|":
        settled = 0 if op == "&" else (True if dtype.is_int1() else -1)
        for mine, other, data in ((a.poison, b.poison, left), (b.poison, a.poison, right)):
            known = data == np.array(settled).astype(data.dtype)
            if mine is not None:
                known = known & (pad_rank(mine, known.ndim) == 0)
            if other is not None:
                poison = np.where(known, np.uint8(0), poison)
    result = BITWISE[op](left, right)
    loaded = min((v.loaded for v in (a, b) if v.loaded), default=0)
    exact = None
    if op == "<<" and not dtype.is_int1():
        exact = _exact(lambda p, q: p << np.clip(q, 0, 62), a, b, left, right, result, dtype)
    elif op == ">>" and a.exact is not None:
        wide = _shift_right(pad_rank(a.exact, result.ndim), right.astype(np.int64))
        exact = wide if (wide != result).any() else None
    return Value(result, dtype, poison, exact, loaded=loaded)


def _integer(
    op: str,
    a: Value,
    b: Value,
    left: np.ndarray,
    right: np.ndarray,
    dtype: tl.dtype,
    poison: np.ndarray | None,
) -> Value:
    if dtype.is_int1():
        result = ARITHMETIC[op](left.astype(np.int8), right.astype(np.int8)) & 1
        return Value(result.astype(np.bool_), dtype, poison)
    result = ARITHMETIC[op](left, right)
    loaded = min((v.loaded for v in (a, b) if v.loaded), default=0)
    exact = _exact(ARITHMETIC[op], a, b, left, right, result, dtype)
    made = Value(result, dtype, poison, exact, loaded=loaded)
    if exact is None and dtype.int_bitwidth < 64:
        made.span = _span(ARITHMETIC[op], a, b, dtype)
    return made


def _exact(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    a: Value,
    b: Value,
    left: np.ndarray,
    right: np.ndarray,
    result: np.ndarray,
    dtype: tl.dtype,
) -> np.ndarray | None:
    """The result in 64 bits where it differs from `result`, else None.

    An interval test on the operands settles nearly every case without a second pass.
    """
    exact = a.exact is None and b.exact is None
    if exact and (dtype.int_bitwidth == 64 or _span(function, a, b, dtype) is not None):
        return None
    ndim = result.ndim
    p = pad_rank(left if a.exact is None else a.exact, ndim).astype(np.int64)
    q = pad_rank(right if b.exact is None else b.exact, ndim).astype(np.int64)
    wide = function(p, q)
    return wide if (wide != result).any() else None


def _span(function: Any, a: Value, b: Value, dtype: tl.dtype) -> tuple[int, int] | None:
    """Bounds of the result of integers by interval arithmetic, None if they leave the type.

    The operands are looked at only where what is known of them does not settle it.
    """
    known = _corners(function, a.span, b.span)
    low, high = int_range(dtype)
    if known is None or known[0] < low or known[1] > high:
        a.span = b.span = None
        known = _corners(function, a.bounds(), b.bounds())
    return known if known is not None and low <= known[0] and known[1] <= high else None


def _corners(
    function: Any, p: tuple[int, int] | None, q: tuple[int, int] | None
) -> tuple[int, int] | None:
    """The interval of `function` over two intervals, None where one of them is not known."""
    if p is None or q is None:
        return None
    if function is np.add:
        return p[0] + q[0], p[1] + q[1]
    if function is np.subtract:
        return p[0] - q[1], p[1] - q[0]
    if function is np.multiply:
        corners = p[0] * q[0], p[0] * q[1], p[1] * q[0], p[1] * q[1]
        return min(corners), max(corners)
    if function is np.minimum:
        return min(p[0], q[0]), min(p[1], q[1])
    if function is np.maximum:
        return max(p[0], q[0]), max(p[1], q[1])
    if function in (_divide, _remainder):
        most = max(abs(p[0]), abs(p[1]))
        return (0 if p[0] >= 0 and q[0] >= 0 else -most), most
    if q[0] < 0 or q[1] > 62:  # a shift
        return None
    return _corners(np.multiply, p, (1 << q[0], 1 << q[1]))


def _pointer(op: str, a: Value, b: Value) -> Value:
    """Pointer plus or minus an integer, in elements; comparison of addresses."""
    if op in COMPARE:
        ndim = max(a.data.ndim, b.data.ndim)
        data = COMPARE[op](pad_rank(a.data, ndim), pad_rank(b.data, ndim))
        return Value(data, tl.int1, union(a.poison, b.poison))
    if op == "+" and is_pointer(b.dtype) and not is_pointer(a.dtype):
        a, b = b, a
    if op not in "+-" or not is_pointer(a.dtype) or not is_int(b.dtype):
        raise execution.kernel_error(f"no {op} between {a!r} and {b!r}")
    ndim = max(a.data.ndim, b.data.ndim)
    size = itemsize(a.dtype.element_ty)
    base, offs = pad_rank(a.data, ndim), pad_rank(b.data, ndim).astype(np.int64)
    move = np.add if op == "+" else np.subtract
    exact = None
    if a.exact is not None or b.exact is not None:
        true_base = base if a.exact is None else pad_rank(a.exact, ndim)
        true_offs = offs if b.exact is None else pad_rank(b.exact, ndim)
        exact = move(true_base, true_offs * size)
    moved = move(base, offs * size if size != 1 else offs)
    return Value(moved, a.dtype, union(a.poison, b.poison), exact, a.base)


# -- operators on Value --------------------------------------------------------------------------
def _negative(x: Value) -> Any:
    return Value(-x.data, x.dtype, x.poison) if is_float(x.dtype) else binary("-", 0, x)


def _inverted(x: Value) -> Value:
    if not is_int(x.dtype):
        raise execution.kernel_error(f"~ needs an integer, got {x!r}")
    return Value(~x.data, x.dtype, x.poison, None if x.exact is None else ~x.exact)


def _operator(op: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    if reflected:
        return lambda self, other: binary(op, other, self)
    return lambda self, other: binary(op, self, other)


_WORDS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
for _word, _op in _WORDS.items():
    setattr(Value, f"__{_word}__", _operator(_op))
    setattr(Value, f"__r{_word}__", _operator(_op, reflected=True))
for _word, _op in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Value, f"__{_word}__", _operator(_op))
for _word, _unary in {"neg": _negative, "pos": lambda x: x, "invert": _inverted}.items():
    setattr(Value, f"__{_word}__", _unary)
