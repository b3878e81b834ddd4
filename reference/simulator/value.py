"""Values of a simulated program: tiles of numbers, and outer sums of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from gemmproof.reference.simulator import session
from gemmproof.reference.ttir import I1, Dtype, Type
from gemmproof.reference.work import METER


# -- value ---------------------------------------------------------------------------------------
class Value:
    """One value: `data` (programs or 1, *lanes), its scalar type, poison, exact, base.

    `base` is the operand that a pointer was derived from, None for an address of unknown origin.
    `shared` holds the distinct blocks if programs loaded the same ones (ops/dots.py).
    `span` bounds the integers in `data` (low, high), if known without looking at them.
    `loaded` is the narrowest width in bits that the lanes had in memory (0: not from memory), less
    than 0 if blocks were joined since. `terms` are the numbers of the lanes' terms while a formula
    is read (element_terms.py), None for lanes that depend on no tensor.
    """

    __slots__ = ("base", "data", "dtype", "exact", "loaded", "poison", "shared", "span", "terms")

    def __init__(
        self,
        data: np.ndarray,
        dtype: Dtype,
        poison: np.ndarray | None = None,
        exact: np.ndarray | None = None,
        base: Any = None,
        loaded: int = 0,
    ) -> None:
        METER.values += 1
        METER.value_lanes += data.size
        if data.nbytes > session.VALUE_BYTES:
            session.check_width(data.nbytes)
        self.data = data
        self.dtype = dtype
        self.poison = poison
        self.exact = exact
        self.base = base
        self.loaded = loaded
        self.span: tuple[int, int] | None = None
        self.shared: Any = None
        self.terms: np.ndarray | None = None

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.data.shape[1:])}"

    def map(self, view: Callable[[np.ndarray], np.ndarray]) -> Value:
        """Return the same value after a change of shape, applied to data and companions alike.

        `view` only moves or adds axes, so that an axis of length 1 still stands for all its lanes.
        """
        poison = None if self.poison is None else view(self.poison)
        exact = None if self.exact is None else view(self.exact)
        result = Value(view(self.data), self.dtype, poison, exact, self.base, self.loaded)
        result.span = self.span
        if self.terms is not None:
            result.terms = view(self.terms)
        return result

    def spread(self, shape: Sequence[int]) -> Value:
        """Return the same value with every lane of a block of `shape`, without a copy."""
        shape = tuple(shape)
        parts = (self.data, self.poison, self.exact, self.terms)
        if all(part is None or part.shape[1:] == shape for part in parts):
            return self
        return self.map(lambda part: np.broadcast_to(part, (len(part), *shape)))

    def marks(self) -> np.ndarray:
        """Return the poison, zero for all lanes if every lane is defined."""
        return np.zeros((1,) * self.data.ndim, np.uint8) if self.poison is None else self.poison

    def term_numbers(self) -> np.ndarray:
        """Return the numbers of the lanes' terms, zero for lanes that depend on no tensor."""
        return np.zeros((1,) * self.data.ndim, np.int64) if self.terms is None else self.terms

    def unbounded(self) -> np.ndarray:
        """Return the integers or addresses of unbounded arithmetic."""
        return self.data.astype(np.int64) if self.exact is None else self.exact

    def bounds(self) -> tuple[int, int]:
        """Return the smallest and the largest integer in `data`, computed once."""
        data = self.data
        if data.size == 1:
            only = int(data.item())
            return only, only
        if self.span is None:
            self.span = (int(data.min()), int(data.max())) if data.size else (0, 0)
        return self.span

    @property
    def is_uniform(self) -> bool:
        """True if it is one value for all programs, known without looking at lanes."""
        parts = (self.data, self.poison, self.exact, self.terms)
        return all(p is None or len(p) == 1 for p in parts)

    def select(self, rows: np.ndarray) -> Value:
        """Return the value for some of the programs; itself if all programs share it."""
        if self.is_uniform:
            return self
        parts = (self.data, self.poison, self.exact, self.terms)
        data, poison, exact, terms = (p if p is None or len(p) == 1 else p[rows] for p in parts)
        assert data is not None
        result = Value(data, self.dtype, poison, exact, self.base, self.loaded)
        result.span, result.terms = self.span, terms
        return result


class Lazy(Value, ABC):
    """A defined value whose lanes are computed on first use."""

    __slots__ = ("_lanes",)

    def __init__(self, dtype: Dtype, base: Any = None, loaded: int = 0) -> None:
        self._lanes: np.ndarray | None = None
        self.dtype, self.base, self.loaded = dtype, base, loaded
        self.poison = self.exact = self.span = self.shared = self.terms = None

    @property
    def is_made(self) -> bool:
        return self._lanes is not None

    @property
    def is_uniform(self) -> bool:
        return False

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
        if self._lanes is None:
            self._lanes = self.make()
        return self._lanes

    @abstractmethod
    def make(self) -> np.ndarray:
        """Compute all lanes (programs or 1, *lanes)."""


def merge(values: Sequence[Value], sizes: Sequence[int], order: np.ndarray | None) -> Value:
    """Merge the values of several groups of `sizes` programs, then put them in `order`."""
    first = values[0]
    if all(v is first for v in values):
        return first
    base = first.base if all(v.base is first.base for v in values) else None
    loaded = loaded_width(*values)
    if first.data.size <= 64 and first.is_uniform and all(is_same(v, first) for v in values):
        return first

    def join(parts: list[np.ndarray]) -> np.ndarray:
        lanes = np.broadcast_shapes(*(p.shape[1:] for p in parts))
        session.check_width(sum(sizes) * int(np.prod(lanes, dtype=np.int64)) * parts[0].itemsize)
        whole = [np.broadcast_to(p, (n, *lanes)) for p, n in zip(parts, sizes, strict=True)]
        joined = np.concatenate(whole)
        return joined if order is None else joined[order]

    data = join([v.data for v in values])
    poison = exact = None
    if any(v.poison is not None for v in values):
        poison = join([v.marks() for v in values])
    if any(v.exact is not None for v in values):
        exact = join([v.unbounded() for v in values])
    result = Value(data, first.dtype, poison, exact, base, loaded)
    if any(v.terms is not None for v in values):
        result.terms = join([v.term_numbers() for v in values])
    return result


def unknown_block(kind: Type) -> Value:
    """Return a block of which a sampled call knows no lane."""
    zeros = np.broadcast_to(np.zeros((), kind.dtype.numpy), (1, *kind.shape))
    bits = np.broadcast_to(session.poison_bit("sums of a sampled call"), zeros.shape)
    return Value(zeros, kind.dtype, bits)


def is_same(x: Any, y: Any) -> bool:
    """Return whether two values are the same, bit for bit."""
    if type(x) is not Value or type(y) is not Value or x.base is not y.base:
        return False
    pairs = ((x.data, y.data), (x.poison, y.poison), (x.exact, y.exact), (x.terms, y.terms))
    return all(
        p is q
        or (p is not None and q is not None and p.shape == q.shape and p.tobytes() == q.tobytes())
        for p, q in pairs
    )


def union(*parts: np.ndarray | None) -> np.ndarray | None:
    """Return lanes poisoned in any part, with the bits of every part."""
    bits: np.ndarray | None = None
    for part in parts:
        if part is not None:
            bits = part if bits is None else bits | part
    return bits


def loaded_width(*values: Value) -> int:
    """Return the narrowest width in memory of a value's operands, as `loaded` counts it."""
    width = min((abs(v.loaded) for v in values if v.loaded), default=0)
    return -width if any(v.loaded < 0 for v in values) else width


# -- outer sums of tiles -------------------------------------------------------------------------
# Blocks of fewer lanes are materialised immediately.
FEWEST_LANES = 4096


class Outer(Lazy):
    """Parts (programs or 1, *lanes) that broadcast against each other: a sum of integers or
    addresses, or a conjunction of booleans."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[np.ndarray], dtype: Dtype, base: Any, loaded: int) -> None:
        super().__init__(dtype, base, loaded)
        self.parts = parts

    def make(self) -> np.ndarray:
        shape = np.broadcast_shapes(*(p.shape for p in self.parts))
        session.check_width(int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize)
        return combine(self.parts)

    def bounds(self) -> tuple[int, int]:
        """Return numbers between which every lane of the sum lies."""
        if self.span is None:
            self.span = sum(int(p.min()) for p in self.parts), sum(int(p.max()) for p in self.parts)
        return self.span

    def select(self, rows: np.ndarray) -> Value:
        parts = [p if len(p) == 1 else p[rows] for p in self.parts]
        return Outer(parts, self.dtype, self.base, self.loaded)


def combine(parts: list[np.ndarray]) -> np.ndarray:
    """Combine the parts to all lanes, the smaller parts first."""
    function = np.logical_and if parts[0].dtype == np.bool_ else np.add
    return reduce(function, sorted(parts, key=lambda p: p.size))


def parts_of(value: Value) -> list[np.ndarray]:
    return value.parts if isinstance(value, Outer) else [value.data]


def join(
    left: list[np.ndarray], right: list[np.ndarray], dtype: Dtype, base: Any, loaded: int
) -> Outer | None:
    """Return the parts of both sides, combined if one broadcasts to the other; None if that saves
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
