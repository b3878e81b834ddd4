"""Libraries that come with a GPU: Triton's handles can be held, what they compute is not known."""

from __future__ import annotations

import importlib
from typing import Any

from gemmproof.reference.fake_cuda.unknown import refusal


def list_libraries() -> list[tuple[Any, str, Any]]:
    """Triton's bindings of libraries that come with a GPU's driver, each with its replacement.

    Where scripts compare a kernel with cuBLAS they make a handle when they are imported; no kernel
    needs it. Older Tritons have no such binding.
    """
    libtriton = importlib.import_module("triton._C.libtriton")
    cublas = getattr(getattr(libtriton, "nvidia", None), "cublas", None)
    real = getattr(cublas, "CublasLt", None)
    return [] if real is None else [(cublas, "CublasLt", _handle_like(real))]


def _handle_like(real: type) -> type:
    """A class to be made from whatever makes `real`; each of its methods is refused by name."""
    methods = {
        name: refusal(f"{real.__name__}.{name}", value)
        for name, value in vars(real).items()
        if not name.startswith("_") and callable(value)
    }
    made = {"__init__": lambda self, workspace: None, "__module__": real.__module__}
    return type(real.__name__, (), {**made, **methods})
