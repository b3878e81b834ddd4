"""The appearance of a worker to the code in it: the user's program, not gemmproof's.

The stack and `sys.modules` cannot be hidden: engine/checker_reads.py reports who looks there.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gemmproof.worker.processes import MARK

# the variables that workers have values of their own for
OWN_VARIABLES = (
    *("PYTHONHASHSEED", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    MARK,
)
TEST_VARIABLES = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")  # of a test that starts a worker


def show_variables(variables: Mapping[str, str | None]) -> None:
    """Have os.environ show these values, and nothing of a test.

    The process itself keeps its own values: libraries that are not written in Python read them, and
    processes that it starts inherit the mark by which they are found.
    """
    shown = os.environ._data  # type: ignore[attr-defined]
    hidden = {name: None for name in os.environ if name in TEST_VARIABLES}
    for name, value in {**variables, **hidden}.items():
        key = os.environ.encodekey(name)
        if value is None:
            shown.pop(key, None)
        else:
            shown[key] = os.environ.encodevalue(value)


def show_program(path: str) -> None:
    """Have this process look like `python path`, to itself and to tools that list processes."""
    sys.argv = [path]
    sys.orig_argv = [sys.executable, path]
    with suppress(OSError, ValueError, IndexError):
        numbers = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(numbers[45]), int(numbers[46])  # arg_start, arg_end
        text = b"\0".join(map(os.fsencode, sys.orig_argv))[: end - start - 1]
        if 0 < start < end:
            ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
