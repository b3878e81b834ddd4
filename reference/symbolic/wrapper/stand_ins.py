"""What Triton's binder is handed in place of symbols and of tensors without memory.

It specialises a kernel by the values of its arguments. A size stands as a number of 32 bits that is
neither 1 nor divisible by 16, so that nothing is assumed of it; a tensor as an aligned address.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

_GENERIC = 37


class SizeStandIn(int):
    """An integer for one that the sizes decide, which it carries."""

    original: Any

    def __new__(cls, original: Any) -> SizeStandIn:
        made = super().__new__(cls, _GENERIC)
        made.original = original
        return made


class FloatStandIn(float):
    """A float for one that the sizes decide."""

    original: Any

    def __new__(cls, original: Any) -> FloatStandIn:
        made = super().__new__(cls, 0.75)
        made.original = original
        return made


class TensorStandIn:
    """A tensor's type and an address."""

    def __init__(self, original: Any) -> None:
        self.original, self.dtype = original, original.dtype

    @staticmethod
    def data_ptr() -> int:
        return 4096

    @staticmethod
    def ptr_range() -> int:
        return 1 << 40  # more than 32 bits count: nothing is assumed


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value with each leaf of its tuples changed; a named tuple keeps its kind."""
    if isinstance(value, tuple | list):
        items = [_map(item, change) for item in value]
        kind = type(value)
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    return change(value)


def stand_in(value: Any) -> Any:
    """A launch argument as the binder takes it."""
    return _map(value, _stand_in)


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return SizeStandIn(value)
    if isinstance(value, torch.SymBool):
        return bool(value)
    if isinstance(value, torch.SymFloat):
        return FloatStandIn(value)
    if isinstance(value, torch.Tensor) or isinstance(getattr(value, "base", None), torch.Tensor):
        if not isinstance(value, TensorDescriptor):
            return TensorStandIn(value)
        made = copy.copy(value)
        made.base = TensorStandIn(value.base)
        made.original = value
        return made
    return value


def restore(value: Any) -> Any:
    """What `value`, made by `stand_in`, stands for."""
    return _map(value, lambda x: getattr(x, "original", x))
