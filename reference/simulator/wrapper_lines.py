"""The lines of the user's code that run in a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from gemmproof.reference.provenance import HIDDEN_TRACERS, find_tracer, owner, show_tracer

Lines = dict[CodeType, set[int]]
_recording: list[Any] = []  # tracers that record lines


@contextmanager
def trace_calls(begin: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Have `begin` called for each frame that begins within, which `sys.gettrace` does not show."""
    before, shown = find_tracer(), sys.gettrace
    HIDDEN_TRACERS.append(begin)
    sys.gettrace = show_tracer
    sys.settrace(begin)
    try:
        yield
    finally:
        sys.settrace(before)
        sys.gettrace = shown
        HIDDEN_TRACERS.pop()


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

    if find_tracer() is not None:
        yield
        return
    _recording.append(begin)
    try:
        with trace_calls(begin):
            yield
    finally:
        _recording.pop()


@contextmanager
def without_recording() -> Iterator[None]:
    """Record no lines within: it is fast again."""
    tracer = find_tracer()
    if tracer is None or tracer not in _recording:
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
