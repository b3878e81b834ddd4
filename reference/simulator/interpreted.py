"""Kernels decorated under TRITON_INTERPRET=1, as they would be without it.

Triton decides at decoration, for its own library too. The simulator needs functions that the
frontend can translate.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import triton.language as tl
from triton.runtime.jit import JITFunction


def interpreted_class() -> Any:
    """The class of kernels that TRITON_INTERPRET=1 makes, None where none was made."""
    module = sys.modules.get("triton.runtime.interpreter")
    return None if module is None else module.InterpretedFunction


def find_jitted(kernel: Any) -> Any:
    """The kernel as it would be without TRITON_INTERPRET=1, made once.

    Kernels that it calls by name are replaced in the same way.
    """
    if "_gemmproof_jitted" not in vars(kernel):
        fn = kernel.fn
        scope = dict(fn.__globals__)
        copy = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, fn.__closure__)
        functools.update_wrapper(copy, fn)
        del vars(copy)["__wrapped__"]
        kernel._gemmproof_jitted = JITFunction(copy, **kernel.kwargs)
        for name in fn.__code__.co_names:
            if type(scope.get(name)) is interpreted_class():
                scope[name] = find_jitted(scope[name])
    kernel._gemmproof_jitted.pre_run_hooks = kernel.pre_run_hooks
    return kernel._gemmproof_jitted


def language_patches() -> Iterator[tuple[Any, str, Any]]:
    """(owner, name, function) for each function of Triton's own library to be replaced."""
    kind = interpreted_class()
    if kind is None:
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("triton.language"):
            for word, found in list(vars(module).items()):
                if type(found) is kind:
                    yield module, word, find_jitted(found)
    for word, found in list(vars(tl.tensor).items()):
        cells = getattr(found, "__closure__", None) or ()
        inner = next((c.cell_contents for c in cells if type(c.cell_contents) is kind), None)
        if inner is not None:
            yield tl.tensor, word, find_jitted(inner)
