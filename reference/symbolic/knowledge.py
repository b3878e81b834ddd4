"""What is known of the atoms that conditions name: their definitions, and what the domain says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain

from gemmproof.reference.symbolic.definitions import define
from gemmproof.reference.symbolic.questions import find_products, list_parts, list_terms
from gemmproof.reference.symbolic.terms import TRUE, Atom, Cond, Poly, le, term, walk

WIDE = 2**15  # goals that name more are about what types and grids hold


@dataclass(slots=True)
class Knowledge:
    """What holds of the symbols of one kernel.

    `domain` holds always: the sizes that the contract admits. `known` is what holds of single
    atoms (a program is below the grid) and is used where an atom is named.
    """

    domain: Cond
    known: dict[Atom, Cond]
    _sizes: dict[Atom, bool] = field(default_factory=dict)

    def plain(self) -> list[Cond]:
        """The part of the domain that speaks of no products."""
        return [cond for cond in list_parts([self.domain]) if not find_products([cond])]

    def close_near(self, conds: Iterable[Cond], others: Iterable[Cond] = ()) -> list[Cond]:
        """The conditions with what is known of the atoms that they name, and of nothing else.

        What is made of sizes alone, as the number of tiles, counts as a size of its own.
        """
        found = dict.fromkeys(self.close(conds, self._is_size))
        named = set(walk(*found, is_whole=self._is_size))
        if any(abs(p.terms.get((), 0)) >= WIDE for cond in conds for p in list_terms(cond)):
            limits = ((x, self._find_most(term(x))) for x in named if self._is_size(x))
            found |= {le(term(x), most): None for x, most in limits if most is not None}
        for cond in chain(others, self.plain()):
            if named.issuperset(walk(cond, is_whole=self._is_size)):
                found[cond] = None
        return list(found)

    def _find_most(self, size: Poly) -> int | None:
        """A number that what is made of sizes never exceeds, because of limits of single sizes."""
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
        """Whether an atom is made of nothing but what the domain speaks of."""
        if not self._sizes:
            self._sizes |= dict.fromkeys((x for x in walk(self.domain) if x.is_leaf), False)
        if not atom.is_leaf and atom not in self._sizes:
            leaves = (x for x in walk(term(atom)) if x.is_leaf)
            self._sizes[atom] = all(x in self._sizes for x in leaves)
        return self._sizes.get(atom, False)

    def close(
        self, conds: Iterable[Cond], is_whole: Callable[[Atom], bool] = lambda atom: False
    ) -> list[Cond]:
        """The conditions with what is known of every atom that they name.

        Of those that are `is_whole` it is only what they never fall below.
        """
        found: dict[Cond, None] = dict.fromkeys(list_parts(conds))
        seen: set[Atom] = set()
        waiting = list(found)
        while waiting:
            new = [x for x in walk(*waiting, is_whole=is_whole) if x not in seen]
            seen |= set(new)
            waiting = []
            for atom in new:
                said = define(atom)
                if is_whole(atom):
                    said = (le(atom.least, term(atom)),) if atom.is_natural else ()
                for cond in list_parts((*said, self.known.get(atom, TRUE))):
                    if cond not in found:
                        found[cond] = None
                        waiting.append(cond)
        return list(found)
