"""The state that a wrapper keeps from call to call, and how to restore it."""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from gemmproof.properties.cases.data import overwrite
from gemmproof.reference.provenance import owner

MAX_ELEMENTS = 2**24  # a larger tensor is left as it is


@dataclass(frozen=True, slots=True)
class State:
    """Functions that restore every container, tensor and module variable a kernel can reach."""

    undo: tuple[Callable[[], None], ...]

    def restore(self) -> None:
        """Restore everything to its state when it was recorded."""
        for step in self.undo:
            step()


_KEPT: dict[int, tuple[object, State]] = {}


def find_state(function: object) -> State:
    """Return the state of a wrapper's modules when this was first called for that wrapper."""
    key = id(function)
    if key not in _KEPT:
        undo = (*_walk(function, set()), *_allocator())
        _KEPT[key] = (function, State(undo))
    return _KEPT[key][1]


def _allocator() -> Iterator[Callable[[], None]]:
    """Yield a function that restores the allocator of triton.set_allocator, if Triton is used."""
    module = sys.modules.get("triton.runtime._allocation")
    if module is not None:
        yield functools.partial(module._allocator.set, module._allocator.get())


def _walk(value: Any, seen: set[int]) -> Iterator[Callable[[], None]]:
    if id(value) in seen:
        return
    seen.add(id(value))
    parts: Iterable[Any] = ()
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        parts = (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType):
        yield from _function(value, seen)
    elif isinstance(value, types.ModuleType):
        if _is_user_module(value.__name__):
            yield from _variables(value.__dict__, seen)
    elif isinstance(value, torch.Tensor):
        # a tensor that a traced call left has no elements, and sizes of that call
        if (
            type(value) is not FakeTensor
            and value.device.type == "cpu"
            and value.numel() <= MAX_ELEMENTS
        ):
            yield functools.partial(_fill, value.detach(), value.detach().clone())
    elif isinstance(value, dict | list | set):
        yield functools.partial(_refill, value, value.copy())
        parts = _parts(value)
    elif isinstance(value, tuple):
        parts = value
    elif hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
        yield value.cache_clear
        parts = (value.__wrapped__,)
    elif _is_user_module(type(value).__module__) and isinstance(
        getattr(value, "__dict__", None), dict
    ):
        yield from _variables(value.__dict__, seen)
    for part in parts:
        yield from _walk(part, seen)


def _function(value: types.FunctionType, seen: set[int]) -> Iterator[Callable[[], None]]:
    if not _is_user_module(value.__module__):
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
    """Yield functions that restore the variables of a module or an object, and their contents."""
    if id(names) in seen:
        return
    seen.add(id(names))
    plain = {name: value for name, value in names.items() if not _is_dunder(name)}
    yield functools.partial(_rebind, names, plain)
    for value in plain.values():
        yield from _walk(value, seen)


def _rebind(names: dict[str, Any], before: dict[str, Any]) -> None:
    for name in [k for k in names if k not in before and not _is_dunder(k)]:
        del names[name]
    names.update(before)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _refill(value: Any, before: Any) -> None:
    now, then = _parts(value), _parts(before)
    if len(now) == len(then) and all(map(operator.is_, now, then)):
        return
    value.clear()
    if isinstance(value, list):
        value.extend(before)
    else:
        value.update(before)


def _parts(value: dict[Any, Any] | list[Any] | set[Any]) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, dict) else list(value)


def _fill(tensor: torch.Tensor, before: torch.Tensor) -> None:
    if tensor.shape == before.shape:
        overwrite(tensor, before)


def _is_user_module(name: str | None) -> bool:
    """Return whether a module belongs to a project: no installed library, and not the suite."""
    file = getattr(sys.modules.get(name), "__file__", None) if isinstance(name, str) else None
    return isinstance(file, str) and owner(file) == "user"
