"""Triton's frontend: TTIR of a kernel and its arguments."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure

from gemmproof.reference.simulation import CompileError, Where
from gemmproof.reference.work import METER


class RefusedKernel(CompileError, CompilationError):
    """A refusal of Triton's frontend, for us and, as on a GPU, for a wrapper that catches it."""

    def __init__(self, message: str, where: Where | None, refusal: CompilationError) -> None:
        CompilationError.__init__(self, refusal.src, refusal.node, refusal.error_message)
        CompileError.__init__(self, message, where)


class FailedStaticAssert(RefusedKernel, CompileTimeAssertionFailure):
    """A tl.static_assert that fails: tuners drop the configuration."""


def make_ttir(src: Any, target: GPUTarget, options: Any) -> str:
    """Return the text of a kernel's TTIR as its source was translated, before any optimisation.

    Raises CompileError with Triton's message and its line.
    """
    try:
        text = _translate(src, target, options)
    except RecursionError:
        raise CompileError(f"{get_name(src)} calls itself without end", _where(src, None)) from None
    except Exception as error:
        raise _verifier_refusal(src, target, options) or _refusal(src, error) from error
    METER.ttir += text.count("\n")  # not the characters: they include file paths
    return text


def _translate(src: Any, target: GPUTarget, options: Any) -> str:
    backend = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen = backend.get_codegen_implementation(options)
    arguments = (target, options, codegen, backend.get_module_map(), context)
    count = len(inspect.signature(src.make_ir).parameters)
    # Triton prints the whole module when its verifier fails
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return str(src.make_ir(*arguments[-count:]))


_DIAGNOSTIC = re.compile(r'^"?(.+?)"?:(\d+):\d+: error: (.*)$', re.MULTILINE)


def _verifier_refusal(src: Any, target: GPUTarget, options: Any) -> CompileError | None:
    """Return the report of MLIR's verifier, which goes only to the process's standard error.

    Returns None if the translation ends before the verifier.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        return None
    with tempfile.TemporaryFile() as stderr:
        os.dup2(stderr.fileno(), 2)
        try:
            _translate(src, target, options)
        except CompilationError:
            return None
        except Exception:  # handled below
            pass
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        stderr.seek(0)
        match = _DIAGNOSTIC.search(stderr.read().decode(errors="replace"))
    if match is None:
        return None
    where = Where(match[1], int(match[2]), get_name(src))
    message = f"Triton refuses to compile {get_name(src)}: {' '.join(match[3].split())[:300]}"
    return CompileError(message, where)


def identify(src: Any) -> str:
    """Return a specialisation's key, without its arguments' attributes: they change nothing."""
    attrs, src.attrs = src.attrs, {}
    try:
        return f"{src.hash()} {_file(src.fn)}"
    finally:
        src.attrs = attrs


def get_name(src: Any) -> str:
    return getattr(src.fn, "__name__", str(src.name))


def _refusal(src: Any, error: Exception) -> CompileError:
    """Return Triton's refusal: its innermost message in one line, the user's innermost line."""
    where = None
    message = ""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, CompilationError):
            where = _where(src, seen) or where
            message = seen.error_message or message
        else:
            message = str(seen) or type(seen).__name__
        seen = seen.__cause__
    text = " ".join(message.split())
    if asserted := re.fullmatch(r"AssertionError\((['\"])(.*)\1\)", text):
        text = asserted[2]
    text = f"Triton refuses to compile {get_name(src)}: {text[:300]}"
    if not isinstance(error, CompilationError):
        return CompileError(text, where)
    is_assert = isinstance(error, CompileTimeAssertionFailure)
    return (FailedStaticAssert if is_assert else RefusedKernel)(text, where, error)


_JITTED = re.compile(r"^\s*def\s+(\w+)", re.MULTILINE)


def _where(src: Any, error: CompilationError | None) -> Where | None:
    """Return the line of a compilation error.

    Triton numbers it within the function's source, from its `def` on; the function is found by
    that source among those that the kernel uses.
    """
    source = getattr(error, "src", None)
    node = getattr(error, "node", None)
    constants = [getattr(value, "value", value) for value in src.constants.values()]
    seen: set[int] = set()
    used = [f for root in (src.fn, *constants) for f in _functions(root, seen)]
    for function in used:
        if source is None or getattr(function, "src", None) == source:
            first = find_def_line(function)
            line = first + (getattr(node, "lineno", 1) - 1 if node is not None else 0)
            return Where(_file(function), line, function.fn.__name__)
    return None


def find_def_line(function: Any) -> int:
    """Return the line of a jitted function's `def`, which is below its decorators."""
    begin = int(getattr(function, "starting_line_number", function.fn.__code__.co_firstlineno))
    raw = getattr(function, "raw_src", None)
    lines = raw if isinstance(raw, list) else (raw or "").splitlines()
    skipped = next((i for i, line in enumerate(lines) if _JITTED.match(line)), 0)
    return begin + skipped


def _file(function: Any) -> str:
    return str(function.fn.__code__.co_filename)


def _functions(function: Any, seen: set[int]) -> list[Any]:
    """Return a jitted function and the user's jitted functions that it names, outermost first."""
    if id(function) in seen or not hasattr(function, "fn") or not hasattr(function.fn, "__code__"):
        return []
    seen.add(id(function))
    functions = [function]
    for other in _named(function.fn):
        if hasattr(other, "fn") and not str(getattr(other, "__module__", "")).startswith("triton."):
            functions += _functions(other, seen)
    return functions


def _named(function: Any) -> Iterator[Any]:
    """Yield the objects that the names in a function's body may refer to."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        yield value
        if isinstance(value, ModuleType):
            yield from (getattr(value, attribute, None) for attribute in function.__code__.co_names)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not assigned yet
            yield cell.cell_contents
