"""A process that forks workers, and its client."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO

from gemmproof.worker import protocol
from gemmproof.worker.processes import MARK, die_with_parent, environment, memory_of_group

# -- fork server ---------------------------------------------------------------------------------
READY = b"r"
NUMBER = struct.Struct("!i")  # what is told of a worker: its number, later its exit status
MESSAGE = 1 << 16  # bytes that a request takes at most
MARK_LENGTH = 32  # characters of every token: a worker writes its own over the server's


def main(control: int, modules: tuple[str, ...], conftest: str | None) -> None:
    """Import what is named, report ready, then fork a worker for each request until none comes.

    Ends without a word where an import started threads: a fork would not have them.
    """
    die_with_parent()
    with contextlib.suppress(ImportError):  # the worker that needs it says what is missing
        for name in modules:
            import_module(name)
        if conftest is not None:
            from gemmproof.worker.serve import load_registered

            load_registered(conftest)
    place = _mark_place()
    if _threads() == 1 and place:
        gc.collect()
        gc.freeze()
        line = socket.socket(fileno=control)
        line.send(READY)
        _Server(line, place, conftest is not None).serve()
    os._exit(0)


class _Server:
    """The loop: requests come on `control`; `workers` has the line to each one's supervisor."""

    def __init__(self, control: socket.socket, place: int, has_target: bool) -> None:
        self.control = control
        self.has_target = has_target
        self.place = place
        self.workers: dict[int, socket.socket] = {}
        self.told: set[int] = set()
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)
        self.woken, wakes = socket.socketpair()
        self.wakes = wakes
        for end in (self.woken, wakes):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        self.selector.register(self.woken, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.control:
                    if not self._take():
                        return
                elif key.fileobj is self.woken:
                    with contextlib.suppress(BlockingIOError):
                        self.woken.recv(4096)
                    self._describe_ended()
                else:
                    self._forget(key.data)

    def _take(self) -> bool:
        """Fork for the next request; False when there will be none."""
        message, passed, _, _ = socket.recv_fds(self.control, MESSAGE, 2)
        if not message:
            return False
        line, output = passed
        pid = os.fork()
        if pid == 0:
            self._become_worker(line, output, *json.loads(message))
        os.close(output)
        self.workers[pid] = socket.socket(fileno=line)
        self.selector.register(self.workers[pid], selectors.EVENT_READ, pid)
        return True

    def _become_worker(
        self,
        line: int,
        output: int,
        folder: str,
        token: str,
        cwd: str,
        changes: dict[str, str | None],
    ) -> None:
        """What the child does; never returns."""
        server = os.getppid()
        try:
            os.setsid()
            die_with_parent()
            if os.getppid() != server:
                return
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.selector.close()
            for other in (self.control, self.woken, self.wakes, *self.workers.values()):
                other.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            ctypes.memmove(self.place, token.encode(), MARK_LENGTH)
            os.environ[MARK] = token
            _change_place(cwd, changes)
            os.write(line, NUMBER.pack(os.getpid()))
            os.close(line)
            from gemmproof.worker import serve

            if not self.has_target:  # a file may have changed since, unseen
                serve.STARTED = time.time()
            serve.main(folder)
        finally:
            os._exit(1)

    def _describe_ended(self) -> None:
        """Tell the status of the workers that have ended, and leave them as zombies."""
        for pid in self.workers.keys() - self.told:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                died = ended.si_code != os.CLD_EXITED
                status = -ended.si_status if died else ended.si_status
                with contextlib.suppress(OSError):
                    self.workers[pid].send(NUMBER.pack(status))
                self.told.add(pid)

    def _forget(self, pid: int) -> None:
        """The supervisor is done with a worker, or has died."""
        line = self.workers.pop(pid)
        self.told.discard(pid)
        self.selector.unregister(line)
        line.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _change_place(cwd: str, changes: dict[str, str | None]) -> None:
    """Enter a folder and change variables, with what Python made of them when it started."""
    before = _split_path(os.environ.get("PYTHONPATH"))
    os.chdir(cwd)
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if "PYTHONPATH" in changes:
        others = [entry for entry in sys.path if entry not in before]
        sys.path[:] = dict.fromkeys([*_split_path(changes["PYTHONPATH"]), *others])
    tempfile.tempdir = None  # asked again, for TMPDIR may have changed


def _split_path(path: str | None) -> list[str]:
    """Return the folders of a PYTHONPATH, of which Python makes absolute ones."""
    return [os.path.abspath(entry) for entry in path.split(os.pathsep)] if path else []


def _mark_place() -> int | None:
    """Where the mark stands in the environment that this process began with, which /proc shows.

    A worker writes its own there, and is found by it as executed processes are. None where that
    does not work.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place: int | None = libc.getenv(MARK.encode())
    if not place or len(ctypes.string_at(place)) != MARK_LENGTH:
        return None
    other = os.urandom(MARK_LENGTH // 2).hex().encode()
    ctypes.memmove(place, other, MARK_LENGTH)
    shown = f"{MARK}=".encode() + other in environment(os.getpid())
    return place if shown or not Path("/proc").is_dir() else None


def _threads() -> int:
    """How many threads this process has (1 where there is no /proc)."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 1


# -- fork client ---------------------------------------------------------------------------------
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
