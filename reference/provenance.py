"""The user's line behind a call, the heartbeat of a worker, and wording of messages."""

from __future__ import annotations

import dis
import mmap
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType
from typing import Any, Literal

from gemmproof.reference.simulation import NOWHERE, Where

# -- reserved names ------------------------------------------------------------------------------
# Python names the flag from 3.13 on; these are the machines on which Linux gives it this number
_GENERIC = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if _GENERIC else 0)

MOST_FILLED = 2**28  # bytes of an operand of a sampled call; a larger one has no known element


def reserve(nbytes: int) -> mmap.mmap:
    """Return zeros at newly reserved addresses. Raises OSError if the system has too few."""
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)


# -- wording -------------------------------------------------------------------------------------
_HISSES = ("s", "x", "ch", "sh")


def format_count(n: int, noun: str) -> str:
    """Format a number and its noun: "1 case", "2 cases", "0 launches", "3 properties"."""
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{n} {noun[:-1]}ies"
    return f"{n} {noun}{'es' if noun.endswith(_HISSES) else 's'}"


# -- tracers -------------------------------------------------------------------------------------
HIDDEN_TRACERS: list[object] = []  # our own
find_tracer = sys.gettrace


def show_tracer() -> Any:
    """Return what `sys.gettrace` does, without our own: None, or the tracer that the user set."""
    tracer = find_tracer()
    return None if tracer in HIDDEN_TRACERS else tracer


# -- heartbeat -----------------------------------------------------------------------------------
BEAT = 0.5  # seconds between two signs


class Heartbeat:
    """Signs of progress: `send` is the watcher's; running code calls `give`, at any rate.

    Both take a text for the user, such as "evaluating the formula", or none.
    """

    send: Callable[..., None] = staticmethod(lambda activity="": None)
    _given = 0.0

    @classmethod
    def give(cls, activity: str = "") -> None:
        """Send a sign, unless the last one was sent a moment ago."""
        now = time.monotonic()  # of all clocks the one that costs no system call
        if now - cls._given > BEAT:
            cls._given = now
            cls.send(activity)


# -- provenance ----------------------------------------------------------------------------------
Line = tuple[FrameType, int]

# Packages between us and a wrapper; any other installed package may be the target itself.
_BETWEEN = ("_pytest", "hypothesis", "numpy", "pluggy", "pytest", "torch", "triton")


# the links of an editable installation lead to the neighbouring folders
_OURS = tuple(
    os.path.join(path.resolve(), "") if path.is_dir() else str(path.resolve())
    for path in Path(__file__).parent.parent.iterdir()
    if path.name != "kernels"
)
_PYTHON = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def words_of(error: BaseException) -> str:
    """Return an error's message in one line, or, if that raises, the type of that error."""
    try:
        return " ".join(str(error).split())
    except Exception as another:
        return f"its message raises {type(another).__name__}"


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is a KeyboardInterrupt of a signal, as by Ctrl-C.

    A `raise` of the user's own program makes it an exception as any other.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or owner(trace.tb_frame.f_code.co_filename) == "library":
        return True
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] != dis.opmap["RAISE_VARARGS"]


def format_error(error: BaseException) -> str:
    """Return an error's type and message, in one line."""
    message = words_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def is_ours(filename: str) -> bool:
    """Return whether a file belongs to gemmproof, its kernels excepted."""
    return os.path.realpath(filename).startswith(_OURS)


@lru_cache(maxsize=4096)
def owner(filename: str) -> Literal["user", "installed", "library"]:
    """Return the owner of a file: the user, an installed package, or the libraries that run it.

    Those are gemmproof, Python, torch, Triton and the test runner.
    """
    path = os.path.realpath(filename)
    if filename.startswith("<") or path.startswith(_OURS):
        return "library"
    inner = next((path.partition(folder)[2] for folder in _INSTALLED if folder in path), "")
    if inner:
        package = inner.partition(os.sep)[0].removesuffix(".py")
        return "library" if package in _BETWEEN else "installed"
    return "library" if path.startswith(_PYTHON) else "user"


def users_line(lines: Iterable[Line]) -> Where | None:
    """Return the first line of the user's, or else of an installed package; None for neither.

    `lines` are a stack's, the innermost first.
    """
    installed = None
    for frame, line in lines:
        whose = owner(frame.f_code.co_filename)
        if whose != "library":
            where = Where(frame.f_code.co_filename, line, frame.f_code.co_name)
            if whose == "user":
                return where
            installed = installed or where
    return installed


def calling_expression() -> Where:
    """Return the user's innermost line on the stack, with the span of the expression that runs."""
    lines = list(walk_stack(sys._getframe(1)))
    where = users_line(lines) or NOWHERE
    for frame, line in lines:
        code = frame.f_code
        if (code.co_filename, line, code.co_name) == (where.file, where.line, where.function):
            return replace(where, span=_find_span(code, frame.f_lasti))
    return where


# instructions that ask for the truth of a value; some have the place of a whole statement
_DECIDING = ("POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT")


@lru_cache(maxsize=4096)
def _find_span(code: CodeType, offset: int) -> tuple[int, int, int, int] | None:
    """Return the lines and columns of a call's instruction; None for one that decides itself."""
    if dis.opname[code.co_code[offset]].startswith(_DECIDING):
        return None
    first, last, begin, end = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return None
    return first, begin, last, end


def calling_line() -> Where:
    """Return the user's innermost line on the stack; line 0 for none."""
    return users_line(walk_stack(sys._getframe(1))) or NOWHERE


def raising_line(error: BaseException) -> Where | None:
    """Return the user's innermost line in an error's traceback."""
    return users_line(list(walk_tb(error.__traceback__))[::-1])
