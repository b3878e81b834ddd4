"""Functions lane by lane: where, minimum, fma, exp and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.dot import dot_model
from gemmproof.reference.machine import execution
from gemmproof.reference.machine.arithmetic import binary
from gemmproof.reference.machine.cast import convert
from gemmproof.reference.machine.types import (
    is_float,
    is_int,
    is_pointer,
    numpy_of,
    promote,
    type_of_number,
)
from gemmproof.reference.machine.value import Value, is_number, lift, pad_rank, scalar, union


def common(*args: Any) -> list[Value]:
    """The arguments in the type in which they compute together; numbers take the tensors' type."""
    tensors = [x.dtype for x in args if isinstance(x, Value)]
    numbers = [type_of_number(x) for x in args if is_number(x)]
    if not tensors:
        tensors, numbers = numbers, []
    dtype = tensors[0]
    try:
        for other in tensors[1:]:
            dtype = promote(dtype, other)
        for other in numbers:
            dtype = promote(dtype, other, False, True)
    except TypeError as error:
        raise execution.kernel_error(str(error)) from None
    return [scalar(x, dtype) if is_number(x) else convert(lift(x), dtype) for x in args]


def where(condition: Any, x: Any, y: Any) -> Value:
    """tl.where: a lane that is not picked leaves no trace, undefined or not."""
    cond = lift(condition)
    if cond.dtype != tl.int1:
        cond = convert(cond, tl.int1)
    pointers = [v for v in (x, y) if isinstance(v, Value) and is_pointer(v.dtype)]
    a, b = (lift(x), lift(y)) if pointers else common(x, y)
    ndim = max(cond.data.ndim, a.data.ndim, b.data.ndim)
    c, p, q = (pad_rank(v.data, ndim) for v in (cond, a, b))
    try:
        data = np.where(c, p, q)
    except ValueError:
        raise execution.kernel_error(
            f"where: shapes of {cond!r}, {a!r} and {b!r} do not broadcast"
        ) from None
    poison = None
    if a.poison is not None or b.poison is not None:
        none = np.zeros((1,) * ndim, np.uint8)
        poison = np.where(
            c,
            none if a.poison is None else pad_rank(a.poison, ndim),
            none if b.poison is None else pad_rank(b.poison, ndim),
        )
    exact = None
    if a.exact is not None or b.exact is not None:
        wide = [
            pad_rank(v.data.astype(np.int64) if v.exact is None else v.exact, ndim) for v in (a, b)
        ]
        exact = np.where(c, *wide)
        exact = exact if (exact != data).any() else None
    base = a.base if a.base is b.base else None
    return Value(data, a.dtype, union(poison, cond.poison), exact, base)


def _extreme(op: str, nan_free: Any, x: Any, y: Any, propagate_nan: Any) -> Any:
    if is_number(x) and is_number(y):
        return binary(op, x, y)
    a, b = common(x, y)
    if not is_float(a.dtype):
        return binary(op, a, b)
    keep = getattr(propagate_nan, "name", "NONE") == "ALL"
    ndim = max(a.data.ndim, b.data.ndim)
    function = {"min": np.minimum, "max": np.maximum}[op] if keep else nan_free
    data = function(pad_rank(a.data, ndim), pad_rank(b.data, ndim))
    return Value(data, a.dtype, union(a.poison, b.poison))


def minimum(x: Any, y: Any, propagate_nan: Any = None) -> Any:
    """tl.minimum; without propagate_nan a number wins against NaN."""
    return _extreme("min", np.fmin, x, y, propagate_nan)


def maximum(x: Any, y: Any, propagate_nan: Any = None) -> Any:
    """tl.maximum; without propagate_nan a number wins against NaN."""
    return _extreme("max", np.fmax, x, y, propagate_nan)


def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = None) -> Any:
    """tl.clamp."""
    a, low, high = common(x, min, max)
    return minimum(maximum(a, low, propagate_nan), high, propagate_nan)


def fold(op: str) -> Callable[..., Any]:
    """Python's min and max inside a kernel: of two or more scalars."""

    def function(*args: Any) -> Any:
        if len(args) < 2:
            raise execution.kernel_error(f"{op}() needs two or more arguments in a kernel")
        result = args[0]
        for x in args[1:]:
            result = binary(op, result, x) if not _any_float(result, x) else _EXTREME[op](result, x)
        return result

    return function


def _any_float(*args: Any) -> bool:
    return any(isinstance(x, Value) and is_float(x.dtype) for x in args)


_EXTREME = {"min": minimum, "max": maximum}


def absolute(x: Any) -> Any:
    """tl.abs."""
    if is_number(x):
        return abs(x)
    value = lift(x)
    return Value(np.abs(value.data), value.dtype, value.poison)


def fma(x: Any, y: Any, z: Any) -> Value:
    """tl.fma: one rounding in the common float type."""
    a, b, c = common(x, y, z)
    shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
    programs = max(v.data.shape[0] for v in (a, b, c))
    parts = [
        np.broadcast_to(pad_rank(v.data, len(shape) + 1), (programs, *shape)).reshape(-1)
        for v in (a, b, c)
    ]
    if a.dtype.is_fp32():
        chain = dot_model(None, "fp32")
        data = chain.dot(parts[0][:, None, None], parts[1][:, None, None], parts[2][:, None, None])
        data = data.reshape(programs, *shape)
    else:  # products of 11 bits and their sums are rounded once from float64
        wide = [p.astype(np.float64) for p in parts]
        rounded = convert(Value((wide[0] * wide[1] + wide[2])[None], tl.float64), a.dtype)
        data = rounded.data.reshape(programs, *shape)
    return Value(data, a.dtype, union(a.poison, b.poison, c.poison))


def unary(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], Value]:
    """A float function: computed in fp32 (fp64 for fp64) and rounded to the operand's type."""

    def apply(x: Any, *_: Any, **__: Any) -> Value:
        value = lift(x)
        if not is_float(value.dtype):
            raise execution.kernel_error(f"got {value!r}, expected floats")
        execution.rounds("math")
        wide = value.data if value.dtype.is_fp64() else value.data.astype(np.float32)
        data = function(wide).astype(wide.dtype, copy=False)
        made = Value(data, tl.float64 if value.dtype.is_fp64() else tl.float32, value.poison)
        return convert(made, value.dtype)

    return apply


def test(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], Value]:
    """A float predicate of libdevice."""

    def apply(x: Any) -> Value:
        value = lift(x)
        return Value(function(value.data.astype(np.float64)), tl.int1, value.poison)

    return apply


def power(x: Any, y: Any) -> Value:
    """libdevice.pow."""
    a, b = common(x, y)
    execution.rounds("math")
    ndim = max(a.data.ndim, b.data.ndim)
    data = np.power(pad_rank(a.data, ndim), pad_rank(b.data, ndim))
    return Value(data.astype(numpy_of(a.dtype)), a.dtype, union(a.poison, b.poison))


def _erf(x: np.ndarray) -> np.ndarray:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Any) -> Value:
    """tl.sigmoid."""
    return unary(lambda v: 1 / (1 + np.exp(-v)))(x)


def divide(x: Any, y: Any, *_: Any, **__: Any) -> Any:
    """tl.fdiv, tl.div_rn: the quotient, rounded to nearest."""
    return binary("/", x, y)


def umulhi(x: Any, y: Any) -> Value:
    """tl.umulhi: the upper half of the product of unsigned integers."""
    a, b = common(x, y)
    if not is_int(a.dtype) or a.dtype.int_bitwidth not in (32, 64):
        raise execution.kernel_error(f"umulhi: got {a!r}, expected 32 or 64 bits")
    ndim = max(a.data.ndim, b.data.ndim)
    if a.dtype.int_bitwidth == 32:
        p = pad_rank(a.data, ndim).view(np.uint32).astype(np.uint64)
        q = pad_rank(b.data, ndim).view(np.uint32).astype(np.uint64)
        high = (p * q) >> np.uint64(32)
    else:
        wide = pad_rank(a.data, ndim).view(np.uint64).astype(object)
        high = (wide * pad_rank(b.data, ndim).view(np.uint64).astype(object)) >> 64
    data = high.astype(f"u{a.dtype.int_bitwidth // 8}").view(numpy_of(a.dtype))
    return Value(data, a.dtype, union(a.poison, b.poison))


def logical(op: str) -> Callable[[Any, Any], Value]:
    """`x.logical_and(y)` and `x.logical_or(y)`."""
    return lambda x, y: binary(op, convert(lift(x), tl.int1), convert(lift(y), tl.int1))


def cdiv(x: Any, div: Any) -> Any:
    """tl.cdiv: division rounded up."""
    return (x + div - 1) // div


MATH: dict[str, Callable[..., Any]] = {
    "exp": unary(np.exp),
    "exp2": unary(np.exp2),
    "log": unary(np.log),
    "log2": unary(np.log2),
    "log10": unary(np.log10),
    "log1p": unary(np.log1p),
    "expm1": unary(np.expm1),
    "sin": unary(np.sin),
    "cos": unary(np.cos),
    "tan": unary(np.tan),
    "tanh": unary(np.tanh),
    "sqrt": unary(np.sqrt),
    "sqrt_rn": unary(np.sqrt),
    "rsqrt": unary(lambda v: 1 / np.sqrt(v)),
    "erf": unary(_erf),
    "floor": unary(np.floor),
    "ceil": unary(np.ceil),
    "trunc": unary(np.trunc),
    "rint": unary(np.rint),
    "round": unary(lambda v: np.copysign(np.floor(np.abs(v) + 0.5), v)),
    "abs": absolute,
    "fabs": absolute,
    "fma": fma,
    "fdiv": divide,
    "div_rn": divide,
    "umulhi": umulhi,
    "mulhi": umulhi,
    "sigmoid": sigmoid,
    "pow": power,
    "acos": unary(np.arccos),
    "asin": unary(np.arcsin),
    "atan": unary(np.arctan),
    "cosh": unary(np.cosh),
    "sinh": unary(np.sinh),
    "cbrt": unary(np.cbrt),
    "erfc": unary(lambda v: 1 - _erf(v)),
    "exp10": unary(lambda v: np.power(10.0, v)),
    "nearbyint": unary(np.rint),
    "fast_expf": unary(np.exp),
    "fast_logf": unary(np.log),
    "fast_sinf": unary(np.sin),
    "fast_cosf": unary(np.cos),
    "fast_tanhf": unary(np.tanh),
    "fast_dividef": divide,
    "fma_rn": fma,
    "fmin": minimum,
    "fmax": maximum,
    "isnan": test(np.isnan),
    "isinf": test(np.isinf),
    "finitef": test(np.isfinite),
}
