"""A sampled call: c has so many elements that of each launch only some programs run.

It shows what a program shows by itself: addresses that wrap or leave an operand. All memory but the
operands' is address space alone, so nothing is stored there, and what is loaded from there is
unknown, since a program that does not run might have stored it. Unknown lanes are undefined lanes:
one that decides an address or a mask is not judged, and the call ends (progress.Enough) before one
decides a branch or is read by the wrapper. Of torch's operators on large tensors only the shapes
are computed.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gemmproof.reference.observation import Exhausted
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.reserved import reserve
from gemmproof.reference.simulator.memory import view_of
from gemmproof.reference.simulator.progress import Enough
from gemmproof.reference.simulator.session import Session

LARGE = 2**24  # elements; a tensor of more is address space
KINDS = ("out_of_bounds", "wrapped_offset")  # of events that a program shows by itself
MOST_PROGRAMS = 24  # of a launch, where it has more
_READERS = ("cpu", "tolist", "numpy", "__array__", "__dlpack__")  # torch hides their reads


def pick_programs(grid: tuple[int, int, int]) -> np.ndarray:
    """The linear ids of the programs that run: at the ends of every axis, the last, some between.

    Wherever a scheduler puts the far end of c, one of them works there or near it.
    """
    x, y, z = grid
    total = x * y * z
    if total <= MOST_PROGRAMS:
        return np.arange(total)
    ends = [(k * y + j) * x + i for k in {0, z - 1} for j in {0, y - 1} for i in {0, x - 1}]
    last = range(total - 4, total)
    between = np.linspace(0, total - 1, MOST_PROGRAMS - 12).astype(np.int64)
    return np.unique(np.concatenate([ends, last, between]))


class HostReads(TorchFunctionMode):
    """Ends a sampled call where the wrapper reads what launches may have written."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.session.partial and getattr(func, "__name__", "") in _READERS:
            raise Enough
        return func(*args, **(kwargs or {}))


def perform(session: Session, func: Any, args: Any, kwargs: Any) -> Any:
    """What a torch operator gives in a sampled call: large tensors have a shape and no elements.

    Raises Enough for a number, or for a shape, that depends on elements, and for what is large and
    has no shape here. (torch's own functions of shapes take seconds to load.)
    """
    schema = func._schema
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    large = any(x.numel() > LARGE for x in given)
    if schema.is_mutable:
        if not large:
            return func(*args, **kwargs)
        session.partial = True
        return _written(schema, args, kwargs)
    if any(r.alias_info for r in schema.returns):
        return func(*args, **kwargs)  # a view
    if (large or session.partial) and _DEPENDS & set(func.tags):
        raise Enough
    if large or _bound_result(schema.name, args, given) > LARGE:
        session.partial |= large
        return _shape_result(schema.name, func, args, kwargs)
    return func(*args, **kwargs)


_DEPENDS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_MADE = ("empty", "empty_strided", "zeros", "ones", "full")
_ALIKE = ("clone", "_to_copy", *(f"{name}_like" for name in ("empty", "zeros", "ones", "full")))
_NEW = tuple(f"new_{name}" for name in _MADE)
_KEPT = (None, torch.preserve_format)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


def _written(schema: Any, args: Any, kwargs: Any) -> Any:
    """What an operator that writes to a large tensor returns: that tensor, as it was."""
    named = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    targets = (a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write)
    written = tuple(named[name] for name in targets)
    return written[0] if len(schema.returns) == 1 else written if schema.returns else None


def _bound_result(name: str, args: Any, given: list[torch.Tensor]) -> int:
    """How many elements a result has at most, as far as sizes among the arguments tell."""
    most = max((x.numel() for x in given), default=1)
    if name.removeprefix("aten::") in _PRODUCTS:
        *_, a, b = given
        return math.prod(a.shape[:-1]) * b.shape[-1]
    with suppress(ValueError):
        most = max(most, math.prod(np.broadcast_shapes(*(x.shape for x in given))))
    for x in args:
        if isinstance(x, list | tuple) and x and all(isinstance(n, int) for n in x):
            count = math.prod(max(abs(n), 1) for n in x)
        elif isinstance(x, int | float) and (not given or "repeat" in name):
            count = int(abs(x))
        else:
            continue
        most = most * count if "repeat" in name else max(most, count)
    return most


def _shape_result(name: str, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """A large result of torch: a new tensor, a copy, or sums along axes."""
    name = name.removeprefix("aten::")
    if name in _MADE:
        return _reserve(func(*args, **{**kwargs, "device": "meta"}))
    if name not in (*_ALIKE, *_NEW, "sum"):
        raise Enough
    x, dtype = args[0], kwargs.get("dtype") or args[0].dtype
    shape = list(x.shape)
    if name in _NEW:
        shape = args[1]
    elif name == "sum":
        keep = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        axes = {n % x.dim() for n in args[1]} if len(args) > 1 and args[1] else range(x.dim())
        shape = [1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes]
    elif kwargs.get("memory_format") in _KEPT and view_of(x).span == x.numel():
        return _reserve(torch.empty_strided(shape, x.stride(), dtype=dtype, device="meta"))
    return _reserve(torch.empty(shape, dtype=dtype, device="meta"))


def _reserve(shape: torch.Tensor) -> torch.Tensor:
    """A tensor of this shape in memory of its own, of which nothing is committed."""
    nbytes = max(shape.untyped_storage().nbytes(), shape.element_size())
    try:
        memory = reserve(nbytes)
    except (OSError, OverflowError):
        words = f"this machine cannot reserve {nbytes:,} bytes of addresses"
        raise Exhausted(words, calling_line()) from None
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(shape.dtype)
    return torch.as_strided(flat, shape.shape, shape.stride())
