"""The output that compilers print, captured."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ENOUGH = 300  # characters of a message
_SUFFIX = ".said"
_FATAL = re.compile(r"^(?:LLVM ERROR|fatal error|error): (.*)$", re.MULTILINE)


@contextmanager
def hear(workdir: Path, gpu: str) -> Iterator[Callable[[], str]]:
    """Redirect the output of compilers, such as MLIR and LLVM, to a file; yield its reader.

    The file has a name, so that the output survives a compiler that kills the process.
    """
    file = workdir / f"{gpu}{_SUFFIX}"
    sys.stdout.flush()
    sys.stderr.flush()
    with file.open("wb") as output:
        before = [os.dup(1), os.dup(2)]
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)

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


def find_last_words(workdir: Path, gpu: str) -> str:
    """Return the last error of a compiler that killed its process, "" if there is none."""
    file = workdir / f"{gpu}{_SUFFIX}"
    errors = _FATAL.findall(file.read_text(errors="replace")) if file.is_file() else []
    return " ".join(errors[-1].split())[:ENOUGH] if errors else ""
