"""The terms of operations that no polynomial says, simplified where that is plain."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.symbolic.terms.atoms import Atom, Poly, term
from gemmproof.reference.symbolic.terms.conditions import FALSE, TRUE, flag


# What each kind of atom is of its parts' values: Python's integers, or numpy's arrays of them.
def _towards_zero(x: Any, d: Any) -> Any:
    quotient = np.abs(x) // np.abs(np.where(d == 0, 1, d))
    return np.where((x < 0) == (d < 0), quotient, -quotient)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "floordiv": lambda x, d: x // np.where(d == 0, 1, d),
    "mod": lambda x, d: x % np.where(d == 0, 1, d),
    "div": _towards_zero,
    "rem": lambda x, d: x - _towards_zero(x, d) * d,
    "min": np.minimum,
    "max": np.maximum,
    "choice": np.where,
    "flag": lambda cond: np.where(cond, 1, 0),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shr": np.right_shift,
}


def make(kind: str, *args: Any) -> Poly:
    """The term of a kind of atom, simplified where that is plain."""
    if kind == "choice":
        cond, x, y = args
        if x == y or cond == TRUE:
            return term(x)
        return term(y) if cond == FALSE else term(Atom("choice", cond, x, y))
    if kind == "flag":
        return flag(args[0])
    x, y = args = tuple(map(term, args))
    if x.constant is not None and y.constant is not None:
        if not (y.constant == 0 and kind in ("floordiv", "mod", "div", "rem")):
            return term(int(OPERATIONS[kind](x.constant, y.constant)))
    elif kind in ("div", "rem") and ((x.is_natural and y.is_natural) or y.constant == 1):
        return make("floordiv" if kind == "div" else "mod", x, y)
    elif kind in ("floordiv", "mod") and y.constant:
        return _divide_by(kind, x, y.constant)
    elif kind in ("min", "max"):
        if (y - x).is_natural:
            return x if kind == "min" else y
        if (x - y).is_natural:
            return y if kind == "min" else x
    elif kind in ("and", "or", "xor", "shr"):
        return _bits(kind, x, y)
    return term(Atom(kind, *args))


def _divide_by(kind: str, x: Poly, divisor: int) -> Poly:
    """A quotient or remainder by a number: the multiples of it leave exactly."""
    whole = Poly({m: c for m, c in x.terms.items() if c % divisor == 0})
    rest = x - whole
    most = rest.most
    bits = rest.atom if kind == "mod" and divisor & (divisor - 1) == 0 < divisor else None
    if bits is not None and bits.kind in ("and", "or", "xor"):
        # the low bits are computed from low bits alone
        return make(bits.kind, *(make("mod", part, divisor) for part in bits.args))
    if rest.constant is not None:
        quotient, remainder = divmod(rest.constant, divisor)
        rest_quotient, rest_mod = term(quotient), term(remainder)
    elif most is not None and most < divisor:
        rest_quotient, rest_mod = term(0), rest
    elif divisor > 0 and (-rest).is_natural:
        rest_quotient, rest_mod = _divide_negative(rest, divisor)
    else:
        rest_quotient, rest_mod = _divide_digits(rest, divisor)
    if kind == "mod":
        return rest_mod
    return Poly({m: c // divisor for m, c in whole.terms.items()}) + rest_quotient


def _divide_digits(x: Poly, divisor: int) -> tuple[Poly, Poly]:
    """Quotient and remainder; (64 p + i) // 512 is p // 8 where i is a digit below 64."""
    for place in sorted({math.gcd(c, divisor) for m, c in x.terms.items() if m}, reverse=True):
        below = Poly({m: c for m, c in x.terms.items() if c % place})
        if 1 < place < divisor and below.most is not None and below.most < place:
            above = Poly({m: c // place for m, c in x.terms.items() if c % place == 0})
            quotient, rest = (make(kind, above, divisor // place) for kind in ("floordiv", "mod"))
            return quotient, place * rest + below
    return term(Atom("floordiv", x, term(divisor))), term(Atom("mod", x, term(divisor)))


def _divide_negative(x: Poly, divisor: int) -> tuple[Poly, Poly]:
    """Quotient and remainder of what is never positive: its opposite rounded up."""
    up = divisor - 1 - x
    return -make("floordiv", up, divisor), divisor - 1 - make("mod", up, divisor)


def _bits(kind: str, x: Poly, y: Poly) -> Poly:
    """Bit operations: those that are arithmetic are written so."""
    if y.constant is not None and y.constant >= 0:
        n = y.constant
        if kind == "shr":  # of signed integers: rounded down
            return make("floordiv", x, 1 << n) if n < 64 else term(Atom(kind, x, y))
        if kind == "and" and n & (n + 1) == 0:
            return make("mod", x, n + 1)
        if n == 0:
            return term(0) if kind == "and" else x
    return term(Atom(kind, x, y))
