"""Run a jitted function's own code with its globals rebound to the machine.

The code object is untouched, but for the few words of rewrite.py: `tl`, `triton`, `range`, `min`,
other jitted functions and what was imported from triton.language by name are looked up in globals,
and there they are replaced.
"""

from __future__ import annotations

import types
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.rewrite import code_of


def is_jit(x: Any) -> bool:
    """Whether `x` is a function under @triton.jit (also as the interpreter wraps it)."""
    return isinstance(x, JITFunction) or (
        hasattr(x, "fn")
        and type(x).__module__.startswith("triton.runtime")
        and not is_constexpr_function(x)
    )


def is_constexpr_function(x: Any) -> bool:
    """Whether `x` runs when a kernel is compiled: plain Python on constants."""
    return type(x).__name__.endswith("ConstexprFunction")


def body(function: Any) -> types.FunctionType:
    """The plain Python function inside any number of Triton's decorators."""
    while not isinstance(function, types.FunctionType):
        function = function.fn
    return function


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a jitted function from within a kernel."""
    return rebound(body(function))(*args, **kwargs)


def rebound(function: types.FunctionType) -> types.FunctionType:
    """`function`'s code over globals and closure cells that lead to the machine."""
    from gemmproof.reference.machine import vocabulary

    names: dict[str, Any] = {
        execution.KERNEL_MARK: _is_user(function),
        "__builtins__": vocabulary.BUILTINS,
    }
    names["__name__"] = function.__globals__.get("__name__", "kernel")
    code = code_of(function)
    for name in _names_of(code):
        if name in function.__globals__:
            names[name] = replace(function.__globals__[name])
    closure = None
    if function.__closure__:
        closure = tuple(_cell(c) for c in function.__closure__)
    made = types.FunctionType(code, names, function.__name__, function.__defaults__, closure)
    if function.__defaults__:
        made.__defaults__ = tuple(replace(d) for d in function.__defaults__)
    made.__kwdefaults__ = {k: replace(v) for k, v in (function.__kwdefaults__ or {}).items()}
    return made


def _cell(cell: types.CellType) -> types.CellType:
    try:
        return types.CellType(replace(cell.cell_contents))
    except ValueError:  # a name of the enclosing function that is not bound yet
        return types.CellType()


def _is_user(function: types.FunctionType) -> bool:
    return not function.__module__.startswith("triton.language")


def _names_of(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return names


def replace(x: Any) -> Any:
    """What stands for `x` while a kernel runs; objects that are not Triton's stay themselves."""
    from gemmproof.reference.machine import vocabulary

    if isinstance(x, tl.constexpr):
        return x.value
    if is_jit(x) or is_constexpr_function(x):
        return vocabulary.function_of(x)
    if x is triton:
        return vocabulary.TRITON
    if isinstance(x, types.ModuleType):
        return vocabulary.module_of(x)
    module = getattr(x, "__module__", None)
    if isinstance(module, str) and module.startswith("triton.language") and callable(x):
        return vocabulary.function_of(x)
    return x
