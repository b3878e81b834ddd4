"""What conditions say of themselves: their parts and products, what is plain, sizes to try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from gemmproof.reference.symbolic.terms import Atom, Cond, Monomial, Poly, term

TRIED = (1, 2, 5, 17, 67, 160)  # sizes with which values are sought first
MOST_TRIED, MOST_NUMBERS = 2**16, 8  # of sizes that conditions name


def is_said(goal: Cond, given: list[Cond]) -> bool:
    """Whether one of the given conditions is the goal, or a stronger bound of the same term."""
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
    """The conditions that hold together, one by one."""
    for cond in conds:
        if cond.kind == "all":
            yield from cond.parts
        else:
            yield cond


def list_sizes(count: int, numbers: Iterable[int] = ()) -> Iterator[tuple[int, ...]]:
    """Sizes to try: all alike, then one unlike the others, then with numbers that were named."""
    yield from ((n,) * count for n in TRIED if count)
    for usual, tried in ((1, TRIED), (67, TRIED), (1, tuple(numbers)), (67, tuple(numbers))):
        for axis in range(count):
            for n in tried:
                if n != usual:
                    yield tuple(n if i == axis else usual for i in range(count))


def list_named(conds: Iterable[Cond]) -> list[int]:
    """The numbers that conditions compare sums with, and their neighbours; the usual ones apart."""
    found: dict[int, None] = {}
    for term_ in (x for cond in conds for x in list_terms(cond)):
        n = abs(term_.terms.get((), 0))
        if max(TRIED) < n < MOST_TRIED:
            found |= dict.fromkeys((n, n + 1, n - 1))
    return list(found)[:MOST_NUMBERS]


def read_off(conds: Iterable[Cond]) -> Iterator[tuple[Atom, Poly]]:
    """The symbols that conditions say are numbers."""
    for cond in conds:
        if cond.kind == "eq" and cond.term is not None and len(cond.term.terms) <= 2:
            named = [m for m in cond.term.terms if m]
            if len(named) == 1 and len(named[0]) == 1 and named[0][0].is_leaf:
                number, rest = divmod(-cond.term.terms.get((), 0), cond.term.terms[named[0]])
                if not rest:
                    yield named[0][0], term(number)


def find_products(conds: Iterable[Cond]) -> dict[Monomial, None]:
    """The products of atoms that conditions speak of, in order: a set's differs from run to run."""
    terms = (p for cond in conds for p in list_terms(cond))
    return {m: None for p in terms for m in p.terms if len(m) > 1}


def find_positive(conds: Iterable[Cond]) -> set[Atom]:
    """The atoms that conditions say are never negative."""
    found = set()
    for cond in conds:
        least = -cond.term if cond.kind == "le" and cond.term is not None else term(0)
        (atom, *others) = least.atoms or (None,)
        if atom is not None and not others:
            beyond = (least - term(atom)).constant
            if beyond is not None and beyond <= 0:
                found.add(atom)
    return found


def find_comparable(
    products: Iterable[Monomial], conds: Iterable[Cond]
) -> Iterator[tuple[Poly, Poly]]:
    """Quotients by one divisor that are multiplied with the same in two products.

    Also sums of which one is a quotient, and that two conditions multiply with the same.
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
    """The sums with quotients that conditions multiply with products, by product."""
    found: dict[Monomial, dict[Poly, None]] = {}
    for term_ in (x for cond in conds for x in list_terms(cond)):
        sums: dict[Monomial, dict[Monomial, int]] = {}
        for monomial, c in term_.terms.items():
            for i, x in enumerate(monomial if len(monomial) > 1 else ()):
                sums.setdefault(monomial[:i] + monomial[i + 1 :], {})[(x,)] = c
        for rest, parts in sums.items():
            if any(_is_quotient(x) for (x,) in parts):
                sign = 1 if max(parts.values()) > 0 else -1
                found.setdefault(rest, {})[Poly(parts) * sign] = None
    return found


def list_terms(cond: Cond) -> Iterator[Poly]:
    """The terms that a condition compares with 0."""
    if cond.term is not None:
        yield cond.term
    for part in cond.parts:
        yield from list_terms(part)
