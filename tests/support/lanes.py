"""Rows of parametrised tests: few for several parameters, and of those alike one by default."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

ParameterSet = type(pytest.param())


def combine(*columns: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows in which each value of each column appears; shorter columns are repeated.

    As many rows as the longest column has, in place of every combination.
    """
    listed = [list(column) for column in columns]
    return [
        tuple(column[n % len(column)] for column in listed) for n in range(max(map(len, listed)))
    ]


def first_of_each(
    rows: Iterable[Any], classify: Callable[[Any], Hashable] = lambda row: None
) -> list[Any]:
    """Return the rows as parameters: the first of each class is in the default lane.

    A row that is a tuple has the values of several parameters; pytest.param keeps its marks.
    """
    seen: set[Hashable] = set()
    params = []
    for row in rows:
        name = classify(row)
        if not isinstance(row, ParameterSet):
            row = pytest.param(*(row if isinstance(row, tuple) else (row,)))
        if name in seen:
            row = row._replace(marks=[*row.marks, pytest.mark.lane("full")])
        seen.add(name)
        params.append(row)
    return params
