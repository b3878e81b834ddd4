"""torch's symbolic shapes without its compiler, which takes two seconds to import.

They ask for some of its settings, which are given here. Who wants more of it gets the true one.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_COMPILER, _VALIDATOR = "torch._dynamo", "torch.fx.experimental.validator"
_SETTINGS = {
    "fake_tensor_cache_enabled": False,
    "fake_tensor_cache_crosscheck_enabled": False,
    "_custom_ops_profile": None,
}


@contextmanager
def without_compiler() -> Iterator[None]:
    """Torch's symbolic shapes and tensors without elements can be made and used."""
    if _COMPILER in sys.modules:
        yield
        return
    settings = _make_module(f"{_COMPILER}.config", _SETTINGS)
    disabled: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        """Return the function itself: there is no compiler that has to leave it alone."""
        disabled.append(function)
        return function

    named = {"config": settings, "disable": disable, "__getattr__": _import}
    stand_in = _make_module(_COMPILER, named)
    torch._dynamo = stand_in
    try:
        yield
    finally:
        for function in disabled:  # torch keeps the answer, and may have a compiler later
            vars(function).pop("__dynamo_disable", None)
        if vars(torch).get("_dynamo") is stand_in:
            del torch._dynamo


@contextmanager
def without_imports() -> Iterator[None]:
    """Within `without_compiler`: the lines of torch that import its compiler find no compiler."""
    if _COMPILER in sys.modules:
        yield
        return
    validator = _make_module(_VALIDATOR, {"translation_validation_enabled": lambda: False})
    made = {_COMPILER: torch._dynamo, f"{_COMPILER}.config": torch._dynamo.config}
    made |= {_VALIDATOR: validator} if _VALIDATOR not in sys.modules else {}
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


def _make_module(name: str, named: dict[str, Any]) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(named)
    return module


def _import(name: str) -> Any:
    """What the stand-in does not have."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module(_COMPILER), name)


class Shapes(FakeTensorMode):
    """Tensors of shapes and strides alone. It keeps no results: what it keeps asks of the sizes."""

    __torch_dispatch__ = inspect.unwrap(FakeTensorMode.__torch_dispatch__)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.cache_enabled = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler to switch it off
