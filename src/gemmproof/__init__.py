"""gemmproof checks that a Triton GEMM kernel is right: its addresses, its masks, its bits."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmproof.engine.kernel_check import check
    from gemmproof.engine.observation import Access, Observation, observe
    from gemmproof.properties.cases.case import Case
    from gemmproof.properties.contract import Contract, multiple_of
    from gemmproof.properties.kernel import KernelUnderTest, OneOf, Operand
    from gemmproof.reference.simulator import simulate
    from gemmproof.reference.spec import erf, sigmoid

__version__ = "0.1.0"
__all__ = [
    "Access",
    "Case",
    "Contract",
    "KernelUnderTest",
    "Observation",
    "OneOf",
    "Operand",
    "__version__",
    "check",
    "erf",
    "multiple_of",
    "observe",
    "sigmoid",
    "simulate",
]

# Where each public name is defined. They are loaded on first use, because numpy and torch take
# seconds to load and the command line, the plugin and shell completion need neither.
_HOMES = {
    "Access": "gemmproof.engine.observation",
    "Case": "gemmproof.properties.cases.case",
    "Contract": "gemmproof.properties.contract",
    "KernelUnderTest": "gemmproof.properties.kernel",
    "Observation": "gemmproof.engine.observation",
    "OneOf": "gemmproof.properties.kernel",
    "Operand": "gemmproof.properties.kernel",
    "erf": "gemmproof.reference.spec",
    "sigmoid": "gemmproof.reference.spec",
    "check": "gemmproof.engine.kernel_check",
    "multiple_of": "gemmproof.properties.contract",
    "observe": "gemmproof.engine.observation",
    "simulate": "gemmproof.reference.simulator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gemmproof' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
