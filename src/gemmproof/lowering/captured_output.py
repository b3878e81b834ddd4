"""The output that compilers print, captured."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ENOUGH = 300  # characters of a message
_SAID = ".said"
_FATAL = re.compile(r"^(?:LLVM ERROR|fatal error|error): (.*)$", re.MULTILINE)


@contextmanager
def hear(room: Path, gpu: str) -> Iterator[Callable[[], str]]:
    """Within it what the compiler prints, as MLIR and LLVM do, goes to a file; yields its reader.

    The file has a name, so that it tells what a compiler printed that took the process down.
    """
    file = room / f"{gpu}{_SAID}"
    sys.stdout.flush()
    sys.stderr.flush()
    with file.open("wb") as kept:
        before = [os.dup(1), os.dup(2)]
        os.dup2(kept.fileno(), 1)
        os.dup2(kept.fileno(), 2)

        def read() -> str:
            sys.stdout.flush()
            sys.stderr.flush()
            return file.read_text(errors="replace")

        try:
            yield read
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(before, 1):
                os.dup2(copy, number)
                os.close(copy)


def find_last_words(room: Path, gpu: str) -> str:
    """What a compiler that took its process down said is wrong, "" for nothing."""
    file = room / f"{gpu}{_SAID}"
    found = _FATAL.findall(file.read_text(errors="replace")) if file.is_file() else []
    return " ".join(found[-1].split())[:ENOUGH] if found else ""
