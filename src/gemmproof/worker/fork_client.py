"""The supervisor's side of a process that imports once what its forks, the workers, need."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

from gemmproof.worker import protocol
from gemmproof.worker.fork_server import MARK_LENGTH, MESSAGE, NUMBER, READY
from gemmproof.worker.processes import MARK, memory_of_group

SECONDS = 60.0  # for the server to import what it shall, and for it to answer
TICK = 0.05  # seconds between two looks at it
OWN = (MARK, "TRITON_INTERPRET")  # variables that are the server's or a worker's own


class Lost(Exception):
    """The server does not answer."""


class ForkedWorker:
    """A worker that the server forked, with what a Popen has of it: pid, stdout, its end.

    `lost` tells that the server died, and the worker with it, for no reason of the worker's.
    """

    def __init__(self, line: socket.socket, output: int) -> None:
        self.stdout: IO[bytes] | None = os.fdopen(output, "rb", 0)
        self.returncode: int | None = None
        self.lost = False
        self._line = line
        line.settimeout(SECONDS)
        self.pid = self._number()
        line.setblocking(False)

    def _number(self) -> int:
        try:
            told = self._line.recv(NUMBER.size, socket.MSG_WAITALL)
        except OSError:
            told = b""
        if len(told) < NUMBER.size:
            self.close()
            raise Lost
        return int(NUMBER.unpack(told)[0])

    def poll(self) -> int | None:
        """The exit status as Popen gives it, None while the worker runs."""
        if self.returncode is None:
            try:
                told = self._line.recv(NUMBER.size)
            except BlockingIOError:
                return None
            except OSError:
                told = b""
            self.lost = len(told) < NUMBER.size
            self.returncode = -signal.SIGKILL if self.lost else int(NUMBER.unpack(told)[0])
        return self.returncode

    def wait(self) -> int:
        """Wait for the end, then let the server forget the worker."""
        if self.returncode is None:
            select.select([self._line], [], [])
            self.poll()
        self._line.close()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send the worker a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def close(self) -> None:
        """Let go of a worker that never was."""
        self._line.close()
        if self.stdout is not None:
            self.stdout.close()


class ForkServer:
    """The server as its supervisor sees it; `fork` may be called from any thread."""

    def __init__(self, root: str, conftest: str | None, memory: int) -> None:
        """Start it and wait until it has imported the engine and the conftest. Raises Lost.

        It dies with the thread that starts it. `memory`: how many bytes it may hold meanwhile.
        """
        self._lock = threading.Lock()
        self._environment = dict(os.environ)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # what the first worker would import: the simulator brings torch and Triton
        modules = ("gemmproof.worker.serve", protocol.ENGINE.partition(":")[0])
        start = (
            f"import sys; sys.path.insert(0, {root!r}); import gemmproof; del sys.path[0];"
            "from gemmproof.worker.fork_server import main;"
            f"main({theirs.fileno()}, {modules!r}, {conftest!r})"
        )
        token = os.urandom(MARK_LENGTH // 2).hex()
        # One thread, or forking is not safe: OpenBLAS starts its own when numpy is imported.
        env = {**os.environ, MARK: token, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        env |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        env.pop("TRITON_INTERPRET", None)  # it would replace the very decorator that we run
        nothing = subprocess.DEVNULL
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", start],
                env=env, stdin=nothing, stdout=nothing, stderr=nothing,
                start_new_session=True, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        try:
            ready = self._becomes_ready(memory)
        except BaseException:  # interrupted
            self.close()
            raise
        if not ready:
            self.close()
            raise Lost
        self._control.settimeout(SECONDS)

    def _becomes_ready(self, memory: int) -> bool:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and memory_of_group(self.process.pid) <= memory:
            if select.select([self._control], [], [], TICK)[0]:
                return self._control.recv(len(READY)) == READY
        return False

    def fork(self, folder: str, token: str) -> ForkedWorker:
        """Fork a worker that serves the request in `folder`. Raises Lost.

        It has the folder and the environment that this process has now, as a spawned one would.
        """
        message = json.dumps([folder, token, os.getcwd(), self._find_changes()]).encode()
        if len(message) > MESSAGE:
            raise Lost
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._control, [message], [theirs.fileno(), write])
        except OSError:
            ours.close()
            os.close(read)
            raise Lost from None
        finally:
            theirs.close()
            os.close(write)
        return ForkedWorker(ours, read)

    def _find_changes(self) -> dict[str, str | None]:
        """Return what changed in the environment since the server started, None for what went."""
        before, now = self._environment, dict(os.environ)
        names = [n for n in {**before, **now} if n not in OWN and before.get(n) != now.get(n)]
        return {name: now.get(name) for name in names}

    def close(self) -> None:
        """End the server; its workers die with it."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


_server: ForkServer | None = None


def find_server() -> ForkServer | None:
    """The server that workers are to be forked from, if there is one."""
    return _server


@contextlib.contextmanager
def preload(root: str, conftest: str | None, memory: int) -> Iterator[None]:
    """Within it workers are forked from a process that has imported the engine and `conftest`.

    A conftest that crashes, hangs or starts threads is left to the workers, which say so. Where no
    such process can be started, workers are started one by one.
    """
    global _server
    _server = None
    for preloaded in dict.fromkeys([conftest, None]):
        with contextlib.suppress(Lost, OSError):
            _server = ForkServer(root, preloaded, memory)
            break
    try:
        yield
    finally:
        server, _server = _server, None
        if server is not None:
            server.close()
