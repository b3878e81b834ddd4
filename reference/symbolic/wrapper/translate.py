"""torch's sympy expressions of sizes as terms and conditions.

Classes are told by their names: torch has its own for what integers need, and renames none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Cond,
    Poly,
    eq,
    every,
    flag,
    le,
    lt,
    make,
    some,
    term,
)

Names = Mapping[str, Poly]


class Untranslatable(Exception):
    """An expression that no term says; the message is what it is."""


# the same for every number of parts
_FOLDED = {
    "Max": "max",
    "Min": "min",
    "BitwiseFn_bitwise_and": "and",
    "BitwiseFn_bitwise_or": "or",
    "BitwiseFn_bitwise_xor": "xor",
}
_BINARY = {
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",
    "IntTrueDiv": "",
    "Mod": "mod",
    "PythonMod": "mod",
}
_RELATIONS = {
    "Equality": eq,
    "Unequality": lambda x, y: ~eq(x, y),
    "LessThan": le,
    "StrictLessThan": lt,
    "GreaterThan": lambda x, y: le(y, x),
    "StrictGreaterThan": lambda x, y: lt(y, x),
}
_MOST_POWER = 8


def to_term(expr: Any, names: Names) -> Poly:
    """An integer expression as a term; `names` gives the symbols their terms."""
    if isinstance(expr, int):
        return term(expr)
    kind = type(expr).__name__
    if getattr(expr, "is_Integer", False):
        return term(int(expr))
    if getattr(expr, "is_Symbol", False):
        return names[str(expr)]
    if kind in ("CeilToInt", "FloorToInt", "TruncToInt"):
        return _to_integer(kind, expr.args[0], names)
    if kind in ("Piecewise", "Where"):
        return _choose(kind, expr.args, names)
    if is_condition(expr):
        return flag(to_cond(expr, names))
    parts = [to_term(part, names) for part in expr.args if kind != "Pow"]
    if kind == "Add":
        return reduce(lambda x, y: x + y, parts)
    if kind == "Mul":
        return reduce(lambda x, y: x * y, parts)
    if kind == "Pow":
        base, power = expr.args
        if power.is_Integer and 0 <= int(power) <= _MOST_POWER:
            return reduce(lambda x, y: x * y, [to_term(base, names)] * int(power), term(1))
    if kind in _FOLDED:
        return reduce(lambda x, y: make(_FOLDED[kind], x, y), parts)
    if _BINARY.get(kind):
        return make(_BINARY[kind], *parts)
    if kind == "CeilDiv":
        return -make("floordiv", -parts[0], parts[1])
    if kind == "ModularIndexing":
        return make("mod", make("floordiv", parts[0], parts[1]), parts[2])
    if kind == "RShift":
        return make("shr", *parts)
    if kind in ("LShift", "PowByNatural"):
        return _power(kind, *parts)
    if kind == "Identity":
        return parts[0]
    raise Untranslatable(f"{kind} of sizes" if len(str(expr)) > 80 else f"{expr}")


def _to_integer(kind: str, inner: Any, names: Names) -> Poly:
    """A quotient that is rounded to an integer: exact while a double holds the dividend."""
    if type(inner).__name__ not in ("IntTrueDiv", "FloatTrueDiv"):
        return to_term(_unfloat(inner), names)
    x, y = (to_term(_unfloat(part), names) for part in inner.args)
    if kind == "CeilToInt":
        return -make("floordiv", -x, y)
    return make("floordiv" if kind == "FloorToInt" else "div", x, y)


def _unfloat(expr: Any) -> Any:
    """An integer that was made a float, as it was."""
    if type(expr).__name__ == "ToFloat":
        return expr.args[0]
    if getattr(expr, "is_Float", False):
        if float(expr) == int(expr):
            return int(expr)
        raise Untranslatable(f"{expr}")
    return expr


def _choose(kind: str, parts: Any, names: Names) -> Poly:
    if kind == "Where":
        cond, x, y = parts
        return make("choice", to_cond(cond, names), to_term(x, names), to_term(y, names))
    (last, _), *rest = list(parts)[::-1]
    chosen = to_term(last, names)
    for x, cond in rest:
        chosen = make("choice", to_cond(cond, names), to_term(x, names), chosen)
    return chosen


def _power(kind: str, x: Poly, y: Poly) -> Poly:
    if kind == "LShift" and y.constant is not None and 0 <= y.constant < 64:
        return x * (1 << y.constant)
    if kind == "PowByNatural" and y.constant is not None and 0 <= y.constant <= _MOST_POWER:
        return reduce(lambda a, b: a * b, [x] * y.constant, term(1))
    raise Untranslatable(f"{kind} by a size")


def is_condition(expr: Any) -> bool:
    """Whether an expression is true or false."""
    kind = type(expr).__name__
    known = ("And", "Or", "Not", "BooleanTrue", "BooleanFalse", *_RELATIONS)
    return isinstance(expr, bool) or kind in known


def to_cond(expr: Any, names: Names) -> Cond:
    """A boolean expression as a condition."""
    kind = type(expr).__name__
    if expr is True or kind == "BooleanTrue":
        return TRUE
    if expr is False or kind == "BooleanFalse":
        return FALSE
    if kind in _RELATIONS:
        x, y = expr.args
        if is_condition(x) or is_condition(y):
            return _RELATIONS[kind](*(flag(to_cond(part, names)) for part in (x, y)))
        return _RELATIONS[kind](*(to_term(_unfloat(part), names) for part in (x, y)))
    if kind in ("And", "Or"):
        return (every if kind == "And" else some)(to_cond(part, names) for part in expr.args)
    if kind == "Not":
        return ~to_cond(expr.args[0], names)
    raise Untranslatable(f"{expr}")
