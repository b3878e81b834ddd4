"""The lines of the user's code that run in a call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from gemmproof.reference.provenance import owner

Lines = dict[CodeType, set[int]]
_recording: list[Any] = []  # the tracers of the contexts


@contextmanager
def record_lines(lines: Lines) -> Iterator[None]:
    """Add the lines of the user's code that run within; not under a debugger or a coverage tool."""

    def begin(frame: FrameType, event: str, value: Any) -> Any:
        if owner(frame.f_code.co_filename) == "library":
            return None
        own = lines.setdefault(frame.f_code, set())

        def step(frame: FrameType, event: str, value: Any) -> Any:
            own.add(frame.f_lineno)
            return step

        return step

    if sys.gettrace() is not None:
        yield
        return
    _recording.append(begin)
    sys.settrace(begin)
    try:
        yield
    finally:
        sys.settrace(None)
        _recording.pop()


@contextmanager
def without_recording() -> Iterator[None]:
    """Record no lines within: it is fast again."""
    tracer = sys.gettrace()
    if tracer is None or tracer not in _recording:
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
