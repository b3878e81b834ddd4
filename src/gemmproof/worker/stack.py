"""What the Python stack of a worker says: the target's line, and whose code was running.

faulthandler writes it, the innermost frame first, in a worker that does not answer otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gemmproof.reference.provenance import is_ours, owner

# Code of ours that stands between the target and torch: what it calls was called by the target.
_HOOKS = ("reference/fake_cuda/", "reference/simulator/call.py", "gemmproof/fake_device.py")


def find_line(stack: Path) -> tuple[str, str] | None:
    """The line of the innermost frame of the target, and the path of its file.

    It is the user's, or else an installed package's.
    """
    installed = None
    for name, line in _frames(stack):
        if (whose := owner(name)) != "library":
            where = f"{os.path.basename(name)}:{line}", name
            if whose == "user":
                return where
            installed = installed or where
    return installed


def find_own_line(stack: Path) -> str | None:
    """The line of gemmproof's own that was running, None where the target was, or its libraries."""
    for name, line in _frames(stack):
        if owner(name) != "library":
            return None
        if is_ours(name) and not any(hook in os.path.realpath(name) for hook in _HOOKS):
            return f"{os.path.basename(name)}:{line}"
    return None


def _frames(stack: Path) -> Iterator[tuple[str, str]]:
    for text in stack.read_text(errors="replace").splitlines():
        head, quote, rest = text.partition('"')
        name, quote, place = rest.partition('", line ')
        if head.strip() == "File" and quote:
            yield name, place.split()[0]
