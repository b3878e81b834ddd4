"""Lanes of parametrised tests: of rows that test the same code, one is in the default lane."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def first_of_each(
    rows: Iterable[Any], classify: Callable[[Any], Hashable] = lambda row: None
) -> list[Any]:
    """Return the rows as parameters: the first of each class is in the default lane.

    A row that is a tuple has the values of several parameters.
    """
    seen: set[Hashable] = set()
    params = []
    for row in rows:
        name = classify(row)
        marks = [pytest.mark.lane("full" if name in seen else "default")]
        seen.add(name)
        values = row if isinstance(row, tuple) else (row,)
        params.append(pytest.param(*values, marks=marks))
    return params
