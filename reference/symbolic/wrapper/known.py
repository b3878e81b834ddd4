"""What earlier decisions plainly say of a condition: bounds of sums, and repetitions."""

from __future__ import annotations

from math import gcd, inf
from typing import Any

from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Cond,
    Poly,
    eq,
    every,
    le,
    some,
    substitute,
    walk,
)


class Known:
    """Conditions that hold. What is not told by them plainly is not told: nothing is searched."""

    def __init__(self, *conds: Cond) -> None:
        self._holds: set[Cond] = set()
        self._bounds: dict[Poly, tuple[float, float]] = {}
        for cond in conds:
            self.learn(cond)

    def learn(self, cond: Cond) -> None:
        """Take it as true."""
        self._holds.add(cond)
        if cond.kind == "all":
            for part in cond.parts:
                self.learn(part)
        elif cond.kind in ("le", "eq") and cond.term is not None:
            base, sign, constant = _split(cond.term)
            low, high = self._bound(base)
            # sign * base + constant <= 0
            if cond.kind == "eq":
                low = max(low, -sign * constant)
                high = min(high, -sign * constant)
            elif sign > 0:
                high = min(high, -constant)
            else:
                low = max(low, constant)
            self._bounds[base] = low, high

    def value(self, what: Poly) -> int | None:
        """The one value that a term can have, where it is told."""
        low, high = self._range(what)
        return int(low) if low == high else None

    def implies(self, cond: Cond) -> bool | None:
        """Whether it holds, None where that is not told."""
        if cond in self._holds or cond == TRUE:
            return True
        if cond == FALSE or ~cond in self._holds:
            return False
        if cond.term is None:
            answers = [self.implies(part) for part in cond.parts]
            ends = cond.kind == "any"  # one part that is true, or false, decides
            if ends in answers:
                return ends
            return None if None in answers else not ends
        low, high = self._range(cond.term)
        if cond.kind == "le":
            return True if high <= 0 else False if low > 0 else None
        if low > 0 or high < 0:
            return cond.kind == "ne"
        return cond.kind == "eq" if low == high == 0 else None

    def reduce(self, cond: Cond) -> Cond:
        """What is left to ask of a condition."""
        if cond.term is None:
            return (every if cond.kind == "all" else some)(map(self.reduce, cond.parts))
        cond = _shorten(cond)
        answer = self.implies(cond)
        return cond if answer is None else TRUE if answer else FALSE

    def settle(self, what: Any) -> Any:
        """A term or condition whose largest and least ones are those that they are known to be."""
        swaps = {}
        for atom in walk(what):
            if atom.kind in ("min", "max"):
                x, y = atom.args
                order = self.implies(le(x, y))
                if order is not None:
                    swaps[atom] = y if order == (atom.kind == "max") else x
        return substitute(what, swaps)

    def _bound(self, base: Poly) -> tuple[float, float]:
        """The range of a sum without its constant."""
        if not base.terms:
            return 0, 0
        low = base.least if base.is_natural else -inf
        most = base.most
        high = inf if most is None else most
        if (-base).is_natural:
            high = -(-base).least
        if base.atom is not None and base.atom.kind in ("floordiv", "mod"):
            first, last = self._divide(base.atom.kind, *base.atom.args)
            low, high = max(low, first), min(high, last)
        told = self._bounds.get(base, (-inf, inf))
        return max(low, told[0]), min(high, told[1])

    def _divide(self, kind: str, what: Poly, by: Poly) -> tuple[float, float]:
        """The range of a quotient by a number, and of a remainder of what is one number."""
        divisor, (low, high) = by.constant or 0, self._range(what)
        if divisor < 1 or (kind == "mod" and low != high):
            return -inf, inf
        if kind == "mod":
            return low % divisor, high % divisor
        return (
            low // divisor if low > -inf else low,
            high // divisor if high < inf else high,
        )

    def _range(self, what: Poly) -> tuple[float, float]:
        base, sign, constant = _split(what)
        low, high = self._bound(base)
        if len(base.terms) > 1 or any(c != 1 for c in base.terms.values()):
            summed = [self._product(m, c) for m, c in base.terms.items()]
            low = max(low, sum(x for x, _ in summed))
            high = min(high, sum(x for _, x in summed))
        elif len(next(iter(base.terms), ())) > 1:
            one = self._product(*next(iter(base.terms.items())))
            low, high = max(low, one[0]), min(high, one[1])
        if sign < 0:
            low, high = -high, -low
        return low + constant, high + constant

    def _product(self, monomial: tuple[object, ...], coefficient: int) -> tuple[float, float]:
        """The range of a product, where its factors are never negative."""
        low: float = 1
        high: float = 1
        for atom in monomial:
            one, two = self._bound(Poly({(atom,): 1}))  # type: ignore[dict-item]
            if one < 0:
                return -inf, inf
            low = low * one
            high = 0 if 0 in (high, two) else high * two
        ends = (low * coefficient, high * coefficient) if high < inf else (
            (low * coefficient, inf) if coefficient > 0 else (-inf, low * coefficient)
        )  # fmt: skip
        return min(ends), max(ends)


def _split(what: Poly) -> tuple[Poly, int, int]:
    """A sum as sign * base + constant; a sum and its negative have one base."""
    constant = what.terms.get((), 0)
    rest = {m: c for m, c in what.terms.items() if m}
    first = min(rest, key=lambda m: tuple(x.number for x in m), default=None)
    sign = -1 if first is not None and rest[first] < 0 else 1
    return Poly({m: sign * c for m, c in rest.items()}), sign, constant


def _shorten(cond: Cond) -> Cond:
    """The same relation between terms without a common factor."""
    assert cond.term is not None
    rest = {m: c for m, c in cond.term.terms.items() if m}
    factor, constant = gcd(*rest.values()), cond.term.terms.get((), 0)
    if factor < 2:
        return cond
    whole = Poly({m: c // factor for m, c in rest.items()})
    if cond.kind == "le":
        return le(whole, -constant // factor)
    if constant % factor:
        return FALSE if cond.kind == "eq" else TRUE
    same = eq(whole, -constant // factor)
    return same if cond.kind == "eq" else ~same
