"""What a kernel's modules keep between calls, and how to put it back as it was.

A case must give in the midst of a check what it gives alone, or no reproduce line is true. So what
earlier calls left in a wrapper's modules (caches, workspaces, counters) is put back before each
case, and the property `call_order` alone judges what one call does to the next.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gemmproof.reference.provenance import owner

MAX_ELEMENTS = 2**24  # a larger tensor is left as it is


@dataclass(frozen=True, slots=True)
class State:
    """Ways to put back every container, tensor and module variable that a kernel can reach."""

    undo: tuple[Callable[[], None], ...]

    def restore(self) -> None:
        """Put everything back as it was when it was kept."""
        for step in self.undo:
            step()


_KEPT: dict[int, tuple[object, State]] = {}


def keep_state(function: object) -> State:
    """The state of a wrapper's modules as it was when this was first asked for that wrapper."""
    key = id(function)
    if key not in _KEPT:
        undo = (*_walk(function, set()), *_allocator())
        _KEPT[key] = (function, State(undo))
    return _KEPT[key][1]


def _allocator() -> Iterator[Callable[[], None]]:
    """What triton.set_allocator keeps for the whole process, where Triton is used."""
    module = sys.modules.get("triton.runtime._allocation")
    if module is not None:
        yield functools.partial(module._allocator.set, module._allocator.get())


def _walk(value: Any, seen: set[int]) -> Iterator[Callable[[], None]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, functools.partial):
        for part in (value.func, value.args, value.keywords):
            yield from _walk(part, seen)
    elif isinstance(value, types.MethodType):
        yield from _walk(value.__self__, seen)
        yield from _walk(value.__func__, seen)
    elif isinstance(value, types.FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, types.ModuleType):
        if _theirs(value.__name__):
            yield from _variables(value.__dict__, seen)
    elif isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.numel() <= MAX_ELEMENTS:
            before = value.detach().clone()
            yield functools.partial(_fill, value.detach(), before)
    elif isinstance(value, dict):
        yield from _contents(value, list(value.values()), dict(value), seen)
    elif isinstance(value, list):
        yield from _contents(value, list(value), list(value), seen)
    elif isinstance(value, set):
        yield from _contents(value, [], set(value), seen)
    elif isinstance(value, tuple):
        for part in value:
            yield from _walk(part, seen)
    elif hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
        yield value.cache_clear
        yield from _walk(value.__wrapped__, seen)
    elif _theirs(type(value).__module__) and isinstance(getattr(value, "__dict__", None), dict):
        yield from _variables(value.__dict__, seen)


def _function(value: types.FunctionType, seen: set[int]) -> Iterator[Callable[[], None]]:
    if not _theirs(value.__module__):
        return
    # attributes, default arguments and closures outlive a call as well as globals do
    yield from _variables(value.__dict__, seen)
    yield from _walk(value.__defaults__ or (), seen)
    yield from _walk(value.__kwdefaults__ or {}, seen)
    for cell in value.__closure__ or ():
        try:
            inside = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        yield functools.partial(setattr, cell, "cell_contents", inside)
        yield from _walk(inside, seen)
    yield from _variables(value.__globals__, seen)


def _variables(names: dict[str, Any], seen: set[int]) -> Iterator[Callable[[], None]]:
    """Variables of a module or an object: which value each name has, and what is in the values."""
    if id(names) in seen:
        return
    seen.add(id(names))
    plain = {k: v for k, v in names.items() if not (k.startswith("__") and k.endswith("__"))}
    yield functools.partial(_rebind, names, plain)
    for value in plain.values():
        yield from _walk(value, seen)


def _contents(
    value: Any, parts: list[Any], before: Any, seen: set[int]
) -> Iterator[Callable[[], None]]:
    yield functools.partial(_refill, value, before)
    for part in parts:
        yield from _walk(part, seen)


def _rebind(names: dict[str, Any], before: dict[str, Any]) -> None:
    for name in [k for k in names if k not in before]:
        if not (name.startswith("__") and name.endswith("__")):
            del names[name]
    for name, value in before.items():
        if name not in names or names[name] is not value:
            names[name] = value


def _refill(value: Any, before: Any) -> None:
    if isinstance(value, list):
        if len(value) != len(before) or any(x is not y for x, y in zip(value, before, strict=True)):
            value[:] = before
    elif isinstance(value, dict):
        if list(value) != list(before) or any(value[k] is not v for k, v in before.items()):
            value.clear()
            value.update(before)
    else:
        value.clear()
        value.update(before)


def _fill(tensor: torch.Tensor, before: torch.Tensor) -> None:
    if tensor.shape == before.shape:
        # along an expanded axis all elements are one, and torch does not write to all of them
        own = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
        tensor[own].copy_(before[own])


def _theirs(name: str | None) -> bool:
    """Whether a module is of a project, and neither an installed library nor the suite."""
    file = getattr(sys.modules.get(name), "__file__", None) if isinstance(name, str) else None
    return isinstance(file, str) and owner(file) == "user"
