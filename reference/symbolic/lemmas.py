"""What follows from multiplying known inequalities: it keeps questions about products linear.

If p >= 0 and f >= 0 then p f >= 0, and if p = 0 then p f = 0. With every product of atoms an
unknown of its own, these are linear conditions on the unknowns, and true ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import combinations

from gemmproof.reference.symbolic.questions import find_products
from gemmproof.reference.symbolic.terms import Atom, Cond, Monomial, Poly, every, le, some, term

MOST_LEMMAS = 300
MOST_AIMED, ROUNDS = 150, 3


def aim(goal: Cond, conds: list[Cond], positive: Set[Atom] = frozenset()) -> list[Cond]:
    """Products of conditions that bound products at hand, the goal's first, and what they bring.

    A condition on a part of a product is multiplied with the rest of it. `positive`: atoms that are
    never negative, though that is not plain.
    """
    about: dict[Monomial, list[Cond]] = {}
    for cond in conds:
        if cond.kind in ("le", "eq") and cond.term is not None:
            degree = _degree(cond.term)
            for monomial in cond.term.terms if degree <= 2 else ():
                if len(monomial) == degree:
                    about.setdefault(monomial, []).append(cond)
    made: dict[Cond, None] = {}
    at_hand: dict[Monomial, None] = {}
    wanted = [*_sort(find_products([goal])), *_sort(find_products(conds))]
    for _ in range(ROUNDS):
        at_hand |= dict.fromkeys(wanted)
        brought: dict[Monomial, None] = {}
        for part, rest in (x for m in wanted for x in _split(m)):
            has_sign = all(x.is_natural or x in positive for x in rest)
            for cond in about.get(part, ()):
                if len(made) < MOST_AIMED and (has_sign or cond.kind == "eq"):
                    assert cond.term is not None
                    product = cond.term * Poly({rest: 1})
                    made[Cond(cond.kind, product)] = None
                    brought |= dict.fromkeys(m for m in product.terms if len(m) > 1)
        wanted = [m for m in brought if m not in at_hand]
    natural = (m for m in (*at_hand, *wanted) if all(x.is_natural or x in positive for x in m))
    return [*made, *(le(0, Poly({m: 1})) for m in natural)]


def _split(monomial: Monomial) -> Iterator[tuple[Monomial, Monomial]]:
    """A product as one or two of its atoms and what they are multiplied with."""
    places = range(len(monomial))
    for size in range(1, min(3, len(monomial))):
        for chosen in combinations(places, size):
            part = tuple(monomial[i] for i in chosen)
            yield part, tuple(monomial[i] for i in places if i not in chosen)


def _sort(products: Iterable[Monomial]) -> list[Monomial]:
    return sorted(products, key=lambda m: (len(m), [x.number for x in m]))


def multiply(conds: list[Cond]) -> list[Cond]:
    """The conditions, each with its products by factors that are known not to be negative."""
    products = find_products(conds)
    atoms = {x: None for m in products for x in m}
    factors = {term(x): None for x in atoms if x.is_natural}
    known = (-c.term for c in conds if c.kind == "le" and c.term is not None)
    factors |= dict.fromkeys(p for p in known if p.atoms & atoms.keys() and _degree(p) == 1)
    first = _Lemmas(tuple(factors), products, _pair(products))
    for cond in conds:
        first.strengthen(cond)
    at_hand = products | first.brought
    last = _Lemmas(tuple(factors), at_hand, _pair(at_hand), closed=True)
    made = [last.strengthen(cond) for cond in conds]
    signs = (m for m in at_hand if all(x.is_natural for x in m))
    return [*made, *(le(0, Poly({m: 1})) for m in signs)]


def _pair(products: Iterable[Monomial]) -> dict[Atom, set[Atom]]:
    """The atoms that each one is multiplied with."""
    pairs: dict[Atom, set[Atom]] = {}
    for x, y in (m for m in products if len(m) == 2):
        pairs.setdefault(x, set()).add(y)
        pairs.setdefault(y, set()).add(x)
    return pairs


def _degree(poly: Poly) -> int:
    return max(map(len, poly.terms), default=0)


@dataclass(slots=True)
class _Lemmas:
    """Adds to each inequality and equality what it is times the factors, none of them negative.

    A product counts if it speaks of a monomial at hand, where `closed` of no other; `brought` are
    the monomials that products bring.
    """

    factors: tuple[Poly, ...]
    at_hand: Mapping[Monomial, None]
    pairs: Mapping[Atom, Set[Atom]]
    closed: bool = False
    brought: dict[Monomial, None] = field(default_factory=dict)
    count: int = 0

    def strengthen(self, cond: Cond) -> Cond:
        """A condition with the products that count."""
        if cond.term is None:
            parts = tuple(map(self.strengthen, cond.parts))
            return every(parts) if cond.kind == "all" else some(parts)
        if cond.kind == "ne" or _degree(cond.term) > 1 or self.count >= MOST_LEMMAS:
            return cond
        factors = (x for x in self.factors if self._may_count(cond.term, x))
        products = (cond.term * factor for factor in factors)
        return every((cond, *(Cond(cond.kind, p) for p in products if self._counts(p))))

    def _may_count(self, term_: Poly, factor: Poly) -> bool:
        """Whether the product of two sums may speak of a monomial at hand, before it is made."""
        others = factor.atoms
        return any(not others.isdisjoint(self.pairs.get(x, ())) for x in term_.atoms)

    def _counts(self, product: Poly) -> bool:
        nonlinear = [m for m in product.terms if len(m) > 1]
        known = (m in self.at_hand for m in nonlinear)
        if self.count >= MOST_LEMMAS or not (all(known) if self.closed else any(known)):
            return False
        self.brought |= dict.fromkeys(nonlinear)
        self.count += 1
        return True
