"""The protocol of a worker: the call that it serves, and its events; defined here only."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from gemmproof.properties.codec import decode, encode

# The files of a worker's folder: its call, its events, and its Python stack.
CALL, EVENTS, STACK = "call.json", "events.jsonl", "stack.txt"
# A signal that targets hardly ever handle: it makes a hanging worker write its stack.
WHERE_SIGNAL = signal.SIGRTMIN + 7


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A function to call in a worker, with a record, and the limits of the call.

    `function` is "module:function": it takes `request`, a record of the type that it declares, and
    the WorkerContext. The record that it returns is the result. `seconds` are counted, for each
    simulated call and each candidate of a shrink; `memory` is in bytes, for the worker.
    `variables` are the user's values of the environment variables that workers have values of their
    own for, None for those that the user has not set.
    """

    function: str
    request: Any
    seconds: float
    memory: int
    variables: dict[str, str | None] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the call to its folder, and create the files that the worker writes."""
        (folder / CALL).write_text(json.dumps(encode(self)))
        for name in (EVENTS, STACK):
            (folder / name).touch()

    @staticmethod
    def read(folder: Path) -> WorkerCall:
        """Return the call that was written to a folder; its request is plain data."""
        return decode(WorkerCall, json.loads((folder / CALL).read_text()), "call")


# -- events --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Ready:
    """gemmproof's imports are done; the target's are next."""


@dataclass(frozen=True, slots=True)
class Started:
    """Drawing begins; `examples` cases are requested."""

    examples: int


# "kept" is a saved case, "compile" a launch that is about to be compiled, "" a product of a drift
Phase = Literal["", "draw", "kept", "replay", "shrink", "limit", "launch", "compile"]


@dataclass(frozen=True, slots=True)
class CaseStarted:
    """A case is about to run, or the `index`-th launch of `of` is about to be compiled.

    `case` identifies it, in a case's JSON or a label. `share` is the finished fraction of the
    work, `limit` the step beyond the contract that the case tries: its name and its option.
    """

    case: str
    phase: Phase = ""
    index: int = 0
    of: int | None = None
    share: float | None = None
    limit: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PartialReport:
    """The report so far; if `judged`, only what lies beyond the contract is left.

    `report` is a Report, which becomes plain data on its way to the parent process.
    """

    report: Any
    judged: bool = False


@dataclass(frozen=True, slots=True)
class ProofStarted:
    """A proof begins that may decide `properties`, in `seconds` of its own clock."""

    properties: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ProofEnded:
    """The proof is done."""


@dataclass(frozen=True, slots=True)
class ModelCheckStarted:
    """A predicted launch is about to be compiled: the `number`-th, from 1, of `of`."""

    launch: str
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """A heartbeat: a simulation, a launch or a candidate of a shrink made progress.

    `activity` is what takes its time, as text, if it is no case by itself.
    """

    activity: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """The calls of one case on a GPU were compared: `equal` of `outputs` elements as predicted."""

    launches: int
    equal: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Exits:
    """The target is about to end its own process, at the line `where` of `file`, as `how` says.

    `status` is the exit status that follows, negative for a signal.
    """

    how: str
    status: int
    where: str
    file: str


@dataclass(frozen=True, slots=True)
class PartialResult:
    """A part of the result that is known before the call returns; a later one replaces it.

    `value` is a record or plain data; it becomes plain data on its way to the parent process.
    """

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Done:
    """The function returned; `result` is what it returned, as plain data in the parent process."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised.

    "error": the target cannot be judged; "internal": gemmproof itself failed; "left": the target
    called sys.exit or raised KeyboardInterrupt, at the line `where`; "full": gemmproof itself was
    refused memory.
    """

    kind: Literal["error", "internal", "left", "full"]
    message: str
    where: str | None = None


Event = (
    Ready | Started | CaseStarted | PartialReport | ProofStarted | ProofEnded
    | ModelCheckStarted | Advanced | Compared | Exits | PartialResult | Done | Failed
)  # fmt: skip
EVENT_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}
Listener = Callable[[Event], None]


def write_event(event: Event, held: int) -> bytes:
    """Return an event as a line of JSON, with the bytes of memory `held` when it was sent."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    line = {"event": type(event).__name__, "held": held, "fields": values}
    return json.dumps(line, default=encode).encode() + b"\n"


def read_event(line: bytes) -> tuple[Event, int]:
    """Return the event of a line of JSON, and the bytes of memory that the worker held then."""
    data = json.loads(line)
    kind = EVENT_TYPES[data["event"]]
    return decode(kind, data["fields"], data["event"]), data["held"]


# -- worker --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The worker as a called function sees it: its listener, its limits, and its own folder.

    `seconds` and `memory` are those of the WorkerCall. The folder does not outlive the worker.
    """

    emit: Listener
    seconds: float
    memory: int
    folder: Path


def open_events(folder: Path, memory_of: Callable[[int], int]) -> Listener:
    """Return a function that writes events into a worker's folder, with the memory held then."""
    worker = os.getpid()
    path = (folder / EVENTS).resolve()

    def emit(event: Event) -> None:
        if os.getpid() != worker:
            os._exit(0)  # a forked child came back from the target into the engine
        # Opened each time: a target may close every file descriptor, or change the folder.
        descriptor = _open_to_append(path)
        try:
            rest = memoryview(write_event(event, memory_of(worker)))
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    return emit


def _open_to_append(path: Path) -> int:
    """Return a descriptor, even if the target has used up those that its process may have."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
