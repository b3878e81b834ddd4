"""Finds the program, trip and lane that come to a place: the inverse of an index.

An index is a sum of digits, as 64 pid + lane; quotients and remainders are digits of what they
divide. The values found are only a guess: whoever uses them has the solver prove that they fulfil
every definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmproof.reference.symbolic.terms import (
    Atom,
    Cond,
    Poly,
    make,
    substitute,
    term,
    walk,
)

_PAIR = {"floordiv": "mod", "mod": "floordiv", "div": "rem", "rem": "div"}
MOST_STEPS = 64


class NotInvertible(Exception):
    """An index that is no sum of digits."""


class Inversion:
    """The values of `free` atoms, and of those made of them, at which terms have given values.

    `digits` are the values of quotients and remainders, `leaves` those of the free atoms.
    """

    def __init__(self, free: Iterable[Atom]) -> None:
        self.free = set(free)
        self.leaves: dict[Atom, Poly] = {}
        self.digits: dict[Atom, Poly] = {}

    def solve(self, equations: Sequence[tuple[Poly, Poly]]) -> None:
        """Find a value for every free atom and every atom made of them. Raises NotInvertible."""
        waiting = list(equations)
        for _ in range(MOST_STEPS):
            progress = False
            for equation in list(waiting):
                found = self._digits(*equation)
                if found is None:
                    continue
                waiting.remove(equation)
                progress = True
                for atom, digit in found:
                    (self.leaves if atom in self.free else self.digits)[atom] = digit
            self._renew()
            undone = self._undo_divisions()
            waiting += undone
            is_done = not waiting and self.free <= set(self.leaves)
            if is_done or not (progress or undone or self._settle() or self._guess(waiting)):
                break
        if waiting:
            raise NotInvertible
        for atom in self.free:
            self.leaves.setdefault(atom, term(0))

    def complete(self, *what: Poly | Cond) -> dict[Atom, Poly]:
        """The value of every atom of terms that is free, or made of free ones."""
        values = dict(self.leaves)
        for atom in sorted(walk(*what), key=lambda x: x.number):
            if atom not in values and self._is_bound(atom):
                known = self.digits.get(self._canonical(atom))
                values[atom] = substitute(term(atom), values) if known is None else known
        return values

    def _canonical(self, atom: Atom) -> Atom:
        """An atom with the digits that are known in its parts."""
        for _ in range(8):
            if atom in self.digits or atom.is_leaf:
                return atom
            made = make(atom.kind, *(substitute(x, self.digits) for x in atom.args)).atom
            if made is None or made is atom:
                return atom
            atom = made
        return atom

    def _renew(self) -> None:
        """Digits by what their atoms are now that more is known."""
        for atom in list(self.digits):
            others = {k: v for k, v in self.digits.items() if k is not atom}
            made = make(atom.kind, *(substitute(x, others) for x in atom.args)).atom
            if made is not None:
                self.digits.setdefault(made, self.digits[atom])

    def _is_bound(self, atom: Atom) -> bool:
        return any(x in self.free for x in walk(term(atom)))

    def _forward(self, poly: Poly) -> Poly:
        """A term with the values that are known; atoms made of known ones follow from them."""
        for _ in range(8):
            made = substitute(substitute(poly, self.digits), self.leaves)
            if made == poly:
                break
            poly = made
        return poly

    def _open(self, poly: Poly) -> bool:
        """Whether a term names atoms whose values are not known yet."""
        return any(self._is_bound(x) for x in self._forward(poly).atoms)

    def _digits(self, left: Poly, value: Poly) -> list[tuple[Atom, Poly]] | None:
        """The values of a term's atoms where it has this one, None where they cannot be told."""
        left, value = self._forward(left), self._forward(value)
        if self._open(value):  # read from the other side, once that is known
            if self._open(left):
                return None
            left, value = value, left
        places: dict[Atom, Poly] = {}
        rest = term(0)
        for monomial, c in left.terms.items():
            bound = [x for x in monomial if self._is_bound(x)]
            if len(bound) > 1:
                return None
            others = Poly({tuple(x for x in monomial if x not in bound): c})
            if not bound:
                rest = rest + others
            else:
                places[bound[0]] = places.get(bound[0], term(0)) + others
        if not places:
            return []
        value = value - rest
        order = sorted(places, key=lambda x: _size(places[x]))
        found = []
        for i, atom in enumerate(order):
            place = places[atom]
            sign = -1 if (place.constant or 0) < 0 else 1
            digit = _reduce(value, [_above(places, order, j) for j in range(i, len(order) - 1)])
            place = place * sign
            found.append((atom, make("floordiv", digit, place) * sign))
        return found

    def _undo_divisions(self) -> list[tuple[Poly, Poly]]:
        """x = q d + r for every quotient and remainder that are known."""
        found = []
        for atom in list(self.digits):
            if atom.kind not in _PAIR:
                continue
            x, d = atom.args
            other = Atom(_PAIR[atom.kind], x, d)
            if other in self.digits and "div" in atom.kind and not self._open(d) and self._open(x):
                found.append((x, self.digits[atom] * self._forward(d) + self.digits[other]))
        return found

    def _settle(self) -> bool:
        """Guess the other half of a division: by a remainder that it shifts, else 0."""
        halves = []
        for atom in list(self.digits):
            if atom.kind in _PAIR:
                other = self._canonical(Atom(_PAIR[atom.kind], *atom.args))
                if other not in self.digits and self._open(atom.args[0]):
                    halves.append((atom, other))
        if halves and not any(self._rotate(*half) for half in halves):
            self.digits[halves[0][1]] = term(0)
        return bool(halves)

    def _rotate(self, quotient: Atom, other: Atom) -> bool:
        """Find x % d of a known x // d where y % d is known, and x is y % w with a known y // w.

        y = w (y // w) + d (x // d) + x % d, so that x % d is y % d less w (y // w), modulo d.
        """
        x, d = quotient.args[0].atom, self._forward(quotient.args[1])
        if x is None or x.kind not in ("mod", "rem") or "div" not in quotient.kind:
            return False
        y, w = x.args
        whole = self.digits.get(self._canonical(Atom(_PAIR[x.kind], y, w)))
        for known, value in list(self.digits.items()):
            of_y = known.kind in ("mod", "rem") and known.args[0] == y
            if whole is None or not of_y or self._forward(known.args[1]) != d:
                continue
            shifted = value - whole * self._forward(w)
            self.digits[other] = make("mod", shifted, d)
            turns = make("floordiv", shifted, d)
            self.digits[Atom(_PAIR[known.kind], *known.args)] = self.digits[quotient] - turns
            return True
        return False

    def _guess(self, waiting: Sequence[tuple[Poly, Poly]]) -> bool:
        """Take 0 for what two sides have to agree on, and nothing else speaks of."""
        for _, value in waiting:
            left = (x for x in self._forward(value).atoms if x in self.free - set(self.leaves))
            atom = min(left, key=lambda x: x.number, default=None)
            if atom is not None:
                self.leaves[atom] = term(0)
                return True
        return False


def _reduce(value: Poly, above: Sequence[Poly]) -> Poly:
    """What is left of a value for a digit: its remainder by each place above, the largest first.

    A place of which the nearest one is a factor takes nothing from that remainder.
    """
    for place in reversed(above):
        if place is above[0] or not _is_multiple(place, above[0]):
            value = make("mod", value, place)
    return value


def _is_multiple(place: Poly, factor: Poly) -> bool:
    """Whether a place is plainly a multiple of another."""
    if len(factor.terms) != 1:
        return place == factor
    ((monomial, c),) = factor.terms.items()
    counts = [all(m.count(x) >= monomial.count(x) for x in monomial) for m in place.terms]
    return all(counts) and all(n % c == 0 for n in place.terms.values())


def _above(places: dict[Atom, Poly], order: list[Atom], i: int) -> Poly:
    """The place of the next digit, which may count backwards."""
    place = places[order[i + 1]]
    return -place if (place.constant or 0) < 0 else place


def _size(place: Poly) -> tuple[int, int]:
    degree = max(map(len, place.terms), default=0)
    return degree, abs(max(place.terms.values(), key=abs, default=0))
