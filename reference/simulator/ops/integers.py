"""Integer operations and comparisons of TTIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference import bitwise
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.value import Value, join, loaded_width, parts_of, union
from gemmproof.reference.ttir import I1, Dtype, Op, unsigned

# -- integers ------------------------------------------------------------------------------------
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]
Interval = tuple[int, int]


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


# The amount of a shift has no sign, and PTX takes the low 32 bits of a wider one.
def _shift_left(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return bitwise.shift_left(x, unsigned(y).astype(np.uint32))


def _shift_right(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return bitwise.shift_right(x, unsigned(y).astype(np.uint32))


# TTIR's name -> (function, True if its operands are unsigned)
INTEGER: dict[str, tuple[Function, bool]] = {
    "arith.addi": (np.add, False),
    "arith.subi": (np.subtract, False),
    "arith.muli": (np.multiply, False),
    "arith.divsi": (_divide, False),
    "arith.divui": (_divide, True),
    "arith.remsi": (_remainder, False),
    "arith.remui": (_remainder, True),
    "arith.minsi": (np.minimum, False),
    "arith.maxsi": (np.maximum, False),
    "arith.minui": (np.minimum, True),
    "arith.maxui": (np.maximum, True),
    "arith.shli": (_shift_left, False),
    "arith.shrsi": (_shift_right, False),
    "arith.shrui": (_shift_right, True),
}
_BITWISE: dict[str, Function] = {
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}
# Arithmetic modulo 2, for i1.
_BOOLEAN: dict[str, Function] = {
    "arith.addi": np.logical_xor,
    "arith.subi": np.logical_xor,
    "arith.muli": np.logical_and,
    "arith.minsi": np.logical_or,
    "arith.maxsi": np.logical_and,
    "arith.minui": np.logical_and,
    "arith.maxui": np.logical_or,
}
DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")


@operation(*(name for name in INTEGER if name not in DIVISIONS))
def build_integer(op: Op) -> Callable[..., Value]:
    function, without_sign = INTEGER[op.name]
    dtype = op.types[0].dtype
    bits = dtype.bits
    if dtype is I1:
        return elementwise(_BOOLEAN.get(op.name, np.logical_and), I1)

    def compute(a: Value, b: Value) -> Value:
        if function is np.add and (waiting := _wait(a, b, dtype)) is not None:
            return waiting
        x, y = (unsigned(a.data), unsigned(b.data)) if without_sign else (a.data, b.data)
        data = function(x, y).view(dtype.numpy)
        span = None if without_sign or bits == 64 else _span(function, a, b, dtype)
        plain = a.exact is None and b.exact is None
        exact = None
        if not plain or (span is None and bits < 64 and not without_sign):
            exact = _exact(function, a, b, data, without_sign)
        result = Value(data, dtype, union(a.poison, b.poison), exact, loaded=loaded_width(a, b))
        result.span = span if exact is None else None
        return result

    return compute


def _wait(a: Value, b: Value, dtype: Dtype) -> Value | None:
    """Return a deferred sum of lanes along different axes, or None if it is best computed now."""
    plain = a.poison is b.poison is None and a.exact is b.exact is None
    if not plain or dtype.bits < 32 or parts_of(a)[0].ndim < 3:
        return None
    if dtype.bits < 64 and _span(np.add, a, b, dtype) is None:
        return None
    return join(parts_of(a), parts_of(b), dtype, None, loaded_width(a, b))


@operation(*DIVISIONS, constant=False)
def _build_division(op: Op) -> Callable[..., Value]:
    plain = build_integer(op)

    def compute(a: Value, b: Value) -> Value:
        result = plain(a, b)
        zero = b.data == 0
        if zero.any():
            bits = zero * session.poison_bit("a division by zero")
            result.poison = union(result.poison, bits)
        return result

    return compute


def _exact(
    function: Function, a: Value, b: Value, data: np.ndarray, without_sign: bool
) -> np.ndarray | None:
    """Return the result in 64 bits if it differs from `data`, else None."""
    p, q = (_wide(v, without_sign) for v in (a, b))
    wide = p << np.clip(q, 0, 62) if function is _shift_left else function(p, q)
    read = unsigned(data) if without_sign else data
    return wide if (wide != read).any() else None


def _wide(value: Value, without_sign: bool) -> np.ndarray:
    if value.exact is None and without_sign:
        return unsigned(value.data).astype(np.int64)
    return value.unbounded()


def _span(function: Function, a: Value, b: Value, dtype: Dtype) -> Interval | None:
    """Return bounds of the result by interval arithmetic, or None if they leave the type.

    They settle nearly every case without a second pass. The operands' bounds are recomputed only if
    the known ones do not settle it.
    """
    low, high = -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    interval = _INTERVALS[function]
    known = interval(a.bounds(), b.bounds())
    if known is not None and (known[0] < low or known[1] > high):
        a.span = b.span = None
        known = interval(a.bounds(), b.bounds())
    return known if known is not None and low <= known[0] and known[1] <= high else None


def _product(p: Interval, q: Interval) -> Interval:
    corners = [x * y for x in p for y in q]
    return min(corners), max(corners)


def _quotient(p: Interval, q: Interval) -> Interval:
    most = max(map(abs, p))
    return (0 if p[0] >= 0 and q[0] >= 0 else -most), most


def _shifted_left(p: Interval, q: Interval) -> Interval | None:
    return None if q[0] < 0 or q[1] > 62 else _product(p, (1 << q[0], 1 << q[1]))


# A function -> its interval over two intervals, or None if that is unknown.
_INTERVALS: dict[Function, Callable[[Interval, Interval], Interval | None]] = {
    np.add: lambda p, q: (p[0] + q[0], p[1] + q[1]),
    np.subtract: lambda p, q: (p[0] - q[1], p[1] - q[0]),
    np.multiply: _product,
    np.minimum: lambda p, q: (min(p[0], q[0]), min(p[1], q[1])),
    np.maximum: lambda p, q: (max(p[0], q[0]), max(p[1], q[1])),
    _divide: _quotient,
    _remainder: _quotient,
    _shift_left: _shifted_left,
    _shift_right: lambda p, q: (min(p[0], 0), max(p[1], 0)),
}


@operation(*_BITWISE)
def _build_bitwise(op: Op) -> Callable[..., Value]:
    function, dtype = _BITWISE[op.name], op.types[0].dtype
    # a defined 0 under & and defined ones under | settle the other side's lane
    conjunction = dtype is I1 and op.name == "arith.andi"
    settled = {"arith.andi": 0, "arith.ori": True if dtype is I1 else -1}.get(op.name)

    def compute(a: Value, b: Value) -> Value:
        poison = union(a.poison, b.poison)
        if conjunction and poison is None and parts_of(a)[0].ndim > 2:
            waiting = join(parts_of(a), parts_of(b), dtype, None, loaded_width(a, b))
            if waiting is not None:
                return waiting
        if poison is not None and settled is not None:
            for side, other in ((a, b), (b, a)):
                known = side.data == np.array(settled).astype(side.data.dtype)
                if side.poison is not None:
                    known = known & (side.poison == 0)
                if other.poison is not None:
                    poison = np.where(known, np.uint8(0), poison)
        data = function(a.data, b.data)
        result = Value(data, dtype, poison, loaded=loaded_width(a, b))
        if dtype is not I1 and a.span and b.span and min(*a.span, *b.span) >= 0:
            high = max(a.span[1], b.span[1])
            result.span = (0, (1 << high.bit_length()) - 1)
        return result

    return compute


@operation("tt.addptr")
def build_pointer_sum(op: Op) -> Callable[..., Value]:
    dtype = op.types[0].dtype
    assert dtype.pointee is not None
    size = dtype.pointee.itemsize

    def compute(pointer: Value, offset: Value) -> Value:
        """Move a pointer by a number of elements; int64 addresses in bytes."""
        plain = pointer.exact is offset.exact is None and pointer.poison is offset.poison is None
        if plain and parts_of(pointer)[0].ndim > 2:
            moves = [part.astype(np.int64) * size for part in parts_of(offset)]
            waiting = join(parts_of(pointer), moves, dtype, pointer.base, 0)
            if waiting is not None:
                return waiting
        offs = offset.data.astype(np.int64)
        exact = None
        if pointer.exact is not None or offset.exact is not None:
            exact = pointer.unbounded() + offset.unbounded() * size
        data = pointer.data + (offs * size if size != 1 else offs)
        return Value(data, dtype, union(pointer.poison, offset.poison), exact, pointer.base)

    return compute


@operation("tt.mulhiui")
def _build_high_product(op: Op) -> Callable[..., Value]:
    dtype = op.types[0].dtype
    multiply = bitwise.multiply_high
    return elementwise(lambda x, y: multiply(unsigned(x), unsigned(y)).view(dtype.numpy), dtype)


# -- comparison ----------------------------------------------------------------------------------
_COMPARE: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@operation("arith.cmpi")
def _build_compare(op: Op) -> Callable[..., Value]:
    word = op.keywords[0]
    function = _COMPARE[word if word in _COMPARE else word[1:]]
    if word[0] == "u":
        return elementwise(lambda x, y: function(unsigned(x), unsigned(y)), I1)
    return elementwise(function, I1)


@operation("arith.cmpf")
def _build_float_compare(op: Op) -> Callable[..., Value]:
    word = op.keywords[0]

    def compare(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        unordered = np.isnan(x) | np.isnan(y)
        if word in ("true", "false"):
            return np.full(unordered.shape, word == "true")
        if word in ("ord", "uno"):
            return unordered if word == "uno" else ~unordered
        holds = _COMPARE[word[1:]](x, y)
        return holds | unordered if word[0] == "u" else holds & ~unordered

    return elementwise(compare, I1)


@operation("arith.select")
def build_select(op: Op) -> Callable[..., Any]:
    def compute(condition: Value, x: Any, y: Any) -> Any:
        """Select lanes; one that is not picked has no effect, undefined or not."""
        if not isinstance(x, Value):
            return x.choose(condition, y)
        if condition.data.ndim != x.data.ndim:  # one condition for the whole block
            ones = (1,) * (x.data.ndim - 1)
            condition = condition.map(lambda d: d.reshape(len(d), *ones))
        c = condition.data
        data = np.where(c, x.data, y.data)
        poison = exact = None
        if x.poison is not None or y.poison is not None:
            poison = np.where(c, x.marks(), y.marks())
        if x.exact is not None or y.exact is not None:
            exact = np.where(c, x.unbounded(), y.unbounded())
            exact = exact if (exact != data).any() else None
        base = x.base if x.base is y.base else None
        poison = union(poison, condition.poison)
        return Value(data, x.dtype, poison, exact, base, loaded_width(x, y))

    return compute
