"""Linux's processes: what memory they hold, whose they are, with whom they end."""

from __future__ import annotations

import contextlib
import ctypes
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
    return sum(resident(pid) for pid in _numbers() if _group(pid) == group)


def kill_marked(token: str) -> None:
    """Kill every process whose environment began with MARK=token."""
    mark = f"{MARK}={token}".encode()
    for _ in range(3):  # one of them may start another while we look
        marked = [pid for pid in _numbers() if mark in environment(pid)]
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return


def die_with_parent() -> None:
    """Have Linux kill this process when the one that started it dies; elsewhere do nothing."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # If memory runs out, this process shall be taken rather than any other.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _numbers() -> list[int]:
    proc = Path("/proc")
    return [int(p.name) for p in proc.iterdir() if p.name.isdigit()] if proc.is_dir() else []


def _group(pid: int) -> int | None:
    try:
        # The name, in parentheses, may hold anything; after it stand state, parent and group.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[2])
    except OSError:
        return None


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def environment(pid: int) -> bytes:
    """The environment that a process began with (nothing where it cannot be read)."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
