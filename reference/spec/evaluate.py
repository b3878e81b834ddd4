"""A spec called on operands: the value of every element of c, and its bound before c is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.spec.array import Rules, SpecArray, constant, operand


class SpecError(ValueError):
    """A formula that cannot be evaluated, through no fault of the kernel."""


def evaluate(
    spec: Callable[..., Any], operands: Mapping[str, tuple[Array, str] | Any], rules: Rules
) -> tuple[SpecArray, ...]:
    """What `spec` makes of operands by name: one array for each result.

    An operand is a storage array with the name of its format, or a Python value. Raises SpecError,
    in one line, for whatever the spec raises, and where it uses what no rule is known for.
    """
    given = {
        name: operand(x[0], rules, x[1]) if isinstance(x, tuple) else x
        for name, x in operands.items()
    }
    with np.errstate(all="ignore"):
        try:
            result = spec(**given)
            results = result if isinstance(result, tuple) else (result,)
            if not results or isinstance(result, list):
                got = "a list" if results else "no result"
                raise TypeError(f"got {got}, expected an array or a tuple of arrays")
            return tuple(x if isinstance(x, SpecArray) else constant(x, rules) for x in results)
        except Exception as mistake:
            words = " ".join(str(mistake).split()).removeprefix("spec: ")
            kind = "" if isinstance(mistake, TypeError | ValueError) else type(mistake).__name__
            raise SpecError(f"spec: {': '.join(filter(None, (kind, words)))}") from mistake
