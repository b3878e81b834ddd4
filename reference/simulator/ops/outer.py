"""Sums and conjunctions of rows and columns of lanes, materialised only where all are needed.

Most pointers are `base + rows + columns` and most masks `rows & columns`: programs that load the
same block are recognised by the small parts, and only distinct blocks are materialised.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.value import Lazy, Value
from gemmproof.reference.ttir.dtypes import I1, Dtype

# Blocks of fewer lanes are materialised immediately.
FEWEST_LANES = 4096


class Outer(Lazy):
    """Parts (programs or 1, *lanes) that broadcast against each other: a sum of integers or
    addresses, or a conjunction of truths."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[np.ndarray], dtype: Dtype, base: Any, loaded: int) -> None:
        super().__init__(dtype, base, loaded)
        self.parts = parts

    def make(self) -> np.ndarray:
        shape = np.broadcast_shapes(*(p.shape for p in self.parts))
        context.check_width(int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize)
        return combine(self.parts)

    def bounds(self) -> tuple[int, int]:
        """Numbers between which every lane of the sum lies."""
        if self.span is None:
            self.span = sum(int(p.min()) for p in self.parts), sum(int(p.max()) for p in self.parts)
        return self.span

    def select(self, rows: np.ndarray) -> Value:
        parts = [p if len(p) == 1 else p[rows] for p in self.parts]
        return Outer(parts, self.dtype, self.base, self.loaded)


def combine(parts: list[np.ndarray]) -> np.ndarray:
    """All lanes of what the parts stand for, the smaller parts first."""
    function = np.logical_and if parts[0].dtype == np.bool_ else np.add
    return reduce(function, sorted(parts, key=lambda p: p.size))


def parts_of(value: Value) -> list[np.ndarray]:
    return value.parts if isinstance(value, Outer) else [value.data]


def join(
    left: list[np.ndarray], right: list[np.ndarray], dtype: Dtype, base: Any, loaded: int
) -> Outer | None:
    """The parts of both sides, combined where one broadcasts to the other; None where that saves
    little. The caller has made sure that nothing overflows.
    """
    parts = list(left)
    for part in right:
        for i, other in enumerate(parts):
            shape = tuple(map(max, part.shape, other.shape))
            if shape == part.shape or shape == other.shape:
                parts[i] = other & part if dtype is I1 else other + part
                break
        else:
            parts.append(part)
    if len(parts) == 1:
        return None
    if prod(map(max, *(p.shape for p in parts))) < FEWEST_LANES:
        return None
    return Outer(parts, dtype, base, loaded)
