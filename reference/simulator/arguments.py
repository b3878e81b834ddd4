"""A launch's grid and arguments as a kernel's program takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gemmproof.reference.observation import KernelError
from gemmproof.reference.simulator.ops.access.descriptors import describe
from gemmproof.reference.simulator.session import Session
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import Type, pointer_to

# CUDA's limits on the sizes of a grid.
GRID_LIMITS = (2**31 - 1, 65535, 65535)


def check_grid(name: str, grid: tuple[Any, ...]) -> tuple[int, int, int]:
    """The launch grid as three sizes. Raises KernelError for one that CUDA refuses."""
    for n in grid:
        if not isinstance(n, int | np.integer):
            raise KernelError(f"{name}: grid {grid} with a {type(n).__name__} for an integer")
    sizes = tuple(int(n) for n in grid)
    if min(sizes) < 0:
        raise KernelError(f"{name}: grid {sizes} with a size below 0")
    for axis, limit in enumerate(GRID_LIMITS):
        if sizes[axis] > limit:
            raise KernelError(f"{name}: grid {sizes}, where CUDA admits {limit} along axis {axis}")
    return sizes[0], sizes[1], sizes[2]


def flatten(session: Session, name: str, value: Any, signature: Any) -> Iterator[Any]:
    """What the kernel's function takes for one parameter: nothing, one value, or several."""
    if signature == "constexpr":
        return
    if isinstance(signature, tuple):
        for item, inner in zip(value, signature, strict=True):
            yield from flatten(session, name, item, inner)
    elif str(signature).startswith("tensordesc"):
        base = _pointer(session, name, value.base)
        padding = getattr(value, "padding", None)
        yield describe(base, value.shape, value.strides, value.block_shape, padding)
        yield from map(int, (*value.shape, *value.strides))
    elif str(signature).startswith("*"):
        yield _pointer(session, name, value)
    else:
        yield value


def _pointer(session: Session, name: str, value: Any) -> Any:
    """An operand's first address."""
    if not isinstance(value, torch.Tensor):
        base = getattr(value, "base", None)
        if not isinstance(base, torch.Tensor):
            raise TypeError(f"argument {name} has type {type(value).__name__}, expected a tensor")
        value = base.view(value.dtype)  # triton.reinterpret
    operand = session.operand(name, value)
    address = np.array([operand.view.start], np.int64)
    return Value(address, pointer_to(operand.dtype), base=operand)


def scalar_of(value: Any, kind: Type) -> Value:
    """A number as the kernel receives it: an integer by its bits, a float rounded to the type."""
    dtype = kind.dtype
    if dtype.is_float:
        return Value(np.array([float(value)]).astype(dtype.numpy), dtype)
    whole = int(value)
    if dtype.bits > 1:
        half = 1 << (dtype.bits - 1)
        whole = (whole + half) % (2 * half) - half
    return Value(np.array([whole]).astype(dtype.numpy), dtype)
