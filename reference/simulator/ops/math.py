"""Mathematical functions: computed in fp32 (fp64 for fp64) and rounded once to the type."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gemmproof.reference.dot import dot_model
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.dtypes import F32, F64, unsigned
from gemmproof.reference.simulator.ops.cast import to_float
from gemmproof.reference.simulator.ops.floats import canonical
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.ttir import Op
from gemmproof.reference.simulator.value import Value, union

Function = Callable[[np.ndarray], np.ndarray]


def _round_away(x: np.ndarray) -> np.ndarray:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole)


# Functions of one float. What rounds is noted: a GPU's own function may differ in the last bits.
_FLOAT: dict[str, Function] = {
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.log": np.log,
    "math.log2": np.log2,
    "math.log10": np.log10,
    "math.log1p": np.log1p,
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.tan": np.tan,
    "math.sinh": np.sinh,
    "math.cosh": np.cosh,
    "math.tanh": np.tanh,
    "math.asin": np.arcsin,
    "math.acos": np.arccos,
    "math.atan": np.arctan,
    "math.asinh": np.arcsinh,
    "math.acosh": np.arccosh,
    "math.atanh": np.arctanh,
    "math.sqrt": np.sqrt,
    "tt.precise_sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.cbrt": np.cbrt,
    "math.erf": np.vectorize(math.erf, otypes=[np.float64]),
    "math.erfc": np.vectorize(math.erfc, otypes=[np.float64]),
}
_EXACT: dict[str, Function] = {
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.trunc": np.trunc,
    "math.roundeven": np.rint,
    "math.round": _round_away,
    "math.absf": np.abs,
}


@operation(*_FLOAT, *_EXACT)
def _build_function(op: Op) -> Callable[..., Value]:
    function, dtype = (_FLOAT | _EXACT)[op.name], op.types[0].dtype
    rounds = op.name in _FLOAT

    def compute(x: Value) -> Value:
        if rounds:
            context.note_rounding("math")
        wide = x.data.astype(np.float64)  # then rounded once: fp32 functions are correct to an ulp
        data = to_float(function(wide), dtype)
        return Value(canonical(data), dtype, x.poison)

    return compute


@operation("math.powf", "math.atan2", "math.copysign")
def _build_function_of_two(op: Op) -> Callable[..., Value]:
    functions = {"math.powf": np.power, "math.atan2": np.arctan2, "math.copysign": np.copysign}
    function, dtype = functions[op.name], op.types[0].dtype

    def compute(x: Value, y: Value) -> Value:
        context.note_rounding("math")
        data = to_float(function(x.data.astype(np.float64), y.data.astype(np.float64)), dtype)
        return Value(canonical(data), dtype, union(x.poison, y.poison))

    return compute


@operation("math.fma")
def _build_fma(op: Op) -> Callable[..., Value]:
    dtype = op.types[0].dtype

    def compute(x: Value, y: Value, z: Value) -> Value:
        poison = union(x.poison, y.poison, z.poison)
        parts = np.broadcast_arrays(x.data, y.data, z.data)
        if dtype in (F32, F64):
            chain = dot_model(None, dtype.format)
            flat = [np.ascontiguousarray(p).reshape(-1, 1, 1) for p in parts]
            data = chain.dot(*flat).reshape(parts[0].shape)
        else:  # products of 11 bits and their sums are rounded once, from odd-rounded float64
            p, q, r = (part.astype(np.float64) for part in parts)
            data = to_float(_sum_to_odd(p * q, r), dtype)
        return Value(canonical(data), dtype, poison)

    return compute


@operation("arith.remf")
def _build_remainder(op: Op) -> Callable[..., Value]:
    """a - trunc(a / b) b as the compiled kernel has it: the quotient rounded, then one fma."""
    dtype = op.types[0].dtype
    multiply_add = _build_fma(op)

    def compute(a: Value, b: Value) -> Value:
        context.note_rounding("/")
        quotient = np.trunc(np.true_divide(a.data, b.data).astype(dtype.numpy))
        made = multiply_add(Value(-quotient, dtype, union(a.poison, b.poison)), b, a)
        made.data = np.where(np.isinf(b.data), a.data, made.data)
        return made

    return compute


def _sum_to_odd(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x + y rounded to odd, so that a second rounding to fewer bits is as one from the exact sum
    (Boldo and Melquiond, 2008)."""
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + toward, bits).view(np.float64)


@operation("math.absi", "math.ctpop", "math.ctlz", "math.cttz")
def _build_bit_function(op: Op) -> Callable[..., Value]:
    dtype = op.types[0].dtype

    def compute(x: Value) -> Value:
        if op.name == "math.absi":
            data = np.abs(x.data)
        else:
            data = _count_bits(op.name, unsigned(x.data)).astype(dtype.numpy)
        return Value(data, dtype, x.poison)

    return compute


def _count_bits(name: str, x: np.ndarray) -> np.ndarray:
    """Ones, leading zeros or trailing zeros of unsigned integers."""
    width = 8 * x.dtype.itemsize
    bits = (x[..., None] >> np.arange(width, dtype=x.dtype)) & x.dtype.type(1)
    if name == "math.ctpop":
        return bits.sum(axis=-1)
    if name == "math.ctlz":
        bits = bits[..., ::-1]
    return np.where(x == 0, width, bits.argmax(axis=-1))
