"""What a worker is asked, what it tells while it works, and how it ended: stated here only."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gemmproof.fake_device import REMEDY
from gemmproof.properties.proof import SECONDS
from gemmproof.settings import EXAMPLES

# The files of a worker's folder: what it is asked, what it tells, and its Python stack.
REQUEST, EVENTS, STACK = "request.json", "events.jsonl", "stack.txt"
# A signal that targets hardly ever handle: it asks a hanging worker where it is.
WHERE_SIGNAL = signal.SIGRTMIN + 7

ENGINE = "gemmproof.engine.check:check"

# Signals that Linux, a person or a batch system ends processes by; all others are a fault's own.
_NAMES = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGXCPU")
OUTSIDE = frozenset(getattr(signal, name) for name in _NAMES)
# The ends of a worker that say nothing about the kernel.
UNKNOWN_ENDS = frozenset({"time", "slow", "full", "killed", "halted"})

Listener = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What a worker is asked.

    `ask`: "list" the kernels of `conftest`, "load" one, "check" one, "shrink" the case of which it
    dies as `end` says, "drift", "explain" it in configuration `config`, "bench" what `plan` says
    (commands/bench.py), "reproduce" the finding of `plan`, "locate" its wrapper, "try" the test of
    `plan`, "mutate" as it says (mutate/run.py), tell of its "lowering" (lowering/task.py),
    "sweep" what Triton knows of its arguments (lowering/task.py), "preview" dots that no
    kernel has (lowering/task.py), or compile what its "claims" are judged by
    (lowering/guarantees.py). The kernel is the one that `conftest` registers as `name`, or the
    function that `target` (fields of a Target) names, under `contract` (fields of a Contract),
    called as `calling` (fields of a Calling) says.
    `case` is the JSON of one case, `kept` that of cases to be tried first, `launch` asks for
    `--device cuda`, `limits` for what lies beyond the contract, `proof` for what a solver decides
    in `proof_seconds`, `premise` for what is predicted to be compiled as well, `declared` and
    `sizes` are the accumulator and the K of a drift, `format` that of a drift, or the only one to
    judge of a registered kernel, `seconds` are counted for each simulated call and for
    each candidate of a shrink, `memory` bytes for one, and for a worker that is to compile. `path`
    is looked through first for what is imported, and `room` is the worker's own folder, which does
    not outlive it.
    """

    ask: str
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
    premise: bool = False
    case: str | None = None
    kept: tuple[str, ...] = ()
    end: str = ""
    seconds: float = 0.0
    memory: int = 0
    format: str = ""
    declared: str = ""
    sizes: tuple[int, ...] = ()
    config: int = 0
    plan: dict[str, Any] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    room: str = ""
    engine: str = field(default_factory=lambda: ENGINE)

    def write(self, folder: Path) -> None:
        """Leave the request, and the files that the worker writes, in its folder."""
        (folder / REQUEST).write_text(json.dumps(asdict(self)))
        for name in (EVENTS, STACK):
            (folder / name).touch()

    @staticmethod
    def read(folder: Path) -> Request:
        """The request that was left in a worker's folder."""
        stated = json.loads((folder / REQUEST).read_text())
        tuples = {name: tuple(stated[name]) for name in ("sizes", "path", "kept")}
        return Request(**{**stated, **tuples, "room": str(folder)})

    def shrink(self, case: str, end: str, memory: int) -> Request:
        """The request for the smallest case of which the same kernel dies so."""
        return replace(self, ask="shrink", case=case, end=end, memory=memory)


# What a worker tells, by name: an event is {"event": name, **fields}.
EVENT_FIELDS: dict[str, frozenset[str]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "ready": "",  # what gemmproof needs is imported, the target is about to be
        "kernels": "names formats alone",  # of a conftest, or the one loaded; device_only ones
        "source": "facts",  # what is judged, and what it promises: before any case
        # (name, claim, backend) of each; what a and b are called; why which are expected to fail
        "properties": "claims names expected",
        "proof": "properties seconds done",  # a proof begins or is done; what it may be about
        "kept": "tried dropped",  # how many kept cases were tried; those not to be kept any longer
        "start": "examples",  # how many cases are asked for
        # a case is about to run; which limit it tries; how much of all the work is done; or the
        # index-th launch of so many is about to be compiled, and `case` says which one
        "case": "case phase index limit share of",
        "judged": "index seconds examples ratios backend",  # the properties that a case bore on
        "finding": "finding",  # the first sight of a fault
        "printed": "lines",  # what the kernel printed
        "launched": "",  # a sign of life between launches
        "compared": "launches equal outputs",  # of one case: calls, and elements as predicted
        "advanced": "",  # a sign of life from a simulation
        "tried": "",  # a sign of life between candidates of a shrink
        "device": "gpu",  # the GPU that launches, None for the simulator
        # a predicted launch is about to be compiled, or was
        "premise": "launch number of done",
        "promised": "report",  # the answer, before what lies beyond the contract is tried
        "limit": "limit",  # what became of one step beyond the contract
        "report": "report",  # the answer
        "unmeasured": "why",  # a registered kernel whose drift there is no way to measure
        "timed": "row",  # what one measurement gave
        "explained": "explanation picture",  # the answer to an explanation
        "reproduced": "bug",  # the answer to a reproduction: what a test states
        "located": "found",  # where a test finds a registered wrapper
        "interpreted": "outcomes",  # what became of a test under Triton's interpreter
        "surveyed": "reached cases programs source",  # a kernel that is not yet mutated
        "lowered": "lowering variant",  # what a launch was compiled to; of a sweep, what differs
        # properties of compiled code that are promised, on which GPUs; why which should fail
        "promises": "names gpus expected",
        "planned": "plan",  # what is to be compiled for the claims of a contract
        "weighed": "index weighed",  # what one of these launches says of them
        "compiled": "launches notes",  # how many there are: all were told of
        # a mutant that is the same program, does not compile, or differs; where it is proved right
        "mutated": "fate why proved",
        "shrunk": "case",  # the answer to a shrink
        "error": "message",  # the target cannot be judged
        "internal": "message",  # gemmproof itself failed
        "left": "how where",  # the target called sys.exit
        "full": "how",  # gemmproof itself was refused memory
    }.items()
}
ANSWERS = frozenset(
    {"report", "explained", "error", "internal", "kernels", "shrunk"}
    | {"reproduced", "located", "interpreted", "mutated", "unmeasured", "compiled"}
)


def open_events(folder: Path, memory_of: Callable[[int], int]) -> Listener:
    """A function that writes events into a worker's folder, each with the memory held by then."""
    worker = os.getpid()
    path = (folder / EVENTS).resolve()

    def emit(event: dict[str, Any]) -> None:
        if os.getpid() != worker:
            os._exit(0)  # a forked child came back from the target into the engine
        unknown = event.keys() - {"event"} - EVENT_FIELDS[event["event"]]
        assert not unknown, f"event {event['event']}: got {unknown}"
        # Opened each time: a target may close every file descriptor, or change the folder.
        descriptor = _open_to_append(path)
        try:
            told = {**event, "held": memory_of(worker)}
            rest = memoryview(json.dumps(told).encode() + b"\n")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    return emit


def _open_to_append(path: Path) -> int:
    """A descriptor, also where the target has used up those that its process may have."""
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@dataclass(slots=True)
class WorkerExit:
    """What a worker left: how it ended, its last event of each name, and its output.

    `end` is a word of the table in gemmproof/worker/__init__.py. `how` says it in words; `where` is
    the line of the target that ran, and `file` its path, where known. `examples` counts the cases
    that each property judged, by its name and backend. `undecided` says why a proof was left out,
    in which an earlier worker died, of the properties that it may have been about.
    """

    end: str = "done"
    how: str = ""
    where: str | None = None
    file: str | None = None
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    limits: list[dict[str, Any]] = field(default_factory=list)
    examples: Counter[tuple[str, str]] = field(default_factory=Counter)
    ratios: dict[tuple[str, str], float] = field(default_factory=dict)
    cases: int = 0
    output: str = ""
    output_bytes: int = 0
    seconds: float = 0.0
    undecided: dict[str, str] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        """Take in one event."""
        name = event["event"]
        self.events[name] = event
        if name == "case":
            self.cases += 1
        elif name == "judged":
            backend = event["backend"]
            self.examples.update((judged, backend) for judged in event["examples"])
            for judged, ratio in event["ratios"].items():
                key = (judged, backend)
                self.ratios[key] = max(ratio, self.ratios.get(key, ratio))
        elif name == "finding":
            self.findings.append(event["finding"])
        elif name == "limit":
            self.limits.append(event["limit"])

    @property
    def is_proving(self) -> bool:
        """Whether a proof was under way when the last event came."""
        return self.events.get("proof", {"done": True})["done"] is False

    def list_undecided(self) -> dict[str, str]:
        """Of a worker that died of a proof, what that was about, and why nothing is known of it."""
        if not self.is_proving or self.end == "halted" or self.events.keys() & ANSWERS:
            return {}
        why = f"the proof ended early: {self.how}"
        return dict.fromkeys(self.events["proof"]["properties"], why)

    def classify(self, status: int) -> None:
        """How a worker ended by itself: with its answer, or without."""
        if self.events.keys() & ANSWERS:
            return
        if "full" in self.events:
            self.end, self.how = "full", self.events["full"]["how"]
        elif "left" in self.events:
            self.end, self.how = "left", self.events["left"]["how"]
            self.where = self.events["left"]["where"]
            self.file = self.where and self.where.rpartition(":")[0]
        elif status < 0:
            names = {s.value: s.name for s in signal.Signals}
            name = names.get(-status, f"signal {-status}")
            self.end, self.how = "crash", f"a process that died of {name}"
            if -status in OUTSIDE:
                oom = " (Linux does so where memory runs out)" * (name == "SIGKILL")
                self.end, self.how = "killed", f"killed from outside by {name}{oom}"
            elif "std::bad_alloc" in self.output:
                self.end, self.how = "full", f"this machine refused memory: {self.how}"
        else:
            self.end, self.how = "crash", f"a process that ended itself with status {status}"

    def explain_failure(self, name: str) -> str | None:
        """Why a worker that was asked about `name` gave no answer, in one line.

        None where it answered, or died at a case: then the kernel is to blame.
        """
        if "error" in self.events:
            return str(self.events["error"]["message"])
        case = f" (case {self.events['case']['case']})" if "case" in self.events else ""
        if "internal" in self.events:
            message = self.events["internal"]["message"]
            return f"gemmproof itself failed, please report it: {message}{case}"
        if self.events.keys() & ANSWERS or case:
            return None
        remedy = f"; {REMEDY}" if self.end in ("hang", "memory") else ""
        return f"{self.where or name}: loading it: {self.how}{remedy}"
