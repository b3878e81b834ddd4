"""The protocol of a worker: its request and its events; defined here only."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmproof.properties.codec import encode
from gemmproof.properties.proof import SECONDS
from gemmproof.settings import EXAMPLES

# The files of a worker's folder: its request, its events, and its Python stack.
REQUEST, EVENTS, STACK = "request.json", "events.jsonl", "stack.txt"
# A signal that targets hardly ever handle: it makes a hanging worker write its stack.
WHERE_SIGNAL = signal.SIGRTMIN + 7


Event = dict[str, Any]  # {"event": name, **EVENT_FIELDS[name]}, plain data
Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Request:
    """The request to a worker.

    `function` is "module:function", which gets the request and emits events; `plan` is what only it
    reads. The kernel is the one that `conftest` registers as `name`, or the function that `target`
    (fields of a Target) names, under `contract` (fields of a Contract), called by `calling` (fields
    of a Calling).
    `case` is the JSON of one case, `saved` that of cases to be tried first, `launch` asks for
    `--device cuda`, `limits` for steps beyond the contract, `proof` for a solver's proofs
    in `proof_seconds`, `check_model` for predicted launches to be compiled as well, `declared` and
    `sizes` are the accumulator and the K of a drift, `format` that of a drift, or the only one to
    judge of a registered kernel, `seconds` are counted for each simulated call and for
    each candidate of a shrink, `memory` bytes for one, and for a worker that compiles. `path`
    is searched first by imports, and `workdir` is the worker's own folder, which does not outlive
    it. If `fresh`, the process has imported nothing: Triton reads TRITON_INTERPRET when imported.
    """

    function: str
    name: str = ""
    conftest: str | None = None
    target: dict[str, Any] | None = None
    contract: dict[str, Any] = field(default_factory=dict)
    calling: dict[str, Any] = field(default_factory=dict)
    max_examples: int = EXAMPLES
    seed: int = 0
    gpu: str | None = None
    launch: bool = False
    limits: bool = False
    proof: bool = False
    proof_seconds: float = SECONDS
    check_model: bool = False
    case: str | None = None
    saved: tuple[str, ...] = ()
    end: str = ""
    seconds: float = 0.0
    memory: int = 0
    format: str = ""
    declared: str = ""
    sizes: tuple[int, ...] = ()
    config: int = 0
    plan: dict[str, Any] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    workdir: str = ""
    fresh: bool = False
    engine: str = ""

    def write(self, folder: Path) -> None:
        """Write the request to its folder, and create the files that the worker writes."""
        (folder / REQUEST).write_text(json.dumps(encode(self)))
        for name in (EVENTS, STACK):
            (folder / name).touch()

    @staticmethod
    def read(folder: Path) -> Request:
        """Return the request that was written to a worker's folder."""
        fields = json.loads((folder / REQUEST).read_text())
        tuples = {name: tuple(fields[name]) for name in ("sizes", "path", "saved")}
        return Request(**{**fields, **tuples, "workdir": str(folder)})


# The fields of a worker's events, by name: an event is {"event": name, **fields}.
EVENT_FIELDS: dict[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "ready": "",  # gemmproof's imports are done, the target's are next
        "kernels": "names formats alone",  # of a conftest, or the one loaded; device_only ones
        "source": "facts",  # the kernel's identity and its guarantees, before any case
        # the report so far; judged: on the whole contract, so that only what lies beyond is left
        "partial": "report judged",
        "proof": "properties seconds done",  # a proof begins or is done; what it may decide
        "saved": "tried dropped",  # the number of saved cases tried; those to be dropped
        "start": "examples",  # the number of requested cases
        # a case is about to run; the limit it tries; the share of the work that is done; or the
        # index-th launch of `of` is about to be compiled, and `case` identifies it
        "case": "case phase index limit share of",
        "printed": "lines",  # what the kernel printed
        "launched": "",  # a heartbeat between launches
        "compared": "launches equal outputs",  # of one case: calls, and elements as predicted
        "advanced": "",  # a heartbeat from a simulation
        "tried": "",  # a heartbeat between candidates of a shrink
        "device": "gpu",  # the GPU that launches, None for the simulator
        # a predicted launch is about to be compiled, or was
        "model_check": "launch number of done",
        "report": "report",  # the answer
        "unmeasured": "why",  # a registered kernel whose drift cannot be measured
        "timed": "row",  # the result of one measurement
        "explained": "explanation picture",  # the answer to an explanation
        "reproduced": "bug",  # the answer to a reproduction: the content of a test
        "located": "found",  # where a test finds a registered wrapper
        "interpreted": "outcomes",  # the outcomes of a test under Triton's interpreter
        "surveyed": "reached cases programs source",  # a kernel that is not yet mutated
        "lowered": "index result",  # a launch's compiled code, or why it is not known
        # guaranteed properties of compiled code, their GPUs; reasons for expected failures
        "promises": "names gpus expected",
        "planned": "plan",  # about the launches that are to be compiled
        # a mutant that is the same program, does not compile, or differs; if it is proved right
        "mutated": "fate why proved",
        "shrunk": "case",  # the answer to a shrink
        "done": "",  # the function returned
        "error": "message",  # the target cannot be judged
        "internal": "message",  # gemmproof itself failed
        "left": "how where",  # the target called sys.exit
        "full": "how",  # gemmproof itself was refused memory
    }.items()
}
ANSWERS = frozenset({"done", "error", "internal"})


def open_events(folder: Path, memory_of: Callable[[int], int]) -> Listener:
    """Return a function that writes events into a worker's folder, with the memory held then."""
    worker = os.getpid()
    path = (folder / EVENTS).resolve()

    def emit(event: Event) -> None:
        if os.getpid() != worker:
            os._exit(0)  # a forked child came back from the target into the engine
        unknown = event.keys() - {"event"} - EVENT_FIELDS[event["event"]]
        assert not unknown, f"event {event['event']}: got {unknown}"
        # Opened each time: a target may close every file descriptor, or change the folder.
        descriptor = _open_to_append(path)
        try:
            record = {**event, "held": memory_of(worker)}
            rest = memoryview(json.dumps(record).encode() + b"\n")
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
