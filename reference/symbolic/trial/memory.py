"""What memories hold during a trial: a number for each element, and which of them are defined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.symbolic.terms import Poly
from gemmproof.reference.symbolic.trial.lattice import Unclear

MOST_ELEMENTS = 1 << 22
Count = Callable[[Poly], int]


@dataclass(slots=True)
class Buffer:
    """A memory's elements from its first one: numbers, which are not stored, which are undefined.

    `unclear`: why its numbers are not known, "" while they are.
    """

    data: np.ndarray
    empty: np.ndarray
    bad: np.ndarray
    unclear: str = ""


def make_buffer(span: int, defined: bool) -> Buffer:
    """A memory of so many elements. Raises Unclear for one that is too large."""
    if span > MOST_ELEMENTS:
        raise Unclear("a memory of too many elements")
    return Buffer(np.zeros(span), np.full(span, not defined), np.full(span, not defined))


def place(view: Any, count: Count, own: bool = False) -> np.ndarray:
    """The offsets of a view's elements from its memory's first, or those of its memory."""
    shape = view.owner_shape if own else view.shape
    strides = view.owner_strides if own else view.strides
    sides = tuple(map(count, shape))
    if np.prod(sides, dtype=np.float64) > MOST_ELEMENTS:
        raise Unclear("a view of too many elements")
    total: Any = np.zeros(sides, np.int64) + (0 if own else count(view.offset))
    for axis, (n, step) in enumerate(zip(sides, map(count, strides), strict=True)):
        total = total + (np.arange(n) * step).reshape((-1,) + (1,) * (len(sides) - axis - 1))
    return np.asarray(total)


def measure(memory: Any, count: Count) -> int:
    """From a memory's first element to behind its last."""
    shape, strides = (tuple(map(count, x)) for x in (memory.shape, memory.strides))
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
