"""Polynomials and conditions over sizes, strides and lanes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from gemmproof.reference.work import METER

# -- atoms ---------------------------------------------------------------------------------------
_numbers = itertools.count()
_serials = itertools.count()
_atoms: WeakValueDictionary[Any, Atom] = WeakValueDictionary()


class Atom:
    """One unknown integer; equal atoms are one object.

    `kind`: "symbol" (named by `args`), "floordiv" and "mod" (rounded down), "div" and "rem"
    (rounded towards zero), "min", "max", "choice" (condition, then, else), "flag" (a condition as 0
    or 1), "and", "or", "xor", "shr" of bits, or "unknown". `is_natural`: it is never negative.
    `most`: a number that it never exceeds, if one is evident; `least`: one that it never falls
    below, if it is natural. `definition` caches the conditions that define it. `number` orders the
    atoms of one proof, `serial` is unique in the process.
    """

    __slots__ = (
        "__weakref__", "args", "definition", "is_natural", "kind", "least", "most", "number",
        "serial",
    )  # fmt: skip
    kind: str
    args: tuple[Any, ...]
    is_natural: bool
    least: int
    most: int | None
    number: int
    serial: int
    definition: tuple[Any, ...] | None

    def __new__(
        cls,
        kind: str,
        *args: Any,
        is_natural: bool = False,
        least: int = 0,
        most: int | None = None,
    ) -> Atom:
        # serials in place of atoms: a key with atoms would keep alive what a definition names
        key = (kind, tuple(getattr(arg, "key", arg) for arg in args))
        atom = _atoms.get(key)
        if atom is None:
            atom = super().__new__(cls)
            atom.kind, atom.args = kind, args
            atom.number, atom.serial = next(_numbers), next(_serials)
            atom.is_natural = is_natural or _is_natural(kind, args)
            atom.least = max(least, _least(kind, args))
            atom.definition = None
            atom.most = _most(kind, args) if most is None else most
            _atoms[key] = atom
        return atom

    def __hash__(self) -> int:
        return self.number  # sets of atoms are in one order in every run

    def __repr__(self) -> str:
        return str(self.args[0]) if self.kind == "symbol" else f"{self.kind}{self.args}"

    @property
    def is_leaf(self) -> bool:
        """True if nothing defines it."""
        return self.kind in ("symbol", "unknown")


@contextmanager
def own_atoms() -> Iterator[None]:
    """Create separate atoms while active, numbered from 0; they equal none from outside."""
    global _atoms, _numbers
    outside = _atoms, _numbers
    _atoms, _numbers = WeakValueDictionary(), itertools.count()
    try:
        yield
    finally:
        _atoms, _numbers = outside


def _is_natural(kind: str, args: tuple[Any, ...]) -> bool:
    if kind in ("flag",):
        return True
    if kind == "mod":
        return bool(args[1].is_natural)
    if kind in ("floordiv", "div", "rem", "min", "and", "or", "shr", "xor"):
        return all(x.is_natural for x in args)
    if kind == "max":
        return any(x.is_natural for x in args)
    if kind == "choice":
        return bool(args[1].is_natural and args[2].is_natural)
    return False


def _least(kind: str, args: tuple[Any, ...]) -> int:
    """Return a number that a natural atom never falls below."""
    if kind in ("floordiv", "div") and args[1].constant and args[1].is_natural:
        return max(0, args[0].least // args[1].constant)
    if kind in ("min", "max"):
        return max(0, (min if kind == "min" else max)(x.least for x in args))
    return 0


def _most(kind: str, args: tuple[Any, ...]) -> int | None:
    if kind == "flag":
        return 1
    if kind == "mod" and args[1].constant:
        return max(0, int(args[1].constant) - 1)
    return None


Monomial = tuple[Atom, ...]


class Poly:
    """A polynomial of atoms with integer coefficients, as its coefficients by monomial."""

    __slots__ = ("_hash", "_key", "_named", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        METER.terms += 1
        self.terms = {m: c for m, c in terms.items() if c}
        self._hash: int | None = None
        self._key: frozenset[Any] | None = None
        self._named: tuple[Atom, ...] | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __repr__(self) -> str:
        parts = (
            "*".join([*([str(c)] if c != 1 or not m else []), *map(repr, m)])
            for m, c in self.terms.items()
        )
        return " + ".join(parts) or "0"

    @property
    def key(self) -> frozenset[Any]:
        """A key that equal polynomials share, without their atoms."""
        if self._key is None:
            items = self.terms.items()
            self._key = frozenset((tuple(x.serial for x in m), c) for m, c in items)
        return self._key

    @property
    def constant(self) -> int | None:
        """The value, or None if it is no number."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def atom(self) -> Atom | None:
        """The atom that it is, or None if it is no single atom."""
        if len(self.terms) == 1:
            (monomial, coefficient), *_ = self.terms.items()
            if len(monomial) == 1 and coefficient == 1:
                return monomial[0]
        return None

    @property
    def is_natural(self) -> bool:
        """True if it is evidently never negative."""
        return self._bound is not None and self._bound >= 0

    @property
    def least(self) -> int:
        """A number that it never falls below, if it is natural."""
        return max(0, self._bound or 0)

    @property
    def _bound(self) -> int | None:
        total = 0
        for monomial, c in self.terms.items():
            bounds = [x.least if c > 0 else x.most for x in monomial]
            if not all(x.is_natural for x in monomial) or None in bounds:
                return None
            total += c * math.prod(x for x in bounds if x is not None)
        return total

    @property
    def most(self) -> int | None:
        """A number that it never exceeds, if that is evident and it is never negative, or None."""
        total = 0
        for monomial, c in self.terms.items():
            bounds = [x.most if c > 0 else x.least for x in monomial]
            if not all(x.is_natural for x in monomial) or None in bounds:
                return None
            total += c * math.prod(x for x in bounds if x is not None)
        return total if self.is_natural else None

    @property
    def named(self) -> tuple[Atom, ...]:
        """The atoms that it names itself, in order of appearance."""
        if self._named is None:
            self._named = tuple(dict.fromkeys(x for m in self.terms for x in m))
        return self._named

    @property
    def atoms(self) -> set[Atom]:
        """The same as a set."""
        return set(self.named)

    def __add__(self, other: Poly | int) -> Poly:
        total = dict(self.terms)
        for m, c in term(other).terms.items():
            total[m] = total.get(m, 0) + c
        return Poly(total)

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Poly | int) -> Poly:
        return self + -term(other)

    def __rsub__(self, other: int) -> Poly:
        return term(other) - self

    def __mul__(self, other: Poly | int) -> Poly:
        total: dict[Monomial, int] = {}
        for (m, c), (n, d) in itertools.product(self.terms.items(), term(other).terms.items()):
            key = tuple(sorted(m + n, key=lambda x: x.number))
            total[key] = total.get(key, 0) + c * d
        return Poly(total)

    __radd__ = __add__
    __rmul__ = __mul__


def term(x: Poly | Atom | int) -> Poly:
    """Return an atom or a number as a polynomial."""
    if isinstance(x, Poly):
        return x
    return Poly({(x,): 1}) if isinstance(x, Atom) else Poly({(): int(x)})


def symbol(name: str, is_natural: bool = False, least: int = 0) -> Poly:
    """Return the symbol of a name and a lower bound."""
    return term(
        Atom("symbol", name, *([least] if least else []), is_natural=is_natural, least=least)
    )


def new_symbol(name: str, is_natural: bool = False) -> Poly:
    """Return a symbol that no other is equal to, whatever its name."""
    return term(Atom("symbol", name, next(_numbers), is_natural=is_natural))


# -- conditions ----------------------------------------------------------------------------------
_KINDS = ("le", "eq", "ne", "all", "any")
_SIGNS = {"le": "<=", "eq": "==", "ne": "!="}


class Cond:
    """A condition: "le" (a term is at most 0), "eq" (is 0), "ne" (is not), "all" or "any" of some.

    Those without parts are true ("all") and false ("any"). Negation is carried inward.
    """

    __slots__ = ("_hash", "kind", "parts", "term")

    def __init__(self, kind: str, term: Poly | None = None, parts: tuple[Cond, ...] = ()) -> None:
        self.kind, self.term, self.parts = kind, term, parts
        # neither of strings nor of None, whose hashes differ between processes
        self._hash = hash((_KINDS.index(kind), term or 0, parts))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Cond)
            and (self._hash, self.kind) == (other._hash, other.kind)
            and (self.term, self.parts) == (other.term, other.parts)
        )

    def __repr__(self) -> str:
        if self.term is not None:
            return f"{self.term} {_SIGNS[self.kind]} 0"
        return f"{self.kind}({', '.join(map(repr, self.parts))})"

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that equal conditions share, without their atoms."""
        number = None if self.term is None else self.term.key
        return self.kind, number, tuple(part.key for part in self.parts)

    def __and__(self, other: Cond) -> Cond:
        return every((self, other))

    def __or__(self, other: Cond) -> Cond:
        return some((self, other))

    def __invert__(self) -> Cond:
        if self.kind == "le":
            assert self.term is not None
            return le(1 - self.term, 0)
        if self.kind in ("eq", "ne"):
            return Cond("ne" if self.kind == "eq" else "eq", self.term)
        parts = (~part for part in self.parts)
        return some(parts) if self.kind == "all" else every(parts)


TRUE, FALSE = Cond("all"), Cond("any")


def le(x: Poly | int, y: Poly | int) -> Cond:
    """x <= y."""
    difference = term(x) - y
    if difference.constant is not None:
        return TRUE if difference.constant <= 0 else FALSE
    return Cond("le", difference)


def lt(x: Poly | int, y: Poly | int) -> Cond:
    """x < y."""
    return le(term(x) + 1, y)


def eq(x: Poly | int, y: Poly | int) -> Cond:
    """x == y."""
    difference = term(x) - y
    if difference.constant is not None:
        return FALSE if difference.constant else TRUE
    only = difference.atom
    if only is not None and only.kind == "flag":
        return ~only.args[0]
    if only is not None and only.kind == "or":  # no bit is set in either
        return every(eq(part, 0) for part in only.args)
    return Cond("eq", difference)


def _flatten(kind: str, conds: Iterable[Cond]) -> tuple[Cond, ...]:
    parts: dict[Cond, None] = {}
    for cond in conds:
        parts |= dict.fromkeys(cond.parts if cond.kind == kind else (cond,))
    return tuple(parts)


def every(conds: Iterable[Cond]) -> Cond:
    """Return the condition that all of them hold."""
    parts = _flatten("all", conds)
    if FALSE in parts:
        return FALSE
    return parts[0] if len(parts) == 1 else Cond("all", None, parts)


def some(conds: Iterable[Cond]) -> Cond:
    """Return the condition that at least one of them holds."""
    parts = _flatten("any", conds)
    if TRUE in parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Cond("any", None, parts)


def flag(cond: Cond) -> Poly:
    """Return a condition as 1 or 0."""
    if cond in (TRUE, FALSE):
        return term(int(cond is TRUE or cond == TRUE))
    if cond.kind == "ne" and cond.term is not None:
        only = cond.term.atom
        if only is not None and only.kind == "flag":
            return term(only)
    return term(Atom("flag", cond))


# -- making --------------------------------------------------------------------------------------
# The value of each kind of atom from its parts' values: Python integers, or numpy arrays of them.
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
    """Return the term of a kind of atom, simplified if that is evident."""
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
    """Return a quotient or remainder by a number: multiples of it divide exactly."""
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
    """Return quotient and remainder; (64 p + i) // 512 is p // 8 if i is a digit below 64."""
    for weight in sorted({math.gcd(c, divisor) for m, c in x.terms.items() if m}, reverse=True):
        below = Poly({m: c for m, c in x.terms.items() if c % weight})
        if 1 < weight < divisor and below.most is not None and below.most < weight:
            above = Poly({m: c // weight for m, c in x.terms.items() if c % weight == 0})
            quotient, rest = (make(kind, above, divisor // weight) for kind in ("floordiv", "mod"))
            return quotient, weight * rest + below
    return term(Atom("floordiv", x, term(divisor))), term(Atom("mod", x, term(divisor)))


def _divide_negative(x: Poly, divisor: int) -> tuple[Poly, Poly]:
    """Return quotient and remainder of a term that is never positive: its opposite rounded up."""
    up = divisor - 1 - x
    return -make("floordiv", up, divisor), divisor - 1 - make("mod", up, divisor)


def _bits(kind: str, x: Poly, y: Poly) -> Poly:
    """Return a bit operation, written as arithmetic if it is."""
    if y.constant is not None and y.constant >= 0:
        n = y.constant
        if kind == "shr":  # of signed integers: rounded down
            return make("floordiv", x, 1 << n) if n < 64 else term(Atom(kind, x, y))
        if kind == "and" and n & (n + 1) == 0:
            return make("mod", x, n + 1)
        if n == 0:
            return term(0) if kind == "and" else x
    return term(Atom(kind, x, y))


# -- values --------------------------------------------------------------------------------------
Values = Mapping[Atom, Any]


def evaluate(what: Poly | Cond, values: Values, memo: dict[Any, Any] | None = None) -> Any:
    """Return a term's or condition's value if symbols have these values, numbers or arrays.

    Raises KeyError for a symbol without a value.
    """
    memo = {} if memo is None else memo
    if isinstance(what, Cond):
        return _holds(what, values, memo)
    total: Any = 0
    for monomial, coefficient in what.terms.items():
        product: Any = coefficient
        for atom in monomial:
            product = product * _value(atom, values, memo)
        total = total + product
    return total


def _value(atom: Atom, values: Values, memo: dict[Any, Any]) -> Any:
    if atom in values:
        return values[atom]
    if atom not in memo:
        if atom.is_leaf:
            raise KeyError(atom)
        args = [evaluate(x, values, memo) for x in atom.args]
        number = OPERATIONS[atom.kind](*args)
        memo[atom] = number if np.ndim(number) else np.asarray(number).item()  # of any size
    return memo[atom]


def _holds(cond: Cond, values: Values, memo: dict[Any, Any]) -> Any:
    if cond.term is not None:
        x = evaluate(cond.term, values, memo)
        return x <= 0 if cond.kind == "le" else (x == 0) == (cond.kind == "eq")
    if not cond.parts:
        return cond.kind == "all"
    join = np.logical_and if cond.kind == "all" else np.logical_or
    parts = [_holds(part, values, memo) for part in cond.parts]
    result = parts[0]
    for part in parts[1:]:
        result = join(result, part)
    return result


# -- changes -------------------------------------------------------------------------------------
Swaps = Mapping[Atom, Poly]
T = TypeVar("T", Poly, Cond)


def substitute(what: T, swaps: Swaps, memo: dict[Any, Any] | None = None) -> T:
    """Return the same with terms in place of some atoms, in the parts of atoms too."""
    if not swaps:
        return what
    memo = {} if memo is None else memo
    if what in memo:
        return memo[what]
    result: Any
    if isinstance(what, Cond):
        if what.term is not None:
            inner = substitute(what.term, swaps, memo)
            result = {"le": le, "eq": eq}.get(what.kind, lambda x, y: ~eq(x, y))(inner, 0)
        else:
            parts = (substitute(part, swaps, memo) for part in what.parts)
            result = every(parts) if what.kind == "all" else some(parts)
    else:
        result = term(0)
        for monomial, coefficient in what.terms.items():
            product = term(coefficient)
            for atom in monomial:
                product = product * _swap(atom, swaps, memo)
            result = result + product
    memo[what] = result
    return result


def _swap(atom: Atom, swaps: Swaps, memo: dict[Any, Any]) -> Poly:
    if atom in swaps:
        return swaps[atom]
    if atom.is_leaf:
        return _depend(atom, swaps, memo) if len(atom.args) > 2 else term(atom)
    if atom not in memo:
        args = [substitute(x, swaps, memo) for x in atom.args]
        same = all(x is y or x == y for x, y in zip(args, atom.args, strict=True))
        memo[atom] = term(atom) if same else make(atom.kind, *args)
    return memo[atom]


def rename(cond: Cond, swaps: Mapping[Atom, Atom]) -> Cond:
    """Return a condition with other atoms in place of some; the parts of atoms are unchanged."""
    if cond.term is None:
        return Cond(cond.kind, None, tuple(rename(part, swaps) for part in cond.parts))
    total: dict[Monomial, int] = {}
    for monomial, c in cond.term.terms.items():
        key = tuple(sorted((swaps.get(x, x) for x in monomial), key=lambda x: x.number))
        total[key] = total.get(key, 0) + c
    return Cond(cond.kind, Poly(total))


def _depend(atom: Atom, swaps: Swaps, memo: dict[Any, Any]) -> Poly:
    """Return an unknown of other lanes, programs or trips, which is another unknown."""
    if atom.kind != "unknown":
        return term(atom)
    reason, number, *depends = atom.args
    return term(Atom("unknown", reason, number, *(substitute(x, swaps, memo) for x in depends)))


def walk(
    *what: Poly | Cond, is_whole: Callable[[Atom], bool] = lambda atom: False
) -> Iterator[Atom]:
    """Yield every atom of terms and conditions, and of the parts of atoms, the outermost first.

    The parts of atoms that are `is_whole` are skipped.
    """
    seen: set[Any] = set()
    waiting: list[Any] = list(what)
    while waiting:
        x = waiting.pop()
        if isinstance(x, Poly):
            waiting += x.named
        elif x not in seen:
            seen.add(x)
            if isinstance(x, Cond):
                waiting += x.parts if x.term is None else x.term.named
            else:
                yield x
                waiting += () if x.is_leaf or is_whole(x) else x.args


__all__ = [
    "FALSE",
    "TRUE",
    "Atom",
    "Cond",
    "Monomial",
    "Poly",
    "Swaps",
    "Values",
    "eq",
    "evaluate",
    "every",
    "flag",
    "le",
    "lt",
    "make",
    "new_symbol",
    "rename",
    "some",
    "substitute",
    "symbol",
    "term",
    "walk",
]
