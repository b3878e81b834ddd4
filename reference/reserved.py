"""Addresses without memory: a page is committed when it is first written."""

from __future__ import annotations

import mmap
import platform
import sys

# Python names the flag from 3.13 on; these are the machines on which Linux gives it this number
_GENERIC = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if _GENERIC else 0)

MOST_FILLED = 2**28  # bytes of an operand of a sampled call; of a larger one no element is known


def reserve(nbytes: int) -> mmap.mmap:
    """Zeros at addresses of their own. Raises OSError where the system has not so many."""
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
