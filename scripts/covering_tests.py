"""Records which functions each test calls, also in the processes that it starts or forks.

A plugin of pytest; every other process of the environment runs this file when it starts. A line of
a record is the test, a tab, its seconds, a tab, and functions; the seconds are "failed" where it
did not pass, and "" in other processes.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = "GEMMPROOF_CALLS"  # the environment variable that names the folder of the records
TEST = "GEMMPROOF_CALLS_TEST"  # the variable that names the test
TOOL = 4  # a number that sys.monitoring keeps for no particular tool
OWN = tuple(f"{ROOT}/{folder}/" for folder in ("reference", "properties", "src"))


def shorten(filename: str) -> str:
    """Return the path of a source below the repository; the package has links to two folders."""
    path = filename[len(str(ROOT)) + 1 :]
    for folder in ("reference", "properties"):
        path = path.replace(f"src/gemmproof/{folder}/", f"{folder}/")
    return path


class Recorder:
    """Collects the calls of one test after the other, in the process that runs the tests."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls: set[str] = set()
        self.failed, self.started = False, 0.0

    def add(self, call: str) -> None:
        if os.getpid() == self.process:
            self.calls.add(call)
        else:
            _add_in_other_process(call)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.environ[TEST] = nodeid
        self.calls, self.failed, self.started = set(), False, _cpu_seconds()
        sys.monitoring.restart_events()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        spent = f"{_cpu_seconds() - self.started:.2f}"
        _write(nodeid, "failed" if self.failed else spent, self.calls)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its children."""
    return sum(os.times()[:4])


def _add_in_other_process(call: str) -> None:
    if TEST in os.environ:
        _write(os.environ[TEST], "", {call})


def _write(test: str, seconds: str, calls: set[str]) -> None:
    line = "\t".join([test, seconds, *sorted(calls)]) + "\n"
    with open(Path(os.environ[FOLDER]) / f"{os.getpid()}.tsv", "a") as file:
        file.write(line)


def start(add: Any) -> None:
    """Call `add` for each function of the project when it is first called."""

    def on_start(code: CodeType, offset: int) -> object:
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # not the body of a class or a file
        if is_function and code.co_filename.startswith(OWN):
            add(f"{shorten(code.co_filename)}:{code.co_qualname.replace('<locals>.', '')}")
        return sys.monitoring.DISABLE

    if sys.monitoring.get_tool(TOOL) is None:
        sys.monitoring.use_tool_id(TOOL, "calls")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, on_start)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.PY_START)
    atexit.register(sys.monitoring.set_events, TOOL, 0)  # names of modules are None after that


def pytest_configure(config: Any) -> None:
    if config.option.dist != "no":
        return  # the processes of pytest-xdist run the tests
    recorder = Recorder()
    config.pluginmanager.register(recorder)
    start(recorder.add)


if os.environ.get(FOLDER):
    start(_add_in_other_process)
