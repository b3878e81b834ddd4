"""Whose code is this? The user's line in a stack or a traceback.

The kernels of this repository are judged like anybody's, so their lines are the user's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Literal

from gemmproof.reference.observation import NOWHERE, Where

Line = tuple[FrameType, int]

# Packages between us and a wrapper; any other installed package may be the target itself.
_BETWEEN = ("_pytest", "hypothesis", "numpy", "pluggy", "pytest", "torch", "triton")


# the links of an editable installation lead to the folders beside it
_OURS = tuple(
    os.path.join(path.resolve(), "") if path.is_dir() else str(path.resolve())
    for path in Path(__file__).parent.parent.iterdir()
    if path.name != "kernels"
)
_PYTHON = os.path.join(os.path.dirname(os.path.realpath(os.__file__)), "")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def words_of(error: BaseException) -> str:
    """What an error says, in one line; that its message raises, where it does."""
    try:
        return " ".join(str(error).split())
    except Exception as another:
        return f"its message raises {type(another).__name__}"


def tell_error(error: BaseException) -> str:
    """An error's type and what it says, in one line."""
    words = words_of(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def is_ours(filename: str) -> bool:
    """Whether a file belongs to gemmproof, its kernels excepted."""
    return os.path.realpath(filename).startswith(_OURS)


@lru_cache(maxsize=4096)
def owner(filename: str) -> Literal["user", "installed", "library"]:
    """Whose a file is: the user's, of an installed package, or of what runs it.

    What runs it is gemmproof, Python, torch, Triton and the test runner.
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
    """The first line of the user's, or else of an installed package; None for neither.

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


def calling_line() -> Where:
    """The user's innermost line on the stack; line 0 for none."""
    return users_line(walk_stack(sys._getframe(1))) or NOWHERE


def raising_line(error: BaseException) -> Where | None:
    """The user's innermost line in an error's traceback."""
    return users_line(list(walk_tb(error.__traceback__))[::-1])
