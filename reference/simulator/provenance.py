"""Whose code is this frame? The line of the user's wrapper that is running."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import triton

from gemmproof.reference.observation import NOWHERE, Where

_OURS = str(Path(__file__).parent.parent)
_TRITON = str(Path(triton.__file__).parent)


def calling_line() -> Where:
    """The innermost line that is neither Triton's, torch's nor ours; line 0 for none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _is_library(code.co_filename):
            return Where(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return NOWHERE


def _is_library(file: str) -> bool:
    inside = ("/torch/", "/contextlib.py", "/unittest/mock.py")
    return file.startswith((_OURS, _TRITON, "<")) or any(part in file for part in inside)
