"""The recorded verdicts of all kernels: no code change may alter one unnoticed.

A record holds the verdict on every kernel of the corpora, of kernels/ and of docs/examples (the
exit status, each property, each finding, each limit) and the answers of a few commands.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = map(str, (ROOT, ROOT / "src"))

from scripts.command import run
from scripts.verdicts import record_files as files
from scripts.verdicts.subjects import (
    CASES,
    SEED,
    Subject,
    list_subjects,
    pick_subset,
    preload,
    record_subject,
)

RECORD = ROOT / "tests" / "verdicts" / "record"
PROCESSES = 2


def record(
    out: Path | None = None, only: str = "", subset: bool = False, processes: int = PROCESSES,
    verbose: bool = False,
) -> int:  # fmt: skip
    """Record the verdicts of today, in tests/verdicts/record or in the folder --out.

    --only takes the subjects whose key contains a text, --subset the kernels of the full test
    lane; then --out is needed. --verbose prints on stderr the time of each subject.
    """
    if (only or subset) and out is None:
        print("record: got --only or --subset without --out, expected a folder", file=sys.stderr)
        return 2
    subjects = list_subjects()
    picked = (
        pick_subset(subject.key for subject in subjects)
        if subset
        else {subject.key for subject in subjects}
    )
    subjects = [subject for subject in subjects if subject.key in picked and only in subject.key]
    total = 0.0

    def report(key: str, seconds: float) -> None:
        nonlocal total
        total += seconds
        if verbose:
            print(f"{key}: {seconds:.1f} s", file=sys.stderr, flush=True)

    preload()
    records = record_all(subjects, record_subject, processes, report)
    files.write(out or RECORD, records, {"cases of each format": CASES, "seed": SEED})
    print(f"{len(records)} subjects recorded in {total:.0f} s of CPU time", file=sys.stderr)
    return 0


def compare(
    old: Path | None = None, new: Path | None = None, only: str = "", subset: bool = False,
    processes: int = PROCESSES,
) -> int:  # fmt: skip
    """Print a line for each difference to the record, and exit with 1 if there is any.

    The verdicts of today are compared, or the record in the folder --new; with that of
    tests/verdicts/record, or of the folder --old. --only and --subset are those of `record`.
    """
    if new is None:
        with tempfile.TemporaryDirectory() as folder:
            record(Path(folder), only, subset, processes)
            return compare(old, Path(folder), only, subset)
    try:
        (before, settings), (after, others) = files.read(old or RECORD), files.read(new)
    except files.Unreadable as reason:
        print(reason)
        return 1
    if settings != others:
        print(f"settings: got {others}, expected {settings}")
        return 1
    keys = {*before, *after}
    if subset:
        keys = pick_subset(keys)
    lines = list(files.iter_differences(before, after, {key for key in keys if only in key}))
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(lines))


# -- a process for each subject, forked from one that is warm --------------------------------------
HANG = 1800.0  # seconds after which a process is ended: no verdict depends on it
# one thread, or forking is not safe; strings are hashed, and lines are broken, the same each time
ENVIRONMENT = {
    "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1",
}  # fmt: skip
_JOBS = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR")


def settle_environment() -> None:
    """Start this process again with an environment that changes no verdict, if it has another."""
    environment = {name: x for name, x in os.environ.items() if name not in _JOBS} | ENVIRONMENT
    if dict(os.environ) != environment:
        os.execve(sys.executable, [*sys.orig_argv], environment)


@dataclass(slots=True)
class _Child:
    """A process that records one subject, and what it has written so far."""

    subject: Subject
    pid: int
    pipe: int
    until: float
    written: bytes = b""


def record_all(
    subjects: Sequence[Subject],
    make: Callable[[Subject], dict[str, object]],
    processes: int,
    report: Callable[[str, float], None] = lambda key, seconds: None,
) -> dict[str, object]:
    """Return the record of each subject, by key, in the order of the subjects.

    `report` is called for each finished subject, with the CPU seconds that it took.
    """
    done = dict(_iter_records(subjects, make, processes, report))
    return {subject.key: done[subject.key] for subject in subjects}


def _iter_records(
    subjects: Sequence[Subject], make: Callable[[Subject], dict[str, object]], processes: int,
    report: Callable[[str, float], None],
) -> Iterator[tuple[str, Any]]:  # fmt: skip
    waiting, running = list(reversed(subjects)), dict[int, _Child]()
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                child = _start(waiting.pop(), make)
                running[child.pipe] = child
            for pipe in select.select([*running], [], [], 1.0)[0]:
                chunk = os.read(pipe, 1 << 16)
                running[pipe].written += chunk
                if not chunk:
                    yield _finish(running.pop(pipe), report)
            for child in running.values():
                if time.monotonic() > child.until:
                    os.killpg(child.pid, signal.SIGKILL)  # its pipe ends with it
    finally:
        for child in running.values():
            os.killpg(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def _start(subject: Subject, make: Callable[[Subject], dict[str, object]]) -> _Child:
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(write)
        return _Child(subject, pid, read, time.monotonic() + HANG)
    status = 1
    try:
        os.setpgid(0, 0)
        os.close(read)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        try:
            record = make(subject)
        except BaseException as error:
            record = {"raised": f"{type(error).__name__}: {error}"}
        with os.fdopen(write, "wb") as file:
            file.write(json.dumps(record).encode())
        status = 0
    finally:
        os._exit(status)


def _finish(child: _Child, report: Callable[[str, float], None]) -> tuple[str, Any]:
    os.close(child.pipe)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _, status = os.waitpid(child.pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    report(child.subject.key, seconds)
    if status:
        ended = os.waitstatus_to_exitcode(status)
        how = signal.Signals(-ended).name if ended < 0 else f"exit status {ended}"
        return child.subject.key, {"died": how}
    return child.subject.key, json.loads(child.written)


COMMANDS = {"record": record, "compare": compare}

if __name__ == "__main__":
    settle_environment()
    sys.exit(run(__doc__, COMMANDS))
