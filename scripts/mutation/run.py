"""Plants one fault after the other in copies of the repository, and runs the tests that call it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from scripts.mutation.sites import Fault, plant

SECONDS = 60.0  # CPU seconds of the tests that are picked for a fault, when they were recorded
LATE = 600  # seconds after which a fault that makes tests hang is noticed
NOTICED, MISSED, NEVER_CALLED, GONE = "noticed", "missed", "never called", "gone"


class Calls:
    """The functions that each test calls, as recorded by calls.py."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.tests: dict[str, set[str]] = defaultdict(set)
        failed: set[str] = set()
        for file in sorted(folder.glob("*.tsv")):
            for line in file.read_text().splitlines():
                test, seconds, *calls = line.split("\t")
                if seconds == "failed":
                    failed.add(test)
                elif seconds:
                    self.seconds[test] = float(seconds)
                for call in calls:
                    self.tests[call].add(test)
        for test in failed:
            self.seconds.pop(test, None)

    def pick(self, fault: Fault) -> list[str]:
        """Return the tests that call the function around a fault, the fastest first.

        Where none calls it, or the fault is outside of functions: those that call the file.
        """
        call = f"{fault.path}:{fault.function}"
        own = [name for name in self.tests if name.startswith(f"{fault.path}:")]
        calls = [call] if call in self.tests else own
        tests = {test for call in calls for test in self.tests[call]} & self.seconds.keys()
        picked, spent = [], 0.0
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            spent += self.seconds[test]
            if spent > SECONDS and picked:
                break
            picked.append(test)
        return picked


def list_tests(root: Path) -> set[str]:
    """Return the tests of both lanes, as pytest names them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--full"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    process = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    return set(process.stdout.splitlines())


def try_all(
    root: Path, faults: Iterable[Fault], calls: Calls, copies: Path, processes: int
) -> Iterator[tuple[Fault, str]]:
    """Yield the test outcome of each fault; each process has a copy of the repository."""
    free: SimpleQueue[Path] = SimpleQueue()
    for number in range(processes):
        free.put(_copy(root, copies / str(number)))

    def attempt(fault: Fault) -> tuple[Fault, str]:
        copy = free.get()
        try:
            return fault, _attempt(copy, fault, calls.pick(fault))
        finally:
            free.put(copy)

    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(attempt, faults)


def _copy(root: Path, copy: Path) -> Path:
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=root, text=True)
    for name in filter(None, names.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name, follow_symlinks=False)
    return copy


def _attempt(copy: Path, fault: Fault, tests: list[str]) -> str:
    planted = plant(copy, fault)
    if planted is None:
        return GONE
    if not tests:
        return NEVER_CALLED
    file = copy / fault.path
    source = file.read_text()
    file.write_text(planted)
    listed = copy / "tests.txt"
    listed.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--full", "--timeout", "120"]
    # Python identifies compiled files by seconds and size, which a fault need not change
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy / "src")}
    process = subprocess.Popen(
        [*command, "-p", "no:cacheprovider", f"@{listed}"], cwd=copy, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        status = process.wait(LATE)
    except subprocess.TimeoutExpired:
        status = 1
    finally:
        _end_group(process)
        file.write_text(source)
    return NOTICED if status else MISSED


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
