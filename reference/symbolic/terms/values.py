"""What terms and conditions are where their symbols have values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gemmproof.reference.symbolic.terms.atoms import Atom, Poly
from gemmproof.reference.symbolic.terms.conditions import Cond
from gemmproof.reference.symbolic.terms.making import OPERATIONS

Values = Mapping[Atom, Any]


def evaluate(what: Poly | Cond, values: Values, memo: dict[Any, Any] | None = None) -> Any:
    """A term's or condition's value where symbols have these values, numbers or arrays.

    Raises KeyError for a symbol that has none.
    """
    memo = {} if memo is None else memo
    if isinstance(what, Cond):
        return _holds(what, values, memo)
    total: Any = 0
    for monomial, coefficient in what.terms.items():
        product: Any = coefficient
        for atom in monomial:
            product = product * _value(atom, values, memo)
        total = total + product
    return total


def _value(atom: Atom, values: Values, memo: dict[Any, Any]) -> Any:
    if atom in values:
        return values[atom]
    if atom not in memo:
        if atom.is_leaf:
            raise KeyError(atom)
        args = [evaluate(x, values, memo) for x in atom.args]
        memo[atom] = OPERATIONS[atom.kind](*args)
    return memo[atom]


def _holds(cond: Cond, values: Values, memo: dict[Any, Any]) -> Any:
    if cond.term is not None:
        x = evaluate(cond.term, values, memo)
        return x <= 0 if cond.kind == "le" else (x == 0) == (cond.kind == "eq")
    if not cond.parts:
        return cond.kind == "all"
    join = np.logical_and if cond.kind == "all" else np.logical_or
    parts = [_holds(part, values, memo) for part in cond.parts]
    result = parts[0]
    for part in parts[1:]:
        result = join(result, part)
    return result
