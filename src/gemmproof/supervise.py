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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmproof import forkserver, processes
from gemmproof.forkserver import ForkedWorker, ForkServer, Lost
from gemmproof.reference.provenance import owner
from gemmproof.worker import EVENTS, REQUEST, STACK, WHERE_SIGNAL

Worker = subprocess.Popen[bytes] | ForkedWorker
TICK = 0.05  # seconds between two looks at the worker
ENGINE, TABLE = "gemmproof.check:check", "gemmproof.properties.table"
KEPT_OUTPUT = 16 * 1024  # bytes of the target's last output that are kept


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for loading the target, for one case and for all, and bytes of memory.

    All cases together may take `total`, or `each` for every case asked for, if that is more.
    """

    load: float = 120.0
    case: float = 30.0
    total: float = 600.0
    each: float = 3.0
    memory: int = 8 << 30


@dataclass(slots=True)
class Outcome:
    """What a worker left: how it ended, its last event of each name, and its output.

    `end` is "done", "crash", "hang", "memory", "time" (all cases together took too long) or
    "left" (the target called sys.exit). `how` says it in words; `where` is the line of the target
    that ran, where known. `examples` counts the cases that each property judged.
    """

    end: str = "done"
    how: str = ""
    where: str | None = None
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    examples: Counter[str] = field(default_factory=Counter)
    ratios: dict[str, float] = field(default_factory=dict)
    cases: int = 0
    output: str = ""
    output_bytes: int = 0
    seconds: float = 0.0


def watch(
    request: dict[str, Any],
    limits: Limits,
    listener: Callable[[dict[str, Any]], None] = lambda event: None,
) -> Outcome:
    """Run one worker to its end, told of every event; afterwards nothing that it started runs."""
    started = time.monotonic()
    server = forkserver.running()
    outcome = _watch(request, limits, listener, server)
    if outcome is None:  # the server died, for no reason of the worker's
        outcome = _watch(request, limits, listener, None)
    assert outcome is not None
    outcome.seconds = time.monotonic() - started
    return outcome


def preloaded() -> contextlib.AbstractContextManager[None]:
    """Within it, in the thread that enters it, workers start with the engine imported.

    For those who watch several workers. Whoever watches them may do so from other threads.
    """
    modules = (*forkserver.MODULES, ENGINE.partition(":")[0], TABLE)
    return forkserver.preloaded(modules, _root())


def _watch(
    request: dict[str, Any],
    limits: Limits,
    listener: Callable[[dict[str, Any]], None],
    server: ForkServer | None,
) -> Outcome | None:
    """What a worker leaves; None if the server that forked it died."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="gemmproof-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        (place / REQUEST).write_text(json.dumps({"engine": ENGINE, "table": TABLE, **request}))
        for name in (EVENTS, STACK):
            (place / name).touch()
        token = secrets.token_hex(16)
        process = _start(folder, token, server)
        try:
            _follow(process, place, limits, outcome, listener)
        finally:
            _end(process, token)
        outcome.where = outcome.where or _line(place / STACK)
    lost = isinstance(process, ForkedWorker) and process.lost
    return None if lost and outcome.end == "crash" else outcome


def _root() -> str:
    return str(Path(__file__).resolve().parent.parent)


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
        f"from gemmproof.worker import main; main({folder!r})"
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
    outcome: Outcome,
    listener: Callable[[dict[str, Any]], None],
) -> None:
    assert process.stdout is not None
    output = process.stdout.fileno()
    os.set_blocking(output, False)
    selector = selectors.DefaultSelector()
    selector.register(output, selectors.EVENT_READ)
    kept = bytearray()
    moved = looked = time.monotonic()
    first: float | None = None
    with (place / EVENTS).open("rb") as events:
        while True:
            open_ = bool(selector.get_map())
            if open_ and selector.select(TICK):
                open_ = _drain(output, kept, outcome)
                if not open_:
                    selector.unregister(output)
            elif not open_:
                time.sleep(TICK)
            status = process.poll()
            now = time.monotonic()
            if _read_events(events, outcome, listener):
                moved = now
                first = now if first is None and outcome.cases else first
            if status is not None:
                _drain(output, kept, outcome)
                _classify(status, outcome)
                break
            if now - looked < TICK:
                continue
            looked = now
            broken = _broken(process.pid, limits, outcome, now - moved, now - (first or now))
            if broken:
                outcome.end, outcome.how = broken
                # A worker that fills memory gets little time to answer.
                _ask_where(process, place / STACK, 0.2 if outcome.end == "memory" else 1.0)
                break
    outcome.output = kept.decode("utf-8", "replace")


def _drain(output: int, kept: bytearray, outcome: Outcome) -> bool:
    """Read what there is, up to a megabyte at a time; False at the end of the output."""
    for _ in range(16):
        try:
            chunk = os.read(output, 1 << 16)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        outcome.output_bytes += len(chunk)
        kept += chunk
        del kept[:-KEPT_OUTPUT]
    return True


def _read_events(events: Any, outcome: Outcome, listener: Callable[[dict[str, Any]], None]) -> bool:
    """Take in the whole lines that have come; True if there were any."""
    moved = False
    while True:
        at = events.tell()
        line = events.readline()
        if not line.endswith(b"\n"):
            events.seek(at)
            return moved
        event = json.loads(line)
        _take(event, outcome)
        listener(event)
        moved = True


def _take(event: dict[str, Any], outcome: Outcome) -> None:
    name = event["event"]
    outcome.events[name] = event
    if name == "case":
        outcome.cases += 1
    elif name == "judged":
        outcome.examples.update(event["examples"])
        for judged, ratio in event["ratios"].items():
            outcome.ratios[judged] = max(ratio, outcome.ratios.get(judged, ratio))
    elif name == "finding":
        outcome.findings.append(event["finding"])


def _classify(status: int, outcome: Outcome) -> None:
    """How a worker ended by itself: with its answer, or without."""
    if outcome.events.keys() & {"report", "error", "internal", "kernels", "shrunk"}:
        return
    if "left" in outcome.events:
        outcome.end, outcome.how = "left", outcome.events["left"]["how"]
        outcome.where = outcome.events["left"]["where"]
    elif status < 0:
        outcome.end, outcome.how = "crash", f"a process that died of {_signal_name(-status)}"
    else:
        outcome.end, outcome.how = "crash", f"a process that ended itself with status {status}"


def _signal_name(number: int) -> str:
    names = {s.value: s.name for s in signal.Signals}
    return names.get(number, f"signal {number}")


def _broken(
    pid: int, limits: Limits, outcome: Outcome, still: float, total: float
) -> tuple[str, str] | None:
    """The limit that the worker broke, and how."""
    if (used := processes.memory_of_group(pid)) > limits.memory:
        return (
            "memory",
            f"{used / 2**30:.1f} GiB of memory in use ({limits.memory / 2**30:g} allowed)",
        )
    allowed = limits.case if outcome.cases else limits.load
    if still > allowed:
        return "hang", f"no end after {allowed:g} s"
    asked = outcome.events.get("start", {}).get("examples", 0)
    if total > max(limits.total, limits.each * asked):
        return "time", f"{outcome.cases} cases took {total:.0f} s"
    return None


def _ask_where(process: Worker, stack: Path, seconds: float) -> None:
    """Have the worker write its Python stack, and give it that long to do so."""
    process.send_signal(WHERE_SIGNAL)
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        time.sleep(TICK / 5)
        # The stack is written whole, and ends with the outermost frame.
        if "<string>" in stack.read_text(errors="replace"):
            return


def _line(stack: Path) -> str | None:
    """The line of the innermost frame of the target in a stack that faulthandler wrote."""
    installed = None
    for line in stack.read_text(errors="replace").splitlines():
        head, quote, rest = line.partition('"')
        name, quote, place = rest.partition('", line ')
        if head.strip() == "File" and quote and (whose := owner(name)) != "library":
            where = f"{os.path.basename(name)}:{place.split()[0]}"
            if whose == "user":
                return where
            installed = installed or where
    return installed


def _end(process: Worker, token: str) -> None:
    """Kill the worker's process group, then whatever left the group but bears its mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
    processes.kill_marked(token)
