"""Integers over symbols: polynomials of atoms, and conditions on them.

An atom is a symbol (a size, a stride, a program, a lane, a trip of a loop) or what no polynomial
says: a quotient, a remainder, a least one, a choice. Terms are exact integers without a width;
where a kernel's own integers are narrower is asked by whoever reads them.
"""

from gemmproof.reference.symbolic.terms.atoms import (
    Atom,
    Monomial,
    Poly,
    new_symbol,
    symbol,
    term,
)
from gemmproof.reference.symbolic.terms.changes import Swaps, rename, substitute, walk
from gemmproof.reference.symbolic.terms.conditions import (
    FALSE,
    TRUE,
    Cond,
    eq,
    every,
    flag,
    le,
    lt,
    some,
)
from gemmproof.reference.symbolic.terms.making import make
from gemmproof.reference.symbolic.terms.values import Values, evaluate

__all__ = [
    "FALSE",
    "TRUE",
    "Atom",
    "Cond",
    "Monomial",
    "Poly",
    "Swaps",
    "Values",
    "eq",
    "evaluate",
    "every",
    "flag",
    "le",
    "lt",
    "make",
    "new_symbol",
    "rename",
    "some",
    "substitute",
    "symbol",
    "term",
    "walk",
]
