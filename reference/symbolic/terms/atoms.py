"""Atoms, and polynomials of them with integer coefficients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from gemmproof.reference.work import METER

_numbers = itertools.count()
_serials = itertools.count()
_atoms: WeakValueDictionary[Any, Atom] = WeakValueDictionary()


class Atom:
    """One unknown integer; equal atoms are one object.

    `kind`: "symbol" (named by `args`), "floordiv" and "mod" (rounded down), "div" and "rem"
    (rounded towards zero), "min", "max", "choice" (condition, then, else), "flag" (a condition as 0
    or 1), "and", "or", "xor", "shr" of bits, or "unknown". `is_natural`: it is never negative.
    `most`: a number that it never exceeds, where one is plain; `least`: one that it never falls
    below, if it is natural. `definition` is kept here by those who make it. `number` orders the
    atoms of one proof, `serial` tells all of the process apart.
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
        # serials in place of atoms: a key that held them would keep what a definition names
        key = (kind, tuple(getattr(arg, "key", arg) for arg in args))
        found = _atoms.get(key)
        if found is None:
            found = super().__new__(cls)
            found.kind, found.args = kind, args
            found.number, found.serial = next(_numbers), next(_serials)
            found.is_natural = is_natural or _is_natural(kind, args)
            found.least = max(least, _least(kind, args))
            found.definition = None
            found.most = _most(kind, args) if most is None else most
            _atoms[key] = found
        return found

    def __hash__(self) -> int:
        return self.number  # sets of atoms are in one order in every run

    def __repr__(self) -> str:
        return str(self.args[0]) if self.kind == "symbol" else f"{self.kind}{self.args}"

    @property
    def is_leaf(self) -> bool:
        """Whether nothing defines it."""
        return self.kind in ("symbol", "unknown")


@contextmanager
def own_atoms() -> Iterator[None]:
    """Make atoms anew meanwhile, numbered from 0; they are equal to none that are made outside."""
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
    """A number that a natural atom never falls below."""
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
        """What equal polynomials share, without their atoms."""
        if self._key is None:
            items = self.terms.items()
            self._key = frozenset((tuple(x.serial for x in m), c) for m, c in items)
        return self._key

    @property
    def constant(self) -> int | None:
        """Its value, where it is a number."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def atom(self) -> Atom | None:
        """The atom that it is, where it is one."""
        if len(self.terms) == 1:
            (monomial, coefficient), *_ = self.terms.items()
            if len(monomial) == 1 and coefficient == 1:
                return monomial[0]
        return None

    @property
    def is_natural(self) -> bool:
        """Whether it is plainly never negative."""
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
        """A number that it never exceeds, where that is plain and it is never negative."""
        total = 0
        for monomial, c in self.terms.items():
            bounds = [x.most if c > 0 else x.least for x in monomial]
            if not all(x.is_natural for x in monomial) or None in bounds:
                return None
            total += c * math.prod(x for x in bounds if x is not None)
        return total if self.is_natural else None

    @property
    def named(self) -> tuple[Atom, ...]:
        """The atoms that it names itself, in the order in which they come."""
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
    """An atom or a number as a polynomial."""
    if isinstance(x, Poly):
        return x
    return Poly({(x,): 1}) if isinstance(x, Atom) else Poly({(): int(x)})


def symbol(name: str, is_natural: bool = False, least: int = 0) -> Poly:
    """The symbol of a name, and of what it never falls below."""
    return term(
        Atom("symbol", name, *([least] if least else []), is_natural=is_natural, least=least)
    )


def new_symbol(name: str, is_natural: bool = False) -> Poly:
    """A symbol that no other is equal to, whatever its name."""
    return term(Atom("symbol", name, next(_numbers), is_natural=is_natural))
