"""Linux's table of processes: the memory of a group, and those that bear a mark."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

# An environment variable: forked and executed processes inherit it, whatever group they join.
MARK = "GEMMPROOF_WORKER"


def available_memory() -> int:
    """Bytes that can be used without swapping (without end where there is no /proc)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return sys.maxsize


def memory_of_group(group: int) -> int:
    """Bytes of memory that the processes of the group hold (0 where there is no /proc)."""
    return sum(_resident(pid) for pid in _numbers() if _group(pid) == group)


def kill_marked(token: str) -> None:
    """Kill every process whose environment began with MARK=token."""
    mark = f"{MARK}={token}".encode()
    for _ in range(3):  # one of them may start another while we look
        marked = [pid for pid in _numbers() if mark in _environment(pid)]
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return


def _numbers() -> list[int]:
    proc = Path("/proc")
    return [int(p.name) for p in proc.iterdir() if p.name.isdigit()] if proc.is_dir() else []


def _group(pid: int) -> int | None:
    try:
        # The name, in parentheses, may hold anything; after it stand state, parent and group.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return None


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
