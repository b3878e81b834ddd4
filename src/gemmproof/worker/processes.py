"""Linux processes: the memory they hold, their owners, and their death with their parents."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

# An environment variable: forked and executed processes inherit it, in any process group.
MARK = "GEMMPROOF_WORKER"


def available_memory() -> int:
    """Return the bytes usable without swapping, within the limits of enclosing containers.

    Unlimited if there is no /proc.
    """
    free = sys.maxsize
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
    return min([free, *_room_in_containers()])


# A container's limit and use, and the part of its use that Linux can reclaim: cgroups 2 and 1.
_CGROUPS = (
    ("0::", "", "memory.max", "memory.current", "inactive_file"),
    (":memory:", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _room_in_containers(
    own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> list[int]:
    """Return the bytes that each memory limit around this process leaves."""
    leaves = []
    lines = own.read_text().splitlines() if own.is_file() else []
    for mark, folder, limit, used, idle in _CGROUPS:
        for line in (line for line in lines if mark in line):
            # within a container the path may be the host's: then the limit is at the root
            path = root / folder / line.partition(mark)[2].lstrip("/")
            for parent in (path, *path.parents):
                with contextlib.suppress(OSError, ValueError):
                    stat = (parent / "memory.stat").read_text().split()
                    held = int((parent / used).read_text()) - int(stat[stat.index(idle) + 1])
                    leaves.append(int((parent / limit).read_text()) - held)
                if parent == root:
                    break
    return leaves


def group_of(group: int) -> list[int]:
    """Return the processes of a group (none if there is no /proc)."""
    return [pid for pid in _numbers() if _group(pid) == group]


def memory_of_group(group: int) -> int:
    """Return the bytes of memory that a group's processes hold (0 if there is no /proc)."""
    return sum(map(resident, group_of(group)))


@dataclass(frozen=True, slots=True)
class Look:
    """The CPU time that processes have used, in seconds, and whether one of them waits for more.

    `is_busy`: a thread runs or could, waits for a disk, or was stopped.
    """

    cpu: float
    is_busy: bool


def look_at(pids: Iterable[int]) -> Look | None:
    """Return a sample of every thread of some processes, or None if there is no /proc."""
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
    for _ in range(3):  # one of them may start another during the scan
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
        # If memory runs out, Linux should kill this process rather than any other.
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
    """Return the bytes of memory that a process holds."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def environment(pid: int) -> bytes:
    """Return the environment that a process began with (empty if it cannot be read)."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def format_signal(number: int) -> str:
    """Return the name of a signal, such as SIGSEGV."""
    return {s.value: s.name for s in signal.Signals}.get(number, f"signal {number}")


# -- clock ---------------------------------------------------------------------------------------
LONGEST = 0.1  # seconds between two samples, during all of which a sleeper is assumed to sleep


class Clock:
    """Counts the seconds in which processes worked or slept.

    CPU time counts, up to the elapsed time. A process that sleeps waits for nothing that the
    machine owes it: then the elapsed time counts. One that is ready but gets no CPU, waits for a
    disk, or was stopped, spends nothing.
    """

    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._looked = time.monotonic()
        self._cpu = 0.0

    def advance(self, waits_for_us: bool = False) -> float:
        """Return the seconds since the last call that count: only CPU time if one waits for us."""
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        seen = look_at(self._processes())
        if seen is None:  # no /proc here
            return passed
        worked, self._cpu = seen.cpu - self._cpu, seen.cpu
        counts = min(passed, max(0.0, worked))
        return counts if seen.is_busy or waits_for_us else max(counts, min(passed, LONGEST))
