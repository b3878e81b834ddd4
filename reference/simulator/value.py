"""A value of a kernel, for all running programs at once.

`data` has a leading axis over programs, of length 1 where every program holds the same, and then
the block's axes, each of full length or of length 1 where all lanes along it are the same. A
pointer's data are byte addresses. Two companions hold what hardware does not: `poison` (uint8, 0
for a defined lane) marks undefined lanes, a bit for each origin, `exact`
(present only after a wrap) is what an integer or an address would be in unbounded arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.ttir.dtypes import Dtype, Type
from gemmproof.reference.work import METER


class Value:
    """One value: `data` (programs or 1, *lanes), its scalar type, poison, exact, base.

    `base` is the operand that a pointer was derived from, None for an address of unknown origin.
    `shared` holds the distinct blocks where programs loaded the same ones (shared_tiles.py).
    `span` bounds the integers in `data` (low, high), where it is known without looking at them.
    `loaded` is the narrowest width in bits that the lanes had in memory (0: not from memory), less
    than 0 where blocks were joined since.
    """

    __slots__ = ("base", "data", "dtype", "exact", "loaded", "poison", "shared", "span")

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
        if data.nbytes > context.VALUE_BYTES:
            context.check_width(data.nbytes)
        self.data = data
        self.dtype = dtype
        self.poison = poison
        self.exact = exact
        self.base = base
        self.loaded = loaded
        self.span: tuple[int, int] | None = None
        self.shared: Any = None

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.data.shape[1:])}"

    def map(self, view: Callable[[np.ndarray], np.ndarray]) -> Value:
        """The same value after a change of shape, applied to data and companions alike.

        `view` only moves or adds axes, so that an axis of length 1 still stands for all its lanes.
        """
        poison = None if self.poison is None else view(self.poison)
        exact = None if self.exact is None else view(self.exact)
        made = Value(view(self.data), self.dtype, poison, exact, self.base, self.loaded)
        made.span = self.span
        return made

    def spread(self, shape: Sequence[int]) -> Value:
        """The same value with every lane of a block of `shape` present, without a copy."""
        shape = tuple(shape)
        parts = (self.data, self.poison, self.exact)
        if all(part is None or part.shape[1:] == shape for part in parts):
            return self
        return self.map(lambda part: np.broadcast_to(part, (len(part), *shape)))

    def marks(self) -> np.ndarray:
        """The poison, zero for all lanes where every lane is defined."""
        return np.zeros((1,) * self.data.ndim, np.uint8) if self.poison is None else self.poison

    def unbounded(self) -> np.ndarray:
        """The integers or addresses as unbounded arithmetic has them."""
        return self.data.astype(np.int64) if self.exact is None else self.exact

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in `data`, looked up once."""
        data = self.data
        if data.size == 1:
            only = int(data.item())
            return only, only
        if self.span is None:
            self.span = (int(data.min()), int(data.max())) if data.size else (0, 0)
        return self.span

    @property
    def is_uniform(self) -> bool:
        """Whether it is one value for all programs, known without looking at lanes."""
        return all(p is None or len(p) == 1 for p in (self.data, self.poison, self.exact))

    def select(self, rows: np.ndarray) -> Value:
        """The value for some of the programs; itself where all programs share it."""
        if self.is_uniform:
            return self
        parts = (self.data, self.poison, self.exact)
        data, poison, exact = (p if p is None or len(p) == 1 else p[rows] for p in parts)
        assert data is not None
        made = Value(data, self.dtype, poison, exact, self.base, self.loaded)
        made.span = self.span
        return made


class Lazy(Value, ABC):
    """A defined value whose lanes are computed on first use."""

    __slots__ = ("_made",)

    def __init__(self, dtype: Dtype, base: Any = None, loaded: int = 0) -> None:
        self._made: np.ndarray | None = None
        self.dtype, self.base, self.loaded = dtype, base, loaded
        self.poison = self.exact = self.span = self.shared = None

    @property
    def is_made(self) -> bool:
        return self._made is not None

    @property
    def is_uniform(self) -> bool:
        return False

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
        if self._made is None:
            self._made = self.make()
        return self._made

    @abstractmethod
    def make(self) -> np.ndarray:
        """All lanes (programs or 1, *lanes)."""


def merge(values: Sequence[Value], sizes: Sequence[int], order: np.ndarray | None) -> Value:
    """One value for the programs of several groups of `sizes`, then put in `order`."""
    first = values[0]
    if all(v is first for v in values):
        return first
    base = first.base if all(v.base is first.base for v in values) else None
    loaded = loaded_width(*values)
    if first.data.size <= 64 and first.is_uniform and all(is_same(v, first) for v in values):
        return first

    def join(parts: list[np.ndarray]) -> np.ndarray:
        lanes = np.broadcast_shapes(*(p.shape[1:] for p in parts))
        context.check_width(sum(sizes) * int(np.prod(lanes, dtype=np.int64)) * parts[0].itemsize)
        whole = [np.broadcast_to(p, (n, *lanes)) for p, n in zip(parts, sizes, strict=True)]
        joined = np.concatenate(whole)
        return joined if order is None else joined[order]

    data = join([v.data for v in values])
    poison = exact = None
    if any(v.poison is not None for v in values):
        poison = join([v.marks() for v in values])
    if any(v.exact is not None for v in values):
        exact = join([v.unbounded() for v in values])
    return Value(data, first.dtype, poison, exact, base, loaded)


def unknown_block(kind: Type) -> Value:
    """A block of which a sampled call knows no lane."""
    zeros = np.broadcast_to(np.zeros((), kind.dtype.numpy), (1, *kind.shape))
    bits = np.broadcast_to(context.poison_bit("sums of a sampled call"), zeros.shape)
    return Value(zeros, kind.dtype, bits)


def is_same(x: Any, y: Any) -> bool:
    """Whether two values are the same, bit for bit."""
    if type(x) is not Value or type(y) is not Value or x.base is not y.base:
        return False
    pairs = ((x.data, y.data), (x.poison, y.poison), (x.exact, y.exact))
    return all(
        p is q
        or (p is not None and q is not None and p.shape == q.shape and p.tobytes() == q.tobytes())
        for p, q in pairs
    )


def union(*parts: np.ndarray | None) -> np.ndarray | None:
    """Lanes poisoned in any part, with the bits of every part."""
    found: np.ndarray | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else found | part
    return found


def loaded_width(*values: Value) -> int:
    """The narrowest width in memory of what a value is made of, as `loaded` has it."""
    width = min((abs(v.loaded) for v in values if v.loaded), default=0)
    return -width if any(v.loaded < 0 for v in values) else width
