"""A process that has imported the engine and a conftest.py once, and forks a worker per request.

It has one thread and runs nothing but imports, so that what it forks starts as a fresh process
would. It keeps each worker as a zombie until its supervisor is done: no other process can take
its number meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from gemmproof.worker.processes import MARK, die_with_parent, environment

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
                    self._tell_ended()
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

    def _tell_ended(self) -> None:
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
