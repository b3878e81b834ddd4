"""Definitions of terms, questions to the solver, and lemmas that answer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain, combinations, permutations

from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Monomial,
    Poly,
    eq,
    every,
    le,
    lt,
    some,
    term,
    walk,
)

# -- definitions ---------------------------------------------------------------------------------
LANE = "lane"


def lane(axis: int, size: int) -> Poly:
    """Return the lane of a block along an axis of so many lanes."""
    return (
        term(Atom("symbol", LANE, axis, size, is_natural=True, most=size - 1))
        if size > 1
        else term(0)
    )


def define(atom: Atom) -> tuple[Cond, ...]:
    """Return the conditions that define an atom; the atom caches them."""
    if atom.definition is None:
        atom.definition = tuple(_define(atom))
    return atom.definition


def _define(atom: Atom) -> Iterator[Cond]:
    x = term(atom)
    if atom.is_natural:
        yield le(atom.least, x)
    if atom.kind == "symbol" and atom.args[0] == LANE:
        yield lt(x, atom.args[2])
    elif atom.kind in ("floordiv", "mod"):
        yield from _define_floor(*atom.args)
    elif atom.kind in ("div", "rem"):
        yield from _define_truncated(*atom.args)
    elif atom.kind in ("min", "max"):
        first, second = atom.args
        both = (
            (le(x, first), le(x, second)) if atom.kind == "min" else (le(first, x), le(second, x))
        )
        yield from both
        yield eq(x, first) | eq(x, second)
    elif atom.kind == "choice":
        cond, then, other = atom.args
        yield ~cond | eq(x, then)
        yield cond | eq(x, other)
    elif atom.kind == "flag":
        (cond,) = atom.args
        yield le(x, 1)
        yield ~cond | eq(x, 1)
        yield cond | le(x, 0)  # eq would repeat the condition
    elif atom.kind == "and":
        for part in atom.args:
            if part.is_natural:
                yield every((le(0, x), le(x, part)))


def pin(atom: Atom) -> Iterator[Cond]:
    """Yield conditions that no value but the atom's own satisfies, if any does.

    For a quotient and a remainder by a positive divisor they are few; all else that is known of
    these follows.
    """
    if atom.kind not in ("floordiv", "mod", "div", "rem"):
        yield from define(atom)
        return
    x, d = atom.args
    kinds = ("floordiv", "mod") if atom.kind in ("floordiv", "mod") else ("div", "rem")
    q, r = (term(Atom(kind, x, d)) for kind in kinds)
    yield le(1, d)
    yield eq(x, q * d + r)
    yield every((le(0, r), lt(r, d)))
    if kinds[0] == "div":  # rounded towards zero: below 0 it is another quotient
        yield le(0, x)


def _define_floor(x: Poly, d: Poly) -> Iterator[Cond]:
    quotient, remainder = Atom("floordiv", x, d), Atom("mod", x, d)
    q, r = term(quotient), term(remainder)
    yield eq(x, q * d + r)
    divides = le(1, d)
    if d.constant is None:
        yield ~divides | every((le(0, r), lt(r, d)))
        yield some((~divides, ~le(0, x), every((le(0, q), le(q, x)))))
        yield some((~divides, ~le(0, x), ~lt(x, d), every((eq(q, 0), eq(r, x)))))
        yield some((~divides, lt(x, d), le(1, q)))
    else:
        yield from (le(0, r), lt(r, d)) if d.constant > 0 else ()


def _define_truncated(x: Poly, d: Poly) -> Iterator[Cond]:
    quotient, remainder = Atom("div", x, d), Atom("rem", x, d)
    q, r = term(quotient), term(remainder)
    yield eq(x, q * d + r)
    divides, positive = le(1, d), le(0, x)
    yield some((~divides, ~positive, every((le(0, r), lt(r, d), le(0, q), le(q, x)))))
    yield some((~divides, positive, every((le(r, 0), lt(-r, d), le(q, 0), le(x, q)))))
    yield some((~divides, ~positive, ~lt(x, d), every((eq(q, 0), eq(r, x)))))


# -- questions -----------------------------------------------------------------------------------
TRIED = (1, 2, 5, 17, 67, 160)  # sizes at which values are searched first
MOST_TRIED, MOST_NUMBERS = 2**16, 8  # of sizes that conditions name


def is_said(goal: Cond, given: list[Cond]) -> bool:
    """Return whether a given condition is the goal, or a stronger bound of the same term."""
    if goal in given:
        return True
    if goal.kind == "any":
        return any(is_said(part, given) for part in goal.parts)
    if goal.kind != "le" or goal.term is None:
        return False
    if (-goal.term).is_natural:
        return True
    for cond in given:
        if cond.kind == "le" and cond.term is not None:
            slack = (goal.term - cond.term).constant
            if slack is not None and slack <= 0:
                return True
    return False


def list_parts(conds: Iterable[Cond]) -> Iterator[Cond]:
    """Yield the conditions of conjunctions one by one."""
    for cond in conds:
        if cond.kind == "all":
            yield from cond.parts
        else:
            yield cond


def list_sizes(count: int, numbers: Iterable[int] = ()) -> Iterator[tuple[int, ...]]:
    """Yield sizes to try: all alike, then one unlike the others, then with the given numbers."""
    yield from ((n,) * count for n in TRIED if count)
    for usual, tried in ((1, TRIED), (67, TRIED), (1, tuple(numbers)), (67, tuple(numbers))):
        for axis in range(count):
            for n in tried:
                if n != usual:
                    yield tuple(n if i == axis else usual for i in range(count))


def list_named(conds: Iterable[Cond]) -> list[int]:
    """Return the numbers that sums are compared with, and their neighbours, if beyond `TRIED`."""
    sizes: dict[int, None] = {}
    for term_ in (x for cond in conds for x in list_terms(cond)):
        n = abs(term_.terms.get((), 0))
        if max(TRIED) < n < MOST_TRIED:
            sizes |= dict.fromkeys((n, n + 1, n - 1))
    return list(sizes)[:MOST_NUMBERS]


def read_off(conds: Iterable[Cond]) -> Iterator[tuple[Atom, Poly]]:
    """Yield the symbols that conditions equate with numbers, and these."""
    for cond in conds:
        if cond.kind == "eq" and cond.term is not None and len(cond.term.terms) <= 2:
            named = [m for m in cond.term.terms if m]
            if len(named) == 1 and len(named[0]) == 1 and named[0][0].is_leaf:
                number, rest = divmod(-cond.term.terms.get((), 0), cond.term.terms[named[0]])
                if not rest:
                    yield named[0][0], term(number)


def find_products(conds: Iterable[Cond]) -> dict[Monomial, None]:
    """Return the products of atoms in conditions, in order: that of a set differs between runs."""
    terms = (p for cond in conds for p in list_terms(cond))
    return {m: None for p in terms for m in p.terms if len(m) > 1}


def find_positive(conds: Iterable[Cond]) -> set[Atom]:
    """Return the atoms that conditions show never to be negative."""
    positive = set()
    for cond in conds:
        least = -cond.term if cond.kind == "le" and cond.term is not None else term(0)
        (atom, *others) = least.atoms or (None,)
        if atom is not None and not others:
            beyond = (least - term(atom)).constant
            if beyond is not None and beyond <= 0:
                positive.add(atom)
    return positive


def find_comparable(
    products: Iterable[Monomial], conds: Iterable[Cond]
) -> Iterator[tuple[Poly, Poly]]:
    """Yield quotients by one divisor that have the same cofactor in two products.

    Also yield sums with a quotient that two conditions multiply with the same cofactor.
    """
    by_rest: dict[Monomial, list[Atom]] = {}
    for monomial in sorted(products, key=lambda m: [x.number for x in m]):
        for i, x in enumerate(monomial):
            if _is_quotient(x):
                by_rest.setdefault(monomial[:i] + monomial[i + 1 :], []).append(x)
    for atoms in by_rest.values():
        pairs = ((x, y) for x, y in permutations(atoms, 2) if x.args[1] == y.args[1])
        yield from ((term(x), term(y)) for x, y in pairs)
    for sums in _list_factors(conds).values():
        several = (len(x.terms) > 1 for x in sums)
        if any(several):
            yield from permutations(sums, 2)


def _is_quotient(atom: Atom) -> bool:
    return atom.kind == "floordiv" and bool(atom.args[1].constant)


def _list_factors(conds: Iterable[Cond]) -> dict[Monomial, dict[Poly, None]]:
    """Return the sums with quotients that conditions multiply with products, by product."""
    factors: dict[Monomial, dict[Poly, None]] = {}
    for term_ in (x for cond in conds for x in list_terms(cond)):
        sums: dict[Monomial, dict[Monomial, int]] = {}
        for monomial, c in term_.terms.items():
            for i, x in enumerate(monomial if len(monomial) > 1 else ()):
                sums.setdefault(monomial[:i] + monomial[i + 1 :], {})[(x,)] = c
        for rest, parts in sums.items():
            if any(_is_quotient(x) for (x,) in parts):
                sign = 1 if max(parts.values()) > 0 else -1
                factors.setdefault(rest, {})[Poly(parts) * sign] = None
    return factors


def list_terms(cond: Cond) -> Iterator[Poly]:
    """Yield the terms that a condition compares with 0."""
    if cond.term is not None:
        yield cond.term
    for part in cond.parts:
        yield from list_terms(part)


# -- knowledge -----------------------------------------------------------------------------------
WIDE = 2**15  # goals with larger numbers are about limits of types and grids


@dataclass(slots=True)
class Knowledge:
    """The conditions that hold of the symbols of one kernel.

    `domain` holds always: the sizes that the contract admits. `known` holds of single atoms (a
    program is below the grid) and is used where an atom is named.
    """

    domain: Cond
    known: dict[Atom, Cond]
    _sizes: dict[Atom, bool] = field(default_factory=dict)

    def plain(self) -> list[Cond]:
        """Return the part of the domain without products."""
        return [cond for cond in list_parts([self.domain]) if not find_products([cond])]

    def close_near(self, conds: Iterable[Cond], others: Iterable[Cond] = ()) -> list[Cond]:
        """Return the conditions with those known of the atoms that they name, and of no others.

        An atom computed from sizes alone, as the number of tiles, counts as a separate size.
        """
        closed = dict.fromkeys(self.close(conds, self._is_size))
        named = set(walk(*closed, is_whole=self._is_size))
        if any(abs(p.terms.get((), 0)) >= WIDE for cond in conds for p in list_terms(cond)):
            limits = ((x, self._find_most(term(x))) for x in named if self._is_size(x))
            closed |= {le(term(x), most): None for x, most in limits if most is not None}
        for cond in chain(others, self.plain()):
            if named.issuperset(walk(cond, is_whole=self._is_size)):
                closed[cond] = None
        return list(closed)

    def _find_most(self, size: Poly) -> int | None:
        """Return an upper bound of a term of sizes from limits of single sizes, or None."""
        total = size.terms.get((), 0)
        for monomial, c in ((m, c) for m, c in size.terms.items() if m):
            atom, most = monomial[0], None
            if atom.kind == "floordiv" and (atom.args[1].constant or 0) > 0:
                most = self._find_most(atom.args[0])
                most = None if most is None else most // atom.args[1].constant
            for cond in self.plain() if atom.is_leaf else ():
                if cond.kind == "le" and cond.term is not None:
                    above = (cond.term - term(atom)).constant
                    most = -above if above is not None else most
            if len(monomial) > 1 or c < 0 or most is None:
                return None
            total += c * most
        return total

    def _is_size(self, atom: Atom) -> bool:
        """Return whether an atom is computed only from symbols of the domain."""
        if not self._sizes:
            self._sizes |= dict.fromkeys((x for x in walk(self.domain) if x.is_leaf), False)
        if not atom.is_leaf and atom not in self._sizes:
            leaves = (x for x in walk(term(atom)) if x.is_leaf)
            self._sizes[atom] = all(x in self._sizes for x in leaves)
        return self._sizes.get(atom, False)

    def close(
        self, conds: Iterable[Cond], is_whole: Callable[[Atom], bool] = lambda atom: False
    ) -> list[Cond]:
        """Return the conditions with those known of every atom that they name.

        For atoms that are `is_whole` this is only their lower bound.
        """
        closed: dict[Cond, None] = dict.fromkeys(list_parts(conds))
        seen: set[Atom] = set()
        waiting = list(closed)
        while waiting:
            new = [x for x in walk(*waiting, is_whole=is_whole) if x not in seen]
            seen |= set(new)
            waiting = []
            for atom in new:
                definition = define(atom)
                if is_whole(atom):
                    definition = (le(atom.least, term(atom)),) if atom.is_natural else ()
                for cond in list_parts((*definition, self.known.get(atom, TRUE))):
                    if cond not in closed:
                        closed[cond] = None
                        waiting.append(cond)
        return list(closed)


# -- lemmas --------------------------------------------------------------------------------------
MOST_LEMMAS = 300
MOST_AIMED, ROUNDS = 150, 3


def aim(goal: Cond, conds: list[Cond], positive: Set[Atom] = frozenset()) -> list[Cond]:
    """Return products of conditions that bound products at hand, the goal's first, and new ones.

    A condition on a part of a product is multiplied with the rest of it. `positive`: atoms that are
    never negative, though that is not evident.
    """
    about: dict[Monomial, list[Cond]] = {}
    for cond in conds:
        if cond.kind in ("le", "eq") and cond.term is not None:
            degree = _degree(cond.term)
            for monomial in cond.term.terms if degree <= 2 else ():
                if len(monomial) == degree:
                    about.setdefault(monomial, []).append(cond)
    products: dict[Cond, None] = {}
    at_hand: dict[Monomial, None] = {}
    targets = [*_sort(find_products([goal])), *_sort(find_products(conds))]
    for _ in range(ROUNDS):
        at_hand |= dict.fromkeys(targets)
        brought: dict[Monomial, None] = {}
        for part, rest in (x for m in targets for x in _split(m)):
            has_sign = all(x.is_natural or x in positive for x in rest)
            for cond in about.get(part, ()):
                if len(products) < MOST_AIMED and (has_sign or cond.kind == "eq"):
                    assert cond.term is not None
                    product = cond.term * Poly({rest: 1})
                    products[Cond(cond.kind, product)] = None
                    brought |= dict.fromkeys(m for m in product.terms if len(m) > 1)
        targets = [m for m in brought if m not in at_hand]
    natural = (m for m in (*at_hand, *targets) if all(x.is_natural or x in positive for x in m))
    return [*products, *(le(0, Poly({m: 1})) for m in natural)]


def _split(monomial: Monomial) -> Iterator[tuple[Monomial, Monomial]]:
    """Yield a product as one or two of its atoms and the other factors."""
    positions = range(len(monomial))
    for size in range(1, min(3, len(monomial))):
        for chosen in combinations(positions, size):
            part = tuple(monomial[i] for i in chosen)
            yield part, tuple(monomial[i] for i in positions if i not in chosen)


def _sort(products: Iterable[Monomial]) -> list[Monomial]:
    return sorted(products, key=lambda m: (len(m), [x.number for x in m]))


def multiply(conds: list[Cond]) -> list[Cond]:
    """Return the conditions, each with its products by factors known not to be negative."""
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
    strengthened = [last.strengthen(cond) for cond in conds]
    signs = (m for m in at_hand if all(x.is_natural for x in m))
    return [*strengthened, *(le(0, Poly({m: 1})) for m in signs)]


def _pair(products: Iterable[Monomial]) -> dict[Atom, set[Atom]]:
    """Return the atoms that each atom is multiplied with."""
    pairs: dict[Atom, set[Atom]] = {}
    for x, y in (m for m in products if len(m) == 2):
        pairs.setdefault(x, set()).add(y)
        pairs.setdefault(y, set()).add(x)
    return pairs


def _degree(poly: Poly) -> int:
    return max(map(len, poly.terms), default=0)


@dataclass(slots=True)
class _Lemmas:
    """Adds to each inequality and equality its products with the factors, none of them negative.

    A product counts if it has a monomial at hand and, if `closed`, no other; `brought` are the
    monomials that products add.
    """

    factors: tuple[Poly, ...]
    at_hand: Mapping[Monomial, None]
    pairs: Mapping[Atom, Set[Atom]]
    closed: bool = False
    brought: dict[Monomial, None] = field(default_factory=dict)
    count: int = 0

    def strengthen(self, cond: Cond) -> Cond:
        """Return a condition with the products that count."""
        if cond.term is None:
            parts = tuple(map(self.strengthen, cond.parts))
            return every(parts) if cond.kind == "all" else some(parts)
        if cond.kind == "ne" or _degree(cond.term) > 1 or self.count >= MOST_LEMMAS:
            return cond
        factors = (x for x in self.factors if self._may_count(cond.term, x))
        products = (cond.term * factor for factor in factors)
        return every((cond, *(Cond(cond.kind, p) for p in products if self._counts(p))))

    def _may_count(self, term_: Poly, factor: Poly) -> bool:
        """Return whether the product of two sums may have a monomial at hand, unmultiplied."""
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
