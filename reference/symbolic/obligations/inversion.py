"""Finds the program, trip and lane that reach an index: the inverse of an index.

An index is a sum of digits, as 64 pid + lane; quotients and remainders are digits of their
dividends. The values found are only a guess: callers must have the solver prove that they satisfy
every definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, make, substitute, term, walk

_PAIR = {"floordiv": "mod", "mod": "floordiv", "div": "rem", "rem": "div"}
MOST_STEPS = 64


class NotInvertible(Exception):
    """An index that is no sum of digits."""


class Inversion:
    """The values of `free` atoms, and of atoms built from them, at which terms have given values.

    `digits` are the values of quotients and remainders, `leaves` those of the free atoms.
    """

    def __init__(self, free: Iterable[Atom]) -> None:
        self.free = set(free)
        self.leaves: dict[Atom, Poly] = {}
        self.digits: dict[Atom, Poly] = {}

    def solve(self, equations: Sequence[tuple[Poly, Poly]]) -> None:
        """Find a value for every free atom and every atom built from them. Raises NotInvertible."""
        waiting = list(equations)
        for _ in range(MOST_STEPS):
            progress = False
            for equation in list(waiting):
                digits = self._digits(*equation)
                if digits is None:
                    continue
                waiting.remove(equation)
                progress = True
                for atom, digit in digits:
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
        """Return the value of every atom of terms that is free or built from free ones."""
        values = dict(self.leaves)
        for atom in sorted(walk(*what), key=lambda x: x.number):
            if atom not in values and self._is_bound(atom):
                known = self.digits.get(self._canonical(atom))
                values[atom] = substitute(term(atom), values) if known is None else known
        return values

    def _canonical(self, atom: Atom) -> Atom:
        """Return an atom with the known digits substituted in its parts."""
        for _ in range(8):
            if atom in self.digits or atom.is_leaf:
                return atom
            rewritten = make(atom.kind, *(substitute(x, self.digits) for x in atom.args)).atom
            if rewritten is None or rewritten is atom:
                return atom
            atom = rewritten
        return atom

    def _renew(self) -> None:
        """Rewrite the atoms of digits, now that more digits are known."""
        for atom in list(self.digits):
            if atom.is_leaf:
                continue
            others = {k: v for k, v in self.digits.items() if k is not atom}
            rewritten = make(atom.kind, *(substitute(x, others) for x in atom.args)).atom
            if rewritten is not None:
                self.digits.setdefault(rewritten, self.digits[atom])

    def _is_bound(self, atom: Atom) -> bool:
        return any(x in self.free for x in walk(term(atom)))

    def _forward(self, poly: Poly) -> Poly:
        """Return a term with the known values; atoms built from known ones follow from them."""
        for _ in range(8):
            rewritten = substitute(substitute(poly, self.digits), self.leaves)
            if rewritten == poly:
                break
            poly = rewritten
        return poly

    def _open(self, poly: Poly) -> bool:
        """Return whether a term names atoms whose values are not known yet."""
        return any(self._is_bound(x) for x in self._forward(poly).atoms)

    def _digits(self, left: Poly, value: Poly) -> list[tuple[Atom, Poly]] | None:
        """Return the values of a term's atoms at which it has a value, or None if undetermined."""
        left, value = self._forward(left), self._forward(value)
        if self._open(value):  # solved for the other side, once that is known
            if self._open(left):
                return None
            left, value = value, left
        weights: dict[Atom, Poly] = {}
        rest = term(0)
        for monomial, c in left.terms.items():
            bound = [x for x in monomial if self._is_bound(x)]
            if len(bound) > 1:
                return None
            others = Poly({tuple(x for x in monomial if x not in bound): c})
            if not bound:
                rest = rest + others
            else:
                weights[bound[0]] = weights.get(bound[0], term(0)) + others
        if not weights:
            return []
        value = value - rest
        order = sorted(weights, key=lambda x: _size(weights[x]))
        digits = []
        for i, atom in enumerate(order):
            weight = weights[atom]
            sign = -1 if (weight.constant or 0) < 0 else 1
            digit = _reduce(value, [_above(weights, order, j) for j in range(i, len(order) - 1)])
            weight = weight * sign
            digits.append((atom, make("floordiv", digit, weight) * sign))
        return digits

    def _undo_divisions(self) -> list[tuple[Poly, Poly]]:
        """Return x = q d + r for every quotient and remainder that are known."""
        equations = []
        for atom in list(self.digits):
            if atom.kind not in _PAIR:
                continue
            x, d = atom.args
            other = Atom(_PAIR[atom.kind], x, d)
            if other in self.digits and "div" in atom.kind and not self._open(d) and self._open(x):
                equations.append((x, self.digits[atom] * self._forward(d) + self.digits[other]))
        return equations

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
        """Set to 0 a free atom of an unsolved equation that nothing else determines."""
        for _, value in waiting:
            left = (x for x in self._forward(value).atoms if x in self.free - set(self.leaves))
            atom = min(left, key=lambda x: x.number, default=None)
            if atom is not None:
                self.leaves[atom] = term(0)
                return True
        return False


def _reduce(value: Poly, above: Sequence[Poly]) -> Poly:
    """Reduce a value by the weights above a digit: its remainder by each, the largest first.

    A weight that is a multiple of the nearest one does not change that remainder.
    """
    for weight in reversed(above):
        if weight is above[0] or not _is_multiple(weight, above[0]):
            value = make("mod", value, weight)
    return value


def _is_multiple(weight: Poly, factor: Poly) -> bool:
    """Return whether a weight is evidently a multiple of another."""
    if len(factor.terms) != 1:
        return weight == factor
    ((monomial, c),) = factor.terms.items()
    counts = [all(m.count(x) >= monomial.count(x) for x in monomial) for m in weight.terms]
    return all(counts) and all(n % c == 0 for n in weight.terms.values())


def _above(weights: dict[Atom, Poly], order: list[Atom], i: int) -> Poly:
    """Return the weight of the next digit, which may count backwards."""
    weight = weights[order[i + 1]]
    return -weight if (weight.constant or 0) < 0 else weight


def _size(weight: Poly) -> tuple[int, int]:
    degree = max(map(len, weight.terms), default=0)
    return degree, abs(max(weight.terms.values(), key=abs, default=0))
