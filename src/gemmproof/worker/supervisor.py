"""The supervisor of a worker: its limits, its clock, its stack when it hangs."""

from __future__ import annotations

import contextlib
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from gemmproof.reference.provenance import format_count, is_ours, owner
from gemmproof.worker import fork_server, processes
from gemmproof.worker.appearance import OWN_VARIABLES
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.fork_server import ForkedWorker, ForkServer, Lost
from gemmproof.worker.processes import Clock
from gemmproof.worker.protocol import (
    EVENTS,
    STACK,
    WHERE_SIGNAL,
    Failed,
    Listener,
    WorkerCall,
    read_event,
)

# -- limits --------------------------------------------------------------------------------------
SLOWNESS = 3  # seconds on a slow machine for one counted second


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for loading the target, for one case and for all, and bytes of memory.

    The seconds are those of Clock. They start again for a case that sends a heartbeat; a simulated
    call has as many that are counted (reference/work.py). All cases together may take
    `total`, or `each` for every case asked for, if that is more. `memory` was asked for, `free` is
    the machine's free memory.
    """

    load: float = 120.0
    case: float = 30.0
    total: float = 600.0
    each: float = 3.0
    memory: int = 8 << 30
    free: int = field(default_factory=lambda: int(0.8 * processes.available_memory()))


def find_broken(
    limits: Limits, worker: WorkerExit, used: int, still: float, total: float
) -> str | None:
    """Return the limit that the worker broke: "memory", "hang" or "time"; None if none."""
    # memory of gemmproof's own imports is not the target's
    if worker.held_when_ready is not None and used > min(limits.memory, limits.free):
        return "memory"
    if still > _find_allowed(limits, worker):
        return "hang"
    asked = worker.examples + (worker.model_check.of if worker.model_check else 0)
    return "time" if total > max(limits.total, limits.each * asked) else None


def _find_allowed(limits: Limits, worker: WorkerExit) -> float:
    """Return the seconds that a worker may take until its next heartbeat."""
    if worker.proof:  # the prover counts its own time, which may be longer here
        return SLOWNESS * worker.proof.seconds + limits.case
    return limits.case if worker.cases else limits.load


def explain_end(
    worker: WorkerExit, broken: str, limits: Limits, used: int, total: float, own: str | None
) -> None:
    """Set the end and its reason of a worker that broke a limit.

    `own` is the line of gemmproof itself that ran: then nothing is known of the kernel.
    """
    if broken == "time":
        worker.end, worker.how = "time", f"{format_count(worker.cases, 'case')} took {total:.0f} s"
    elif broken == "hang" and own and not worker.is_launching:
        allowed = _find_allowed(limits, worker)
        worker.end = "slow"
        worker.how = f"no progress for {allowed:g} s in gemmproof's own code, at {own}"
    elif broken == "hang":
        allowed = _find_allowed(limits, worker)
        worker.end, worker.how = "hang", f"it timed out after {allowed:g} s"
    else:
        _explain_memory(worker, limits, used)


def _explain_memory(worker: WorkerExit, limits: Limits, used: int) -> None:
    """Name the limit: it is gemmproof's or the machine's, so it shows nothing of the kernel."""
    allowed = min(limits.memory, limits.free)
    asked = limits.memory <= limits.free
    whose = "by --memory-limit" if asked else "by the free memory of this machine"
    ready = worker.held_when_ready or 0
    before = worker.held_at_case if worker.cases else ready
    worker.end = "full"
    if ready > allowed:
        needs = f"more than the {_gib(ready)} that gemmproof needs before it loads a kernel"
        message = f"memory: got {allowed / 2**30:.3g} GiB allowed {whose}, expected {needs}"
        worker.failure = Failed("error", message)
    else:
        allows = f"{allowed / 2**30:.3g} allowed {whose}; {_gib(before)} before this case"
        worker.how = f"it used {_gib(used)} of memory ({allows})"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


# -- stacks --------------------------------------------------------------------------------------
# Our code between the target and torch: calls that it makes were made by the target.
_HOOKS = (
    *("reference/fake_cuda/", "reference/simulator/call.py", "gemmproof/fake_device.py"),
    *("reference/simulator/host_work.py", "reference/simulator/wrapper_lines.py"),
)


def find_line(stack: Path) -> tuple[str, str] | None:
    """Return the line of the innermost frame of the target, and the path of its file.

    It is the user's, or else an installed package's.
    """
    installed = None
    for name, line in _frames(stack):
        if (whose := owner(name)) != "library":
            where = f"{os.path.basename(name)}:{line}", name
            if whose == "user":
                return where
            installed = installed or where
    return installed


def find_own_line(stack: Path) -> str | None:
    """Return the line of gemmproof that was running, None if the target or its libraries ran."""
    for name, line in _frames(stack):
        if owner(name) != "library":
            return None
        if is_ours(name) and not any(hook in os.path.realpath(name) for hook in _HOOKS):
            return f"{os.path.basename(name)}:{line}"
    return None


def _frames(stack: Path) -> Iterator[tuple[str, str]]:
    for text in stack.read_text(errors="replace").splitlines():
        head, quote, rest = text.partition('"')
        name, quote, line = rest.partition('", line ')
        if head.strip() == "File" and quote:
            yield name, line.split()[0]


# -- supervisor ----------------------------------------------------------------------------------
Worker = subprocess.Popen[bytes] | ForkedWorker
TICK = 0.05  # seconds between two polls of the worker
KEPT_OUTPUT = 16 * 1024  # bytes of the target's last output that are kept
_stopping = threading.Event()  # workers are no longer waited for


def watch(
    function: str,
    request: Any,
    limits: Limits,
    listener: Listener = lambda event: None,
    fresh: bool = False,
    tick: float = TICK,
) -> WorkerExit:
    """WorkerCall "module:function" with a record in a worker, and report every event until its end.

    Afterwards nothing that the worker started runs. One that died of a proof is run again without
    it, one that was killed from outside is run again. If `fresh`, the process has imported nothing:
    Triton reads TRITON_INTERPRET when it is imported. `tick` is the time in seconds between two
    reads of its events.
    """
    started = time.monotonic()
    server = None if fresh else fork_server.find_server()
    variables = {name: os.environ.get(name) for name in OWN_VARIABLES}
    call = WorkerCall(function, request, limits.case, limits.memory, variables)
    worker = _watch(call, limits, listener, server, tick)
    if worker is None:  # the server died, for no reason of the worker's
        worker = _watch(call, limits, listener, None, tick)
    assert worker is not None
    undecided = worker.list_undecided()
    if undecided:  # the cases do not depend on the proof
        call = replace(call, request=replace(request, proof=False))
        worker = _watch(call, limits, listener, None, tick)
        assert worker is not None
        worker.undecided = undecided
    if worker.end == "killed":
        again = _watch(call, limits, listener, None, tick)
        assert again is not None
        again.undecided = undecided
        if again.end == "killed":
            again.how = f"{again.how}, twice"
        worker = again
    worker.seconds = time.monotonic() - started
    return worker


def preload(
    conftest: str | None = None, limits: Limits | None = None
) -> contextlib.AbstractContextManager[None]:
    """Within this context workers start with the engine, and `conftest`, imported.

    For callers that watch several workers. Enter it in the main thread; other threads may watch.
    """
    return fork_server.preload(_root(), conftest, (limits or Limits()).memory)


@contextlib.contextmanager
def open_pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool whose threads may each watch a worker. If interrupted, all workers are killed.

    A signal reaches only the main thread, which would then wait for the others.
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
    """Kill every worker, from any thread, and start none until `resume`."""
    _stopping.set()


def resume() -> None:
    """Allow workers to run again."""
    _stopping.clear()


def _watch(
    call: WorkerCall,
    limits: Limits,
    listener: Listener,
    server: ForkServer | None,
    tick: float,
) -> WorkerExit | None:
    """Run one worker; return its exit, or None if the server that forked it died."""
    worker = WorkerExit()
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        call.write(path)
        token = secrets.token_hex(16)
        process = _start(folder, token, server)
        try:
            _follow(process, path, limits, worker, listener, tick)
        finally:
            _end(process, token)
        if worker.where is None and (line := find_line(path / STACK)):
            worker.where, worker.file = line
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
    # -P and the path: import this package, not one in the current folder or installed.
    start = (
        f"import sys; sys.path.insert(0, {root!r}); import gemmproof; del sys.path[0];"
        f"from gemmproof.worker.serve import main; main({folder!r})"
    )
    env = {**os.environ, processes.MARK: token, "PYTHONHASHSEED": "0"}
    env.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other on a busy machine
    env.pop("TRITON_INTERPRET", None)  # it would replace the decorator that we run
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
    path: Path,
    limits: Limits,
    worker: WorkerExit,
    listener: Listener,
    tick: float,
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
    with (path / EVENTS).open("rb") as events:
        while not _stopping.is_set():
            open_ = bool(selector.get_map())
            if open_ and selector.select(tick):
                open_ = _drain(output, kept, worker)
                if not open_:
                    selector.unregister(output)
            elif not open_:
                time.sleep(tick)
            status = process.poll()
            now = time.monotonic()
            proof = worker.proof  # a proof has one time limit; its events do not extend it
            if _read_events(events, worker, listener) and not (proof and worker.proof):
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
                _ask_where(process, path / STACK, 0.2 if end == "memory" else 1.0)
                explain_end(worker, end, limits, used, total, find_own_line(path / STACK))
                break
        else:
            worker.end, worker.how = "halted", "interrupted"
    worker.output = kept.decode("utf-8", "replace")


def _drain(output: int, kept: bytearray, worker: WorkerExit) -> bool:
    """Read the available output, up to a megabyte at a time; False at its end."""
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


def _read_events(events: BinaryIO, worker: WorkerExit, listener: Listener) -> bool:
    """Record the complete lines that have come; True if there were any."""
    moved = False
    until = time.monotonic() + TICK  # a worker may write faster than we read
    while not moved or time.monotonic() < until:
        at = events.tell()
        line = events.readline()
        if not line.endswith(b"\n"):
            events.seek(at)
            break
        event, held = read_event(line)
        worker.take(event, held)
        listener(event)
        moved = True
    return moved


def _ask_where(process: Worker, stack: Path, seconds: float) -> None:
    """Have the worker write its Python stack, and wait up to `seconds` for it."""
    process.send_signal(WHERE_SIGNAL)
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None and not _stopping.is_set():
        time.sleep(TICK / 5)
        # The stack is written whole, and ends with the outermost frame.
        if "<string>" in stack.read_text(errors="replace"):
            return


def _end(process: Worker, token: str) -> None:
    """Kill the worker's process group, then every process with its mark that left the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
    processes.kill_marked(token)
