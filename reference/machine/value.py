"""A value of a kernel, for all running programs at once.

`data` has a leading axis over programs, of length 1 where every program holds the same, and then
the block's shape; a pointer's data are byte addresses. Two companions say what the hardware
cannot: `poison` (uint8, 0 for a defined lane) marks lanes that nothing defined by the bits of where
they came from, `exact` (present only after a wrap) is what an integer or an address would be in
unbounded arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.types import (
    numpy_of,
    type_of_number,
)

Number = bool | int | float
_NUMBERS = frozenset((bool, int, float))
_NUMBER_TYPES = (bool, int, float, np.bool_, np.integer, np.floating)


class Value:
    """One value: `data` (programs or 1, *shape), its Triton scalar type, poison, exact, base.

    `base` is the operand that a pointer was derived from, None for an address of unknown origin.
    `shared` holds the distinct blocks where programs loaded the same ones (shared_tiles.py).
    `span` bounds the integers in `data` (low, high), where it is known without looking at them.
    `loaded` is the narrowest width in bits that the lanes had in memory (0: not from memory), and
    `fold` adds a dot's products onto another value, where the compiler would (dots.py).
    """

    __slots__ = ("base", "data", "dtype", "exact", "fold", "loaded", "poison", "shared", "span")

    def __init__(
        self,
        data: np.ndarray,
        dtype: tl.dtype,
        poison: np.ndarray | None = None,
        exact: np.ndarray | None = None,
        base: Any = None,
        loaded: int = 0,
    ) -> None:
        if data.nbytes > execution.VALUE_BYTES:
            execution.too_wide(data)
        self.data = data
        self.dtype = dtype
        self.poison = poison
        self.exact = exact
        self.base = base
        self.loaded = loaded
        self.fold: Callable[[Value], Value] | None = None
        self.span: tuple[int, int] | None = None
        self.shared: Any = None

    # -- what a kernel asks of a tensor ------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape[1:]

    @property
    def numel(self) -> int:
        return int(np.prod(self.shape))

    @property
    def type(self) -> Any:
        return tl.block_type(self.dtype, list(self.shape)) if self.shape else self.dtype

    @property
    def T(self) -> Value:
        return execution.vocabulary().trans(self)

    def __getattr__(self, name: str) -> Any:
        """Every function of the vocabulary is a method too (`x.to(...)`, `x.sum(0)`)."""
        if name.startswith("__"):
            raise AttributeError(name)
        function = execution.vocabulary().member(name)
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    # -- decisions -----------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return execution.decide(self)

    def __index__(self) -> int:
        raise execution.kernel_error(f"a constant integer is needed here, got a runtime {self!r}")

    __int__ = __index__

    def __iter__(self) -> Any:
        raise execution.kernel_error(f"a {self!r} cannot be iterated or unpacked in a kernel")

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> Value:
        index = index if isinstance(index, tuple) else (index,)
        key: list[Any] = [slice(None)]
        for item in index:
            if item is not None and item != slice(None):
                raise execution.kernel_error(f"only ':' and None index a tensor, got {item!r}")
            key.append(np.newaxis if item is None else slice(None))
        if sum(item is not None for item in index) != len(self.shape):
            raise execution.kernel_error(
                f"index of {len(index)} entries for a {self!r}: got "
                f"{sum(i is not None for i in index)} ':', expected {len(self.shape)}"
            )
        return self.map(lambda part: part[tuple(key)])

    def map(self, view: Callable[[np.ndarray], np.ndarray]) -> Value:
        """The same value after a change of shape, applied to data and companions alike."""

        def apply(part: np.ndarray | None) -> np.ndarray | None:
            if part is None:
                return None
            whole = np.broadcast_to(part, part.shape[:1] + self.data.shape[1:])
            return view(whole)

        poison, exact = apply(self.poison), apply(self.exact)
        made = Value(view(self.data), self.dtype, poison, exact, self.base, self.loaded)
        made.span = self.span
        return made

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer in `data`, looked up once."""
        if not self.data.size:
            return 0, 0
        if self.span is None or self.data.size == 1:
            self.span = int(self.data.min()), int(self.data.max())
        return self.span


# -- making values -------------------------------------------------------------------------------
@lru_cache(maxsize=4096, typed=True)
def _scalar(x: Number, dtype: tl.dtype) -> tuple[np.ndarray, tuple[int, int] | None]:
    with np.errstate(all="ignore"):
        data = np.array([x]).astype(numpy_of(dtype))
    data.flags.writeable = False
    return data, ((int(data[0]), int(data[0])) if data.dtype.kind in "iu" else None)


def scalar(x: Number, dtype: tl.dtype | None = None) -> Value:
    """A uniform scalar of `dtype` (default: the type Triton gives the bare number)."""
    dtype = dtype or type_of_number(x)
    data, span = _scalar(x, dtype)
    value = Value(data, dtype)
    value.span = span
    return value


def is_number(x: Any) -> bool:
    """Whether `x` is a bare number, Python's or numpy's."""
    return type(x) in _NUMBERS or isinstance(x, _NUMBER_TYPES)


def lift(x: Any) -> Value:
    """`x` as a Value; raises KernelError where Triton would not take it as a tensor."""
    if isinstance(x, Value):
        return x
    if is_number(x):
        return scalar(x)
    raise execution.kernel_error(f"cannot use {x!r} of type {type(x).__name__} as a tensor")


def pad_rank(part: np.ndarray, ndim: int) -> np.ndarray:
    """Insert axes after the program axis so that blocks of other rank broadcast as in Triton."""
    missing = ndim - part.ndim
    return part.reshape(part.shape[:1] + (1,) * missing + part.shape[1:]) if missing > 0 else part


def union(*parts: np.ndarray | None) -> np.ndarray | None:
    """Lanes poisoned in any part, with the bits of every part."""
    found: np.ndarray | None = None
    for part in parts:
        if part is not None:
            if found is None:
                found = part
            else:
                ndim = max(found.ndim, part.ndim)
                found = pad_rank(found, ndim) | pad_rank(part, ndim)
    return found


def check_shapes(x: Value, y: Value) -> None:
    """Raise KernelError unless the blocks broadcast against each other."""
    for m, n in zip(reversed(x.shape), reversed(y.shape), strict=False):
        if m != n and m != 1 and n != 1:
            raise execution.kernel_error(
                f"shapes {list(x.shape)} and {list(y.shape)} do not broadcast"
            )
