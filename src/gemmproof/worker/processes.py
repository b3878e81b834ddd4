"""Linux's processes: what memory they hold, whose they are, with whom they end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# An environment variable: forked and executed processes inherit it, whatever group they join.
MARK = "GEMMPROOF_WORKER"


def available_memory() -> int:
    """Bytes that can be used without swapping, or leave of the containers around this process.

    Without end where there is no /proc.
    """
    free = sys.maxsize
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
    return min([free, *_room_in_containers()])


# A container's limit and use, and the part of its use that Linux takes back: cgroups 2 and 1.
_CGROUPS = (
    ("0::", "", "memory.max", "memory.current", "inactive_file"),
    (":memory:", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _room_in_containers(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[int]:
    """Bytes that each memory limit around this process leaves."""
    found = []
    lines = own.read_text().splitlines() if own.is_file() else []
    for mark, folder, limit, used, idle in _CGROUPS:
        for line in (line for line in lines if mark in line):
            # within a container the path may be the host's: then the limit lies at the root
            path = root / folder / line.partition(mark)[2].lstrip("/")
            for place in (path, *path.parents):
                with contextlib.suppress(OSError, ValueError):
                    stat = (place / "memory.stat").read_text().split()
                    held = int((place / used).read_text()) - int(stat[stat.index(idle) + 1])
                    found.append(int((place / limit).read_text()) - held)
                if place == root:
                    break
    return found


def group_of(group: int) -> list[int]:
    """The processes of a group (none where there is no /proc)."""
    return [pid for pid in _numbers() if _group(pid) == group]


def memory_of_group(group: int) -> int:
    """Bytes of memory that the processes of the group hold (0 where there is no /proc)."""
    return sum(map(resident, group_of(group)))


@dataclass(frozen=True, slots=True)
class Look:
    """What processes have used of CPUs, in seconds, and whether one of them waits for more.

    `is_busy`: a thread runs or could, waits for a disk, or was stopped.
    """

    cpu: float
    is_busy: bool


def look_at(pids: Iterable[int]) -> Look | None:
    """A look at every thread of some processes; None where there is no /proc."""
    if not Path("/proc").is_dir():
        return None
    ticks, busy = 0, False
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    facts = (thread / "stat").read_text().rpartition(")")[2].split()
                    ticks += int(facts[11]) + int(facts[12])
                    busy |= facts[0] in "RDTt"
    return Look(ticks / os.sysconf("SC_CLK_TCK"), busy)


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
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)  # many times faster than to read /proc/<pid>/stat
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
