"""The command as a separate process, with the engine that only calls kernels."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gemmproof.worker.processes import _numbers, environment

SUPPORT = Path(__file__).parents[1] / "support"
SOURCE = SUPPORT.parents[1] / "src"
COMMAND = (
    "import sys; from gemmproof.worker import entry_points;"
    "entry_points.ENGINE = 'fake_engine:check';"
    "from gemmproof import terminal; terminal.EVERY = 3600.0;"
    "from gemmproof.cli import main; sys.exit(main())"
)


def start(folder, *args, shell='exec "$@"', **options):
    """Start the command in its own process group, in `folder`; `shell` may redirect its streams.

    Files that it and its workers leave are in the folder's `temporary`.
    """
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    path = os.pathsep.join(map(str, (SOURCE, SUPPORT)))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        ["bash", "-c", shell, "bash", sys.executable, "-c", COMMAND, *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
        start_new_session=True,
        preexec_fn=heed_signals,  # tests may run in the background, where signals are ignored
        **{**streams, **options},
    )


def heed_signals():
    """Let signals end a process again."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def run(folder, *args, seconds=120, **options):
    """Run the command; return its exit code, stdout and stderr."""
    return finish(start(folder, *args, **options), seconds)


def finish(process, seconds=120):
    """Return exit code, stdout and stderr of a started command; kill it if it exceeds the time."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def wait_for(condition, seconds=60):
    """Wait until a condition is true; return its last value."""
    until = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return met


def find_left(folder):
    """Return the files and processes that the command left, after a delay for processes to end."""
    temporary = str(folder / "temporary")
    mark = f"TMPDIR={temporary}".encode()

    def list_left():
        return [number for number in _numbers() if mark in environment(number)]

    wait_for(lambda: not list_left(), seconds=10)
    return os.listdir(temporary), list_left()
