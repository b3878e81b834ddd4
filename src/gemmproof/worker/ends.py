"""The ends of workers: what killed one, or whether it answered.

Every end that a worker can have, and its verdict; exit codes in parentheses:

| the worker                                                        | end    | verdict        |
|-------------------------------------------------------------------|--------|----------------|
| answers                                                           | done   | its own        |
| dies of SIGSEGV, SIGABRT or another fault                         | crash  | a finding (1)  |
| calls os._exit, or sends its own process a signal that ends it    | crash  | a finding (1)  |
| calls sys.exit, or raises KeyboardInterrupt                       | left   | a finding (1)  |
| spends a case's seconds in the target's Python, with no launch    | hang   | a finding (1)  |
| spends them in gemmproof's own code                               | slow   | incomplete (3) |
| spends more than all cases may take                               | time   | incomplete (3) |
| exceeds --memory-limit or the machine's free memory; is refused it | full   | incomplete (3) |
| dies of SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGXCPU      | killed | runs again; if |
|                                                                   |        | it dies again, |
|                                                                   |        | incomplete (3) |
| still runs when the command is interrupted                        | halted | incomplete (3) |
| dies, or breaks a limit, in a proof                               | as is  | runs again     |
|                                                                   |        | without it     |
| has an end that would be a finding while loading the target       | as is  | an error (2)   |
| holds more than the limit before it loads the target              | full   | an error (2)   |

Within a worker that lives, the engine classifies each call likewise: a kernel that repeats itself
without end is a finding; one that otherwise runs out of CPU time or memory leaves its case
unjudged, and the check incomplete (reference/simulator/session.py); an unknown host call or launch
option is an error (2).
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gemmproof.fake_device import REMEDY
from gemmproof.properties.codec import decode
from gemmproof.worker.processes import format_signal
from gemmproof.worker.protocol import (
    CaseStarted,
    Done,
    Event,
    Exits,
    Failed,
    ModelCheckStarted,
    PartialReport,
    PartialResult,
    ProofEnded,
    ProofStarted,
    Ready,
    Started,
)

T = TypeVar("T")

# Signals by which Linux, a person or a batch system ends processes; all others mean a fault.
_NAMES = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGXCPU")
OUTSIDE = frozenset(getattr(signal, name) for name in _NAMES)
# The ends of a worker that decide nothing about the kernel.
UNKNOWN_ENDS = frozenset({"time", "slow", "full", "killed", "halted"})


@dataclass(slots=True)
class WorkerExit:
    """The exit of a worker: how it ended, what its events say, and its output.

    `end` is an entry of the table above. `how` is its text; `where` is
    the line of the target that ran, and `file` its path, if known. `undecided` gives, for the
    properties of a proof that killed an earlier worker and was then skipped, the reason.

    `done` has the result of the call, `failure` why there is none, `parts` what was known before,
    by name. `case` is the last one that started, of `cases`; `proof` the one that is in progress;
    `exits` the last event, if the target said in it that it ends its process.
    `held_when_ready` and `held_at_case` are bytes of memory.
    """

    end: str = "done"
    how: str = ""
    where: str | None = None
    file: str | None = None
    done: Done | None = None
    failure: Failed | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    partial: PartialReport | None = None
    examples: int = 0
    case: CaseStarted | None = None
    cases: int = 0
    proof: ProofStarted | None = None
    model_check: ModelCheckStarted | None = None
    exits: Exits | None = None
    held_when_ready: int | None = None
    held_at_case: int = 0
    output: str = ""
    output_bytes: int = 0
    seconds: float = 0.0
    undecided: dict[str, str] = field(default_factory=dict)

    def take(self, event: Event, held: int = 0) -> None:
        """Record one event, and the bytes of memory that the worker held then."""
        self.exits = event if isinstance(event, Exits) else None
        match event:
            case Ready():
                self.held_when_ready = held
            case Started(examples):
                self.examples = examples
            case CaseStarted():
                self.case, self.held_at_case = event, held
                self.cases += 1
            case PartialReport():
                self.partial = event
            case ProofStarted():
                self.proof = event
            case ProofEnded():
                self.proof = None
            case ModelCheckStarted():
                self.model_check = event
            case PartialResult(name, value):
                self.parts[name] = value
            case Done():
                self.done = event
            case Failed():
                self.failure = event

    def read_result(self, kind: type[T]) -> T | None:
        """Return the result of the call, or None if it gave none."""
        return None if self.done is None else decode(kind, self.done.result, "result")

    def read_part(self, name: str, kind: type[T]) -> T | None:
        """Return a part of the result by its name, or None if it was not sent."""
        return decode(kind, self.parts[name], name) if name in self.parts else None

    @property
    def has_answer(self) -> bool:
        """True if the call returned, or if the worker lived to say why it did not."""
        return self.done is not None or self.has_error

    @property
    def has_error(self) -> bool:
        """True if the target cannot be judged, or gemmproof itself failed."""
        return self.failure is not None and self.failure.kind in ("error", "internal")

    @property
    def is_internal(self) -> bool:
        """True if gemmproof itself failed."""
        return self.failure is not None and self.failure.kind == "internal"

    @property
    def is_launching(self) -> bool:
        """True if the last case that started was launched on a GPU."""
        return self.case is not None and self.case.phase == "launch"

    def list_undecided(self) -> dict[str, str]:
        """Return the properties of the proof that killed the worker, each with the reason."""
        if self.proof is None or self.end == "halted" or self.has_answer:
            return {}
        return dict.fromkeys(self.proof.properties, f"the proof ended early: {self.how}")

    def classify(self, status: int) -> None:
        """Set the end of a worker that exited without being stopped, with or without its answer."""
        if self.has_answer:
            return
        if self.failure:
            self.end, self.how, self.where = "full", self.failure.message, self.failure.where
            if self.failure.kind == "left":
                self.end, self.file = "left", self.where and self.where.rpartition(":")[0]
        elif self.exits is not None and self.exits.status == status:
            self.end, self.how = "crash", self.exits.how
            self.where, self.file = self.exits.where, self.exits.file
        elif status < 0:
            name = format_signal(-status)
            self.end, self.how = "crash", f"the process died of {name}"
            if -status in OUTSIDE:
                oom = " (Linux does this when memory runs out)" * (name == "SIGKILL")
                self.end, self.how = "killed", f"the process was killed from outside by {name}{oom}"
            elif "std::bad_alloc" in self.output:
                self.end, self.how = "full", f"this machine refused an allocation: {self.how}"
        else:
            self.end, self.how = "crash", f"the process exited with status {status}"

    def explain_failure(self, name: str) -> str | None:
        """Return, in one line, why a worker that was asked about `name` gave no answer.

        None if it answered, or died at a case: then the kernel is at fault.
        """
        case = f" (case {self.case.case})" if self.case else ""
        if self.failure is not None and self.failure.kind == "error":
            return self.failure.message
        if self.failure is not None and self.failure.kind == "internal":
            return f"gemmproof itself failed, please report it: {self.failure.message}{case}"
        if self.done or self.case:
            return None
        remedy = f"; {REMEDY}" if self.end in ("hang", "full") else ""
        return f"{self.where or name}: while loading it, {self.how}{remedy}"
