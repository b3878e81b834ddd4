"""gemmproof says whether a Triton GEMM kernel is right: its addresses, its masks, its bits."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmproof.check import check
    from gemmproof.properties.contract import Contract, KernelUnderTest
    from gemmproof.reference.simulator import simulate

__version__ = "0.1.0"
__all__ = ["Contract", "KernelUnderTest", "__version__", "check", "simulate"]

# Where each public name lives. They are loaded when first asked for, because numpy and torch
# take seconds and the command line, the plugin and completion need neither.
_HOMES = {
    "Contract": "gemmproof.properties.contract",
    "KernelUnderTest": "gemmproof.properties.contract",
    "check": "gemmproof.check",
    "simulate": "gemmproof.reference.simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gemmproof' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Keeps `gemmproof.check` the function when the module of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "check" and isinstance(value, ModuleType):
            value = value.check
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
