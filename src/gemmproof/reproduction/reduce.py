"""The fewest of many things that still do what all of them do: delta debugging.

After Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002): halves, then
smaller and smaller parts, are left out for as long as what is left still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def reduce_items(items: Sequence[T], fails: Callable[[Sequence[T]], bool | None]) -> list[T]:
    """Items of which none can be left out by itself, where `fails` had the time to say so.

    `fails` says whether these alone still fail; None, when no more may be tried, ends the search
    with what was found so far.
    """
    left = list(items)
    verdict = fails([])
    if verdict:
        return []
    parts = 2
    while verdict is not None and left and parts <= 2 * len(left):
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            verdict = fails(rest) if rest else False
            if verdict is None:
                return left
            if verdict:
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return left
