"""Terms and conditions with others in place of some atoms, and the atoms that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from gemmproof.reference.symbolic.terms.atoms import Atom, Monomial, Poly, term
from gemmproof.reference.symbolic.terms.conditions import Cond, eq, every, le, some
from gemmproof.reference.symbolic.terms.making import make

Swaps = Mapping[Atom, Poly]
T = TypeVar("T", Poly, Cond)


def substitute(what: T, swaps: Swaps, memo: dict[Any, Any] | None = None) -> T:
    """The same with terms in place of some atoms, in the parts of atoms too."""
    if not swaps:
        return what
    memo = {} if memo is None else memo
    if what in memo:
        return memo[what]
    made: Any
    if isinstance(what, Cond):
        if what.term is not None:
            inner = substitute(what.term, swaps, memo)
            made = {"le": le, "eq": eq}.get(what.kind, lambda x, y: ~eq(x, y))(inner, 0)
        else:
            parts = (substitute(part, swaps, memo) for part in what.parts)
            made = every(parts) if what.kind == "all" else some(parts)
    else:
        made = term(0)
        for monomial, coefficient in what.terms.items():
            product = term(coefficient)
            for atom in monomial:
                product = product * _swap(atom, swaps, memo)
            made = made + product
    memo[what] = made
    return made


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
    """A condition with other atoms in place of some, the parts of atoms left as they are."""
    if cond.term is None:
        return Cond(cond.kind, None, tuple(rename(part, swaps) for part in cond.parts))
    total: dict[Monomial, int] = {}
    for monomial, c in cond.term.terms.items():
        key = tuple(sorted((swaps.get(x, x) for x in monomial), key=lambda x: x.number))
        total[key] = total.get(key, 0) + c
    return Cond(cond.kind, Poly(total))


def _depend(atom: Atom, swaps: Swaps, memo: dict[Any, Any]) -> Poly:
    """An unknown of other lanes, programs or trips is another unknown."""
    if atom.kind != "unknown":
        return term(atom)
    why, number, *depends = atom.args
    return term(Atom("unknown", why, number, *(substitute(x, swaps, memo) for x in depends)))


def walk(
    *what: Poly | Cond, is_whole: Callable[[Atom], bool] = lambda atom: False
) -> Iterator[Atom]:
    """Every atom of terms and conditions, those in the parts of atoms too, the outermost first.

    Of atoms that are `is_whole` the parts are left out.
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
