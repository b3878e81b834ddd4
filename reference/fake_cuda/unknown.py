"""What the fake device does not know is an error that names it and the caller's line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from traceback import walk_stack, walk_tb
from typing import Any, NoReturn

from gemmproof.reference.observation import Unsupported
from gemmproof.reference.provenance import Line, calling_line, owner, raising_line

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
)


def make_unknown(what: str) -> Unsupported:
    """The error for `what`, at the user's innermost line on the stack."""
    return Unsupported(f"{what} is not known to the fake device", calling_line())


def explain_missing(error: Exception) -> Unsupported | None:
    """The error to raise for one that only a missing device can cause, None for any other.

    A machine with a GPU would not have raised it, so it says nothing about the kernel.
    """
    text = " ".join(str(error).split())
    if not isinstance(error, AssertionError | AttributeError | RuntimeError | TypeError):
        return None
    if not any(words in text for words in _MISSING):
        return None
    called = _find_called(list(walk_tb(error.__traceback__))[::-1]) or "what this line asks of CUDA"
    words = f"{called} is not known to the fake device ({text[:120]})"
    return Unsupported(words, raising_line(error))


def no_device() -> NoReturn:
    """Replaces torch.cuda._lazy_init, by which all of torch reaches the real device."""
    raise make_unknown(_find_called(walk_stack(sys._getframe())) or "what this line asks of CUDA")


def refusal(name: str, original: Any) -> Any:
    """Replaces a function or class that the fake device does not know: calling it raises."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise make_unknown(name)

    if isinstance(original, type):  # still a class: a module may annotate with it, or test for it
        return type(original.__name__, (), {"__new__": refuse, "__module__": original.__module__})
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
