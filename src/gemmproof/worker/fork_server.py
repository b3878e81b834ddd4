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

from gemmproof.worker import entry_points
from gemmproof.worker.processes import MARK, die_with_parent, environment, memory_of_group

# -- fork server ---------------------------------------------------------------------------------
READY = b"r"
NUMBER = struct.Struct("!i")  # the reply about a worker: its pid, later its exit status
MESSAGE = 1 << 16  # maximum bytes of a request
MARK_LENGTH = 32  # characters of every token: a worker overwrites the server's with its own


def main(control: int, modules: tuple[str, ...], conftest: str | None) -> None:
    """Import the modules, report ready, then fork a worker for each request until none comes.

    Ends silently if an import started threads: a fork would not have them.
    """
    die_with_parent()
    with contextlib.suppress(ImportError):  # the worker that needs it reports what is missing
        for name in modules:
            import_module(name)
        if conftest is not None:
            from gemmproof.worker.load_kernel import load_registered

            load_registered(conftest)
    mark_address = _mark_place()
    if _threads() == 1 and mark_address:
        gc.collect()
        gc.freeze()
        line = socket.socket(fileno=control)
        line.send(READY)
        _Server(line, mark_address, conftest is not None).serve()
    os._exit(0)


class _Server:
    """The loop: requests come on `control`; `workers` maps pids to their supervisors' sockets."""

    def __init__(self, control: socket.socket, mark_address: int, has_target: bool) -> None:
        self.control = control
        self.has_target = has_target
        self.mark_address = mark_address
        self.workers: dict[int, socket.socket] = {}
        self.reported: set[int] = set()
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
        """Fork for the next request; return False if there are no more."""
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
        """Run the request in the child; never returns."""
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
            ctypes.memmove(self.mark_address, token.encode(), MARK_LENGTH)
            os.environ[MARK] = token
            _change_environment(cwd, changes)
            os.write(line, NUMBER.pack(os.getpid()))
            os.close(line)
            from gemmproof.worker import serve

            if not self.has_target:  # a file may have changed since
                serve.STARTED = time.time()
            serve.main(folder)
        finally:
            os._exit(1)

    def _describe_ended(self) -> None:
        """Send the exit status of the workers that have ended, and leave them as zombies."""
        for pid in self.workers.keys() - self.reported:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                died = ended.si_code != os.CLD_EXITED
                status = -ended.si_status if died else ended.si_status
                with contextlib.suppress(OSError):
                    self.workers[pid].send(NUMBER.pack(status))
                self.reported.add(pid)

    def _forget(self, pid: int) -> None:
        """Kill and reap a worker whose supervisor is done with it, or has died."""
        line = self.workers.pop(pid)
        self.reported.discard(pid)
        self.selector.unregister(line)
        line.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _change_environment(cwd: str, changes: dict[str, str | None]) -> None:
    """Enter a folder and change variables, and what Python derived from them at its start."""
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
    tempfile.tempdir = None  # evaluated again, as TMPDIR may have changed


def _split_path(path: str | None) -> list[str]:
    """Return the folders of a PYTHONPATH as absolute paths, as Python makes them."""
    return [os.path.abspath(entry) for entry in path.split(os.pathsep)] if path else []


def _mark_place() -> int | None:
    """Return the address of the mark in the initial environment of this process, as in /proc.

    A worker writes its own mark there, and is found by it as executed processes are. None if that
    does not work.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address: int | None = libc.getenv(MARK.encode())
    if not address or len(ctypes.string_at(address)) != MARK_LENGTH:
        return None
    other = os.urandom(MARK_LENGTH // 2).hex().encode()
    ctypes.memmove(address, other, MARK_LENGTH)
    shown = f"{MARK}=".encode() + other in environment(os.getpid())
    return address if shown or not Path("/proc").is_dir() else None


def _threads() -> int:
    """Return the number of threads of this process (1 if there is no /proc)."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else 1


# -- fork client ---------------------------------------------------------------------------------
SECONDS = 60.0  # for the server's imports, and for each answer
TICK = 0.05  # seconds between two polls of the server
OWN = (MARK, "TRITON_INTERPRET")  # variables private to the server or a worker


class Lost(Exception):
    """The server does not answer."""


class ForkedWorker:
    """A worker that the server forked, with a Popen's attributes: pid, stdout, its end.

    `lost`: the server died, and the worker with it, for no reason of the worker's.
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
            reply = self._line.recv(NUMBER.size, socket.MSG_WAITALL)
        except OSError:
            reply = b""
        if len(reply) < NUMBER.size:
            self.close()
            raise Lost
        return int(NUMBER.unpack(reply)[0])

    def poll(self) -> int | None:
        """Return the exit status as Popen does, or None while the worker runs."""
        if self.returncode is None:
            try:
                reply = self._line.recv(NUMBER.size)
            except BlockingIOError:
                return None
            except OSError:
                reply = b""
            self.lost = len(reply) < NUMBER.size
            self.returncode = -signal.SIGKILL if self.lost else int(NUMBER.unpack(reply)[0])
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
        """Close the pipes of a worker that never started."""
        self._line.close()
        if self.stdout is not None:
            self.stdout.close()


class ForkServer:
    """The server's client side; `fork` may be called from any thread."""

    def __init__(self, root: str, conftest: str | None, memory: int) -> None:
        """Start it and wait until it has imported the engine and the conftest. Raises Lost.

        It dies with the thread that starts it. `memory`: the bytes that it may hold meanwhile.
        """
        self._lock = threading.Lock()
        self._environment = dict(os.environ)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # what the first worker would import: the simulator imports torch and Triton
        modules = ("gemmproof.worker.serve", entry_points.ENGINE.partition(":")[0])
        start = (
            f"import sys; sys.path.insert(0, {root!r}); import gemmproof; del sys.path[0];"
            "from gemmproof.worker.fork_server import main;"
            f"main({theirs.fileno()}, {modules!r}, {conftest!r})"
        )
        token = os.urandom(MARK_LENGTH // 2).hex()
        # One thread, or forking is not safe: OpenBLAS starts threads when numpy is imported.
        env = {**os.environ, MARK: token, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        env |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        env.pop("TRITON_INTERPRET", None)  # it would replace the decorator that we run
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

        It has the current folder and environment of this process, as a spawned worker would.
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
        """Return the environment changes since the server started, None for what was removed."""
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
    """Return the server to fork workers from, or None if there is none."""
    return _server


@contextlib.contextmanager
def preload(root: str, conftest: str | None, memory: int) -> Iterator[None]:
    """Within this context workers fork from a process that imported the engine and `conftest`.

    A conftest that crashes, hangs or starts threads is left to the workers, which report it. If no
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
