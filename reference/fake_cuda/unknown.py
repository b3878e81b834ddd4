"""What the fake device does not know, or this machine lacks: an error with the caller's line."""

from __future__ import annotations

import itertools
import linecache
import re
import sys
import types
from collections.abc import Iterable
from traceback import walk_stack, walk_tb
from typing import Any, NoReturn

from gemmproof.reference.gpus import GPU
from gemmproof.reference.observation import Exhausted, SimulatorError, Unsupported
from gemmproof.reference.provenance import Line, calling_line, owner, raising_line, words_of

# What torch and Triton say where they look for a device and find none.
_MISSING = (
    "not compiled with CUDA",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "NVIDIA driver on your system is too old",
    "without ATen_cuda library",
    "not linked with support for cuda",
    "Cannot access accelerator device when none is available",
    "no pinned memory allocator is available",
    "arguments from the 'CUDA' backend",
    "CUDA driver initialization failed",
    "CUDA driver version is insufficient",
    "Cannot re-initialize CUDA in forked subprocess",
    "no CUDA-capable device is detected",
    "non-CUDA tensor type",
    "libcuda.so cannot found",
    "libamdhip64.so",
    "module 'torch._C' has no attribute '_cuda",
    "module 'torch._C' has no attribute '_accelerator",
    # A library of operators in C++ that is not loaded.
    "'_OpNamespace' ",
    # An operator that the CPU lacks for this dtype or device, whatever a GPU has.
    "\" not implemented for '",
    "with arguments from the 'CPU' backend",
)
_LIBRARY = re.compile(r"lib\w*\.so[.\d]*: cannot open shared object file")
_TOOLS = ("nvidia-smi", "nvcc", "ptxas", "cuobjdump", "nvdisasm", "rocm-smi", "amd-smi", "hipcc")
_REFUSED = re.compile(r"tried to allocate (\d+) bytes")


class UnknownName(Unsupported, AttributeError, KeyError):
    """Something asked for by name; whoever is prepared not to find it may catch it as usual."""

    __str__ = SimulatorError.__str__


class Facts(types.SimpleNamespace):
    """Attributes that are known, of an object that has more: any other name is refused."""

    def __init__(self, _of: str, **known: Any) -> None:
        super().__init__(**known)
        self.__dict__["_of"] = _of

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise make_unknown_name(f"{self.__dict__['_of']}.{name}")


class Table(dict[str, Any]):
    """Figures that are known, of a table that has more: any other key is refused."""

    def __init__(self, _of: str, known: dict[str, Any]) -> None:
        super().__init__(known)
        self._of = _of

    def __missing__(self, key: str) -> NoReturn:
        raise make_unknown_name(f"{self._of}[{key!r}]")


def make_unknown(what: str) -> Unsupported:
    """The error for `what`, at the user's innermost line on the stack."""
    return Unsupported(f"{what} is not known to the fake device", calling_line())


def make_unknown_name(what: str) -> UnknownName:
    """The error for an attribute or a key, at the user's innermost line on the stack."""
    return UnknownName(f"{what} is not known to the fake device", calling_line())


def explain_lack(error: Exception, gpu: GPU) -> SimulatorError | None:
    """The error to raise for a call that failed for what this machine lacks, None for any other.

    That is memory which `gpu` has, a Python package, and what comes with the GPU's driver.
    """
    text, where = words_of(error)[:200], raising_line(error)
    asked = _find_memory(error, text)
    if 0 < asked <= gpu.memory:
        words = text or type(error).__name__
        return Exhausted(f"this machine lacks memory for this line ({words})", where)
    if isinstance(error, ImportError) or (isinstance(error, OSError) and _names_driver(error)):
        return Unsupported(f"this line needs what this machine lacks: {text}", where)
    return None


def explain_missing(error: Exception) -> Unsupported | None:
    """The error to raise for one that only a missing device can cause, None for any other.

    A machine with a GPU would not have raised it, so it says nothing about the kernel.
    """
    text = words_of(error)
    if not isinstance(error, AssertionError | AttributeError | RuntimeError | TypeError):
        return None
    if not any(words in text for words in _MISSING):
        return None
    called = _find_called(list(walk_tb(error.__traceback__))[::-1]) or "what this line asks of CUDA"
    words = f"{called} is not known to the fake device ({text[:120]})"
    return Unsupported(words, raising_line(error))


def _find_memory(error: Exception, text: str) -> int:
    """How many bytes an allocation wanted that failed; 1 where that is not told, 0 for no such."""
    if isinstance(error, MemoryError):
        return 1
    refused = _REFUSED.search(text) if "can't allocate memory" in text else None
    return int(refused[1]) if refused else 0


def _names_driver(error: OSError) -> bool:
    """Whether a library could not be loaded, or a tool of the driver's is not there to be run."""
    tool = isinstance(error, FileNotFoundError) and str(error.filename).rpartition("/")[2] in _TOOLS
    return tool or _LIBRARY.search(words_of(error)) is not None


def no_device() -> NoReturn:
    """Refuse, in place of what of torch reaches the real device, by the name that was called."""
    raise make_unknown(name_call())


def name_call() -> str:
    """Return what the user's innermost line calls: a function of torch, or its own words."""
    called = _find_called(walk_stack(sys._getframe(1)))
    if called is None:  # a type or a function in C, which has no frame
        for frame, _ in walk_stack(sys._getframe(1)):
            if owner(frame.f_code.co_filename) != "library":
                called = _text_called(frame)
                break
    return called or "what this line asks of CUDA"


def _text_called(frame: types.FrameType) -> str | None:
    """Return the dotted name of the call under way in `frame`, or None if it has no such name."""
    spans = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end, first, last = next(spans, (None, None, None, None))
    if line is None or line != end:
        return None
    text = linecache.getline(frame.f_code.co_filename, line).encode()[first:last].decode()
    name, called, _ = text.partition("(")
    return name if called and all(map(str.isidentifier, name.split("."))) else None


def refusal(name: str, original: Any) -> Any:
    """Replaces a function or class that the fake device does not know: calling it raises."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise make_unknown(name)

    if isinstance(original, type):  # still a class: a module may annotate with it, or test for it
        return type(original.__name__, (), {"__new__": refuse, "__module__": original.__module__})
    if hasattr(original, "__wrapped__"):  # which torch's compiler asks for while it is imported
        refuse.__wrapped__ = original.__wrapped__  # type: ignore[attr-defined]
    return refuse


def _find_called(lines: Iterable[Line]) -> str | None:
    """What the innermost user's line calls: the outermost function of torch below it."""
    found = None
    for frame, _ in lines:
        if owner(frame.f_code.co_filename) != "library":
            break
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "__torch_function__" and "func" in frame.f_locals:
            found = f"torch's {getattr(frame.f_locals['func'], '__name__', 'function')}"
        elif module.partition(".")[0] in ("torch", "triton"):
            found = f"{module}.{frame.f_code.co_qualname}"
    return found
