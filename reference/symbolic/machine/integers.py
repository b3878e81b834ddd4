"""Integer arithmetic of TTIR over symbols."""

from __future__ import annotations

from collections.abc import Callable

from gemmproof.reference.symbolic.terms import (
    Cond,
    Poly,
    eq,
    every,
    le,
    lt,
    make,
    term,
)

_RING: dict[str, Callable[[Poly, Poly], Poly]] = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
}
_OTHERS = {
    "arith.divsi": "div",
    "arith.remsi": "rem",
    "arith.minsi": "min",
    "arith.maxsi": "max",
    "arith.floordivsi": "floordiv",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    "arith.shrsi": "shr",
}
# read without sign: the same where nothing is negative
_UNSIGNED = {
    "arith.divui": "div",
    "arith.remui": "rem",
    "arith.minui": "min",
    "arith.maxui": "max",
    "arith.shrui": "shr",
}
ARITHMETIC = (*_RING, *_OTHERS, *_UNSIGNED, "arith.shli")


def is_ring(name: str) -> bool:
    """Whether an operation is right modulo a power of two: a wrap on the way is harmless."""
    return name in _RING or name == "arith.shli"


def compute(name: str, x: Poly, y: Poly) -> Poly | None:
    """An operation on two exact integers, None where terms cannot say it."""
    if name in _RING:
        return _RING[name](x, y)
    if name == "arith.shli":
        n = y.constant
        return x * (1 << n) if n is not None and 0 <= n < 64 else None
    if name in _UNSIGNED:
        if x.is_natural and y.is_natural:
            return make(_UNSIGNED[name], x, y)
        return None
    return make(_OTHERS[name], x, y)


def compare(predicate: str, x: Poly, y: Poly) -> Cond | None:
    """A comparison of two exact integers, None where terms cannot say it."""
    if predicate.startswith("u"):
        if not y.is_natural:
            return None
        signed = compare(f"s{predicate[1:]}", x, y)
        if x.is_natural or signed is None:
            return signed
        # a negative number is larger than any other
        inside = le(term(0), x)
        return every((inside, signed)) if predicate in ("ult", "ule") else ~inside | signed
    table: dict[str, Callable[[], Cond]] = {
        "eq": lambda: eq(x, y),
        "ne": lambda: ~eq(x, y),
        "slt": lambda: lt(x, y),
        "sle": lambda: le(x, y),
        "sgt": lambda: lt(y, x),
        "sge": lambda: le(y, x),
    }
    return table[predicate]()
