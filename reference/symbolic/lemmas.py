"""What follows from multiplying known inequalities: it keeps questions about products linear.

If p >= 0 and f >= 0 then p f >= 0, and if p = 0 then p f = 0. With every product of atoms an
unknown of its own, these are linear conditions on the unknowns, and true ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmproof.reference.symbolic.questions import find_products
from gemmproof.reference.symbolic.terms import Cond, Monomial, Poly, every, le, some, term

MOST_LEMMAS = 300


def multiply(conds: list[Cond], wide: bool = False) -> list[Cond]:
    """The conditions, each with its products by factors that are known not to be negative.

    `wide`: also by the sizes that the first products bring: a count of tiles is bounded by them.
    """
    products = frozenset(find_products(conds))
    atoms = {x for m in products for x in m}
    factors = {term(x): None for x in atoms if x.is_natural}
    known = (-c.term for c in conds if c.kind == "le" and c.term is not None)
    factors |= dict.fromkeys(p for p in known if p.atoms & atoms and _degree(p) == 1)
    at_hand = products
    for _ in range(2 if wide else 1):
        first = _Lemmas(tuple(factors), at_hand)
        for cond in conds:
            first.strengthen(cond)
        at_hand |= first.brought
        if wide:
            sizes = {x for m in first.brought for x in m if x.is_leaf and x.is_natural}
            factors |= {term(x): None for x in sorted(sizes, key=lambda x: x.number)}
    last = _Lemmas(tuple(factors), at_hand, closed=True)
    made = [last.strengthen(cond) for cond in conds]
    signs = (m for m in at_hand if all(x.is_natural for x in m))
    return [*made, *(le(0, Poly({m: 1})) for m in signs)]


def _degree(poly: Poly) -> int:
    return max(map(len, poly.terms), default=0)


@dataclass(slots=True)
class _Lemmas:
    """Adds to each inequality and equality what it is times the factors, none of them negative.

    A product counts if it speaks of a monomial at hand, where `closed` of no other; `brought` are
    the monomials that products bring.
    """

    factors: tuple[Poly, ...]
    at_hand: frozenset[Monomial]
    closed: bool = False
    brought: set[Monomial] = field(default_factory=set)
    count: int = 0

    def strengthen(self, cond: Cond) -> Cond:
        """A condition with the products that count."""
        if cond.term is None:
            parts = tuple(map(self.strengthen, cond.parts))
            return every(parts) if cond.kind == "all" else some(parts)
        if cond.kind == "ne" or _degree(cond.term) > 1 or self.count >= MOST_LEMMAS:
            return cond
        products = (cond.term * factor for factor in self.factors)
        return every((cond, *(Cond(cond.kind, p) for p in products if self._counts(p))))

    def _counts(self, product: Poly) -> bool:
        nonlinear = [m for m in product.terms if len(m) > 1]
        known = (m in self.at_hand for m in nonlinear)
        if self.count >= MOST_LEMMAS or not (all(known) if self.closed else any(known)):
            return False
        self.brought |= set(nonlinear)
        self.count += 1
        return True
