"""The standard streams as they are met: closed, on a full disk, or read by nobody any more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from gemmproof.report.text import clean


def open_streams() -> None:
    """Open those that were closed on /dev/null, and let each take any character.

    No other file may get their numbers: a report or a worker would be written to by print.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def write_all(stream: TextIO, text: str) -> str:
    """Write a text to the end; why that failed, or "": a reader that left has seen enough."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # What is left in the buffer would fail again when Python ends, with words of its own.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return ""


def flush_streams() -> None:
    """Write what is left in the buffers, as far as that can be."""
    for stream in (sys.stdout, sys.stderr):
        write_all(stream, "")


def say(line: str) -> None:
    """One line on stderr; where nobody hears it, that is no reason to end."""
    write_all(sys.stderr, f"{clean(line)}\n")
