"""The ends of workers: what killed one, or whether it answered.

Every end that a worker can have, and its verdict; exit codes in parentheses:

| the worker                                                        | end    | verdict        |
|-------------------------------------------------------------------|--------|----------------|
| answers                                                           | done   | its own        |
| dies of SIGSEGV, SIGABRT or another fault, or of os._exit         | crash  | a finding (1)  |
| calls sys.exit                                                    | left   | a finding (1)  |
| spends a case's seconds in the target's Python, with no launch    | hang   | a finding (1)  |
| spends them in gemmproof's own code                               | slow   | incomplete (3) |
| spends more than all cases may take                               | time   | incomplete (3) |
| exceeds --memory-limit, most of it allocated by the target's code | memory | a finding (1)  |
| exceeds it otherwise, or the machine's free memory; is refused it | full   | incomplete (3) |
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

from gemmproof.fake_device import REMEDY
from gemmproof.worker.processes import format_signal
from gemmproof.worker.protocol import ANSWERS, Event

# Signals by which Linux, a person or a batch system ends processes; all others mean a fault.
_NAMES = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGXCPU")
OUTSIDE = frozenset(getattr(signal, name) for name in _NAMES)
# The ends of a worker that decide nothing about the kernel.
UNKNOWN_ENDS = frozenset({"time", "slow", "full", "killed", "halted"})


@dataclass(slots=True)
class WorkerExit:
    """The exit of a worker: how it ended, its last event of each name, and its output.

    `end` is an entry of the table above. `how` is its text; `where` is
    the line of the target that ran, and `file` its path, if known. `undecided` gives, for the
    properties of a proof that killed an earlier worker and was then skipped, the reason.
    """

    end: str = "done"
    how: str = ""
    where: str | None = None
    file: str | None = None
    events: dict[str, Event] = field(default_factory=dict)
    cases: int = 0
    output: str = ""
    output_bytes: int = 0
    seconds: float = 0.0
    undecided: dict[str, str] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Record one event."""
        self.events[event["event"]] = event
        self.cases += event["event"] == "case"

    @property
    def is_proving(self) -> bool:
        """True if a proof was in progress at the last event."""
        return self.events.get("proof", {"done": True})["done"] is False

    def list_undecided(self) -> dict[str, str]:
        """Return the properties of the proof that killed the worker, each with the reason."""
        if not self.is_proving or self.end == "halted" or self.events.keys() & ANSWERS:
            return {}
        reason = f"the proof ended early: {self.how}"
        return dict.fromkeys(self.events["proof"]["properties"], reason)

    def classify(self, status: int) -> None:
        """Set the end of a worker that exited without being stopped, with or without its answer."""
        if self.events.keys() & ANSWERS:
            return
        if "full" in self.events:
            self.end, self.how = "full", self.events["full"]["how"]
        elif "left" in self.events:
            self.end, self.how = "left", self.events["left"]["how"]
            self.where = self.events["left"]["where"]
            self.file = self.where and self.where.rpartition(":")[0]
        elif status < 0:
            name = format_signal(-status)
            self.end, self.how = "crash", f"a process that died of {name}"
            if -status in OUTSIDE:
                oom = " (Linux does so where memory runs out)" * (name == "SIGKILL")
                self.end, self.how = "killed", f"killed from outside by {name}{oom}"
            elif "std::bad_alloc" in self.output:
                self.end, self.how = "full", f"this machine refused memory: {self.how}"
        else:
            self.end, self.how = "crash", f"a process that ended itself with status {status}"

    def explain_failure(self, name: str) -> str | None:
        """Return, in one line, why a worker that was asked about `name` gave no answer.

        None if it answered, or died at a case: then the kernel is at fault.
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
