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
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmproof.worker import fork_client, processes
from gemmproof.worker.clock import Clock
from gemmproof.worker.fork_client import ForkedWorker, ForkServer, Lost
from gemmproof.worker.protocol import EVENTS, STACK, WHERE_SIGNAL, Listener, Request, WorkerExit
from gemmproof.worker.stack import find_line, find_own_line

Worker = subprocess.Popen[bytes] | ForkedWorker
TICK = 0.05  # seconds between two looks at the worker
KEPT_OUTPUT = 16 * 1024  # bytes of the target's last output that are kept


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for loading the target, for one case and for all, and bytes of memory.

    The seconds are those of worker/clock.py. A case that gives a sign of life has them anew; a call
    that is simulated has as many of CPU time. All cases together may take `total`, or `each` for
    every case asked for, if that is more. `memory` was asked for, `free` is what the machine has.
    """

    load: float = 120.0
    case: float = 30.0
    total: float = 600.0
    each: float = 3.0
    memory: int = 8 << 30
    free: int = field(default_factory=lambda: int(0.8 * processes.available_memory()))


def watch(
    request: Request,
    limits: Limits,
    listener: Listener = lambda event: None,
) -> WorkerExit:
    """Run one worker to its end, told of every event; afterwards nothing that it started runs.

    One that was killed from outside is run a second time.
    """
    request = replace(request, seconds=limits.case)
    started = time.monotonic()
    server = fork_client.find_server()
    worker = _watch(request, limits, listener, server)
    if worker is None:  # the server died, for no reason of the worker's
        worker = _watch(request, limits, listener, None)
    assert worker is not None
    if worker.end == "killed":
        again = _watch(request, limits, listener, None)
        assert again is not None
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
        worker.where = worker.where or find_line(place / STACK)
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
    looked = time.monotonic()
    still = total = 0.0
    with (place / EVENTS).open("rb") as events:
        while True:
            open_ = bool(selector.get_map())
            if open_ and selector.select(TICK):
                open_ = _drain(output, kept, worker)
                if not open_:
                    selector.unregister(output)
            elif not open_:
                time.sleep(TICK)
            status = process.poll()
            now = time.monotonic()
            if _read_events(events, worker, listener):
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
            spent = clock.advance()
            still, total = still + spent, total + spent * (worker.cases > 0)
            used = processes.memory_of_group(process.pid)
            end = _find_broken_limit(limits, worker, used, still, total)
            if end:
                # A worker that fills memory gets little time to answer.
                _ask_where(process, place / STACK, 0.2 if end == "memory" else 1.0)
                _explain_end(worker, end, limits, used, total, find_own_line(place / STACK))
                break
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


def _find_broken_limit(
    limits: Limits, worker: WorkerExit, used: int, still: float, total: float
) -> str | None:
    """The limit that the worker broke: "memory", "hang" or "time"."""
    # what gemmproof itself imports is not the target's
    if "ready" in worker.events and used > min(limits.memory, limits.free):
        return "memory"
    if still > (limits.case if worker.cases else limits.load):
        return "hang"
    asked = worker.events.get("start", {}).get("examples", 0)
    return "time" if total > max(limits.total, limits.each * asked) else None


def _explain_end(
    worker: WorkerExit, broken: str, limits: Limits, used: int, total: float, own: str | None
) -> None:
    """What a worker that broke a limit is said to have died of.

    `own` is the line of gemmproof's own that ran: then nothing is known of the kernel.
    """
    launched = worker.events.get("case", {}).get("phase") == "launch"
    if broken == "time":
        worker.end, worker.how = "time", f"{worker.cases} cases took {total:.0f} s"
    elif broken == "hang" and own and not launched:
        allowed = limits.case if worker.cases else limits.load
        worker.end = "slow"
        worker.how = f"no sign of progress for {allowed:g} s in gemmproof's own code, at {own}"
    elif broken == "hang":
        allowed = limits.case if worker.cases else limits.load
        worker.end, worker.how = "hang", f"no end after {allowed:g} s"
    else:
        _explain_memory(worker, limits, used, own)


def _explain_memory(worker: WorkerExit, limits: Limits, used: int, own: str | None) -> None:
    """The kernel is to blame where most was allocated in its own case, by code of its own."""
    allowed = min(limits.memory, limits.free)
    asked = limits.memory <= limits.free
    whose = "by --memory-limit" if asked else "by what this machine has free"
    worker.how = f"{_gib(used)} of memory in use ({allowed / 2**30:.3g} allowed)"
    ready = worker.events["ready"]["held"]
    before = worker.events["case"]["held"] if worker.cases else ready
    worker.end = "memory" if asked and not own and used - before > used / 2 else "full"
    if ready > allowed:
        needs = f"more than the {_gib(ready)} that gemmproof holds before it loads a kernel"
        message = f"memory: got {allowed / 2**30:.3g} GiB allowed {whose}, expected {needs}"
        worker.events["error"] = {"event": "error", "message": message}
    elif worker.end == "full":
        worker.how += f" {whose}, of which {_gib(before)} before this case"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _ask_where(process: Worker, stack: Path, seconds: float) -> None:
    """Have the worker write its Python stack, and give it that long to do so."""
    process.send_signal(WHERE_SIGNAL)
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
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
