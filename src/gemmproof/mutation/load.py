"""A mutant in place of the file that it was made of, for whatever imports that file later on."""

from __future__ import annotations

import linecache
import os
from importlib.machinery import SourceFileLoader
from types import CodeType


def replace_source(path: str, text: str) -> None:
    """From now on this process imports `text` where it imports the file at `path`.

    The module keeps its name, its package and its place, so relative imports find its neighbours;
    inspect, and Triton through it, read the same text, which no line of a report is moved by. For
    workers only: it holds to the end of the process.
    """
    place = os.path.realpath(path)
    compile_file = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(loader.path) != place:
            return compile_file(loader, name)
        # without a time of change it is never read again from the disk
        lines = text.splitlines(keepends=True)
        linecache.cache[loader.path] = (len(text), None, lines, loader.path)
        return compile(text, loader.path, "exec", dont_inherit=True)  # no bytecode of the original

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
