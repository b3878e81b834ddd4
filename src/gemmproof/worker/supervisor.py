"""Runs a worker, watches its time and memory, and ends it with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemmproof.worker import fork_client, processes
from gemmproof.worker.clock import Clock
from gemmproof.worker.fork_client import ForkedWorker, ForkServer, Lost
from gemmproof.worker.limits import Limits, explain_end, find_broken
from gemmproof.worker.protocol import EVENTS, STACK, WHERE_SIGNAL, Listener, Request, WorkerExit
from gemmproof.worker.stack import find_line, find_own_line

Worker = subprocess.Popen[bytes] | ForkedWorker
TICK = 0.05  # seconds between two looks at the worker
KEPT_OUTPUT = 16 * 1024  # bytes of the target's last output that are kept
_stopping = threading.Event()  # no worker is waited for any more


def watch(
    request: Request,
    limits: Limits,
    listener: Listener = lambda event: None,
) -> WorkerExit:
    """Run one worker to its end, told of every event; afterwards nothing that it started runs.

    One that died of a proof is run again without it, and one that was killed from outside again.
    """
    request = replace(request, seconds=limits.case, memory=request.memory or limits.memory)
    started = time.monotonic()
    # a test is tried with Triton's interpreter, for which Triton must not have been imported
    server = None if request.ask == "try" else fork_client.find_server()
    worker = _watch(request, limits, listener, server)
    if worker is None:  # the server died, for no reason of the worker's
        worker = _watch(request, limits, listener, None)
    assert worker is not None
    undecided = worker.list_undecided()
    if undecided:  # the cases do not depend on it
        request = replace(request, proof=False)
        worker = _watch(request, limits, listener, None)
        assert worker is not None
        worker.undecided = undecided
    if worker.end == "killed":
        again = _watch(request, limits, listener, None)
        assert again is not None
        again.undecided = undecided
        if again.end == "killed":
            again.how = f"twice {again.how}"
        worker = again
    worker.seconds = time.monotonic() - started
    return worker


def preload(
    conftest: str | None = None, limits: Limits | None = None
) -> contextlib.AbstractContextManager[None]:
    """Within it workers start with the engine, and `conftest`, imported.

    For those who watch several workers. Enter it in the main thread; other threads may watch.
    """
    return fork_client.preload(_root(), conftest, (limits or Limits()).memory)


@contextlib.contextmanager
def open_pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that may watch a worker each. Where this one is interrupted, all workers are ended.

    A signal reaches the main thread alone, which then would wait for the others.
    """
    pool = ThreadPoolExecutor(jobs)
    try:
        yield pool
    except BaseException:
        _stopping.set()
        raise
    finally:
        pool.shutdown(cancel_futures=_stopping.is_set())
        _stopping.clear()


def halt() -> None:
    """Have every worker ended, from any thread, and none begun until `resume`."""
    _stopping.set()


def resume() -> None:
    """Let workers live again."""
    _stopping.clear()


def _watch(
    request: Request,
    limits: Limits,
    listener: Listener,
    server: ForkServer | None,
) -> WorkerExit | None:
    """What a worker leaves; None if the server that forked it died."""
    worker = WorkerExit()
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        request.write(place)
        token = secrets.token_hex(16)
        process = _start(folder, token, server)
        try:
            _follow(process, place, limits, worker, listener)
        finally:
            _end(process, token)
        if worker.where is None and (found := find_line(place / STACK)):
            worker.where, worker.file = found
    lost = isinstance(process, ForkedWorker) and process.lost
    return None if lost and worker.end == "killed" else worker


def _root() -> str:
    return str(Path(__file__).resolve().parents[2])


def _start(folder: str, token: str, server: ForkServer | None) -> Worker:
    if server is not None:
        with contextlib.suppress(Lost):
            return server.fork(folder, token)
    return _spawn(folder, token)


def _spawn(folder: str, token: str) -> subprocess.Popen[bytes]:
    root = _root()
    # -P and the path: this very package, whatever lies in the current folder or is installed.
    start = (
        f"import sys; sys.path.insert(0, {root!r}); import gemmproof; del sys.path[0];"
        f"from gemmproof.worker.serve import main; main({folder!r})"
    )
    env = {**os.environ, processes.MARK: token, "PYTHONHASHSEED": "0"}
    env.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other on a busy machine
    env.pop("TRITON_INTERPRET", None)  # it would replace the very decorator that we run
    return subprocess.Popen(
        [sys.executable, "-P", "-c", start],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _follow(
    process: Worker,
    place: Path,
    limits: Limits,
    worker: WorkerExit,
    listener: Listener,
) -> None:
    assert process.stdout is not None
    output = process.stdout.fileno()
    os.set_blocking(output, False)
    selector = selectors.DefaultSelector()
    selector.register(output, selectors.EVENT_READ)
    kept = bytearray()
    clock = Clock(lambda: processes.group_of(process.pid))
    looked, printed = time.monotonic(), 0
    still = total = 0.0
    with (place / EVENTS).open("rb") as events:
        while not _stopping.is_set():
            open_ = bool(selector.get_map())
            if open_ and selector.select(TICK):
                open_ = _drain(output, kept, worker)
                if not open_:
                    selector.unregister(output)
            elif not open_:
                time.sleep(TICK)
            status = process.poll()
            now = time.monotonic()
            proving = worker.is_proving  # that has its time in all, whatever it tells
            if _read_events(events, worker, listener) and not (proving and worker.is_proving):
                still = 0.0
            if status is not None:
                while _read_events(events, worker, listener):
                    pass
                _drain(output, kept, worker)
                worker.output = kept.decode("utf-8", "replace")
                worker.classify(status)
                break
            if now - looked < TICK:
                continue
            looked = now
            # while it prints it may wait for us to read
            spent = clock.advance(waits_for_us=worker.output_bytes > printed)
            printed = worker.output_bytes
            still, total = still + spent, total + spent * (worker.cases > 0)
            used = processes.memory_of_group(process.pid)
            end = find_broken(limits, worker, used, still, total)
            if end:
                # A worker that fills memory gets little time to answer.
                _ask_where(process, place / STACK, 0.2 if end == "memory" else 1.0)
                explain_end(worker, end, limits, used, total, find_own_line(place / STACK))
                break
        else:
            worker.end, worker.how = "halted", "interrupted"
    worker.output = kept.decode("utf-8", "replace")


def _drain(output: int, kept: bytearray, worker: WorkerExit) -> bool:
    """Read what there is, up to a megabyte at a time; False at the end of the output."""
    for _ in range(16):
        try:
            chunk = os.read(output, 1 << 16)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        worker.output_bytes += len(chunk)
        kept += chunk
        del kept[:-KEPT_OUTPUT]
    return True


def _read_events(events: Any, worker: WorkerExit, listener: Listener) -> bool:
    """Take in the whole lines that have come; True if there were any."""
    moved = False
    until = time.monotonic() + TICK  # a worker may write faster than we read
    while not moved or time.monotonic() < until:
        at = events.tell()
        line = events.readline()
        if not line.endswith(b"\n"):
            events.seek(at)
            break
        event = json.loads(line)
        worker.take(event)
        listener(event)
        moved = True
    return moved


def _ask_where(process: Worker, stack: Path, seconds: float) -> None:
    """Have the worker write its Python stack, and give it that long to do so."""
    process.send_signal(WHERE_SIGNAL)
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None and not _stopping.is_set():
        time.sleep(TICK / 5)
        # The stack is written whole, and ends with the outermost frame.
        if "<string>" in stack.read_text(errors="replace"):
            return


def _end(process: Worker, token: str) -> None:
    """Kill the worker's process group, then whatever left the group but bears its mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
    processes.kill_marked(token)
