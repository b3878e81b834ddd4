"""How much time and memory a worker may take, and what one that took more is said to have done."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmproof.reference.provenance import say_count
from gemmproof.worker import processes
from gemmproof.worker.protocol import WorkerExit

SLOWNESS = 3  # seconds on a slow machine for a counted one


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for loading the target, for one case and for all, and bytes of memory.

    The seconds are those of worker/clock.py. A case that gives a sign of life has them anew; a call
    that is simulated has as many that are counted (reference/work.py). All cases together may take
    `total`, or `each` for every case asked for, if that is more. `memory` was asked for, `free` is
    what the machine has.
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
    """The limit that the worker broke: "memory", "hang" or "time"."""
    # what gemmproof itself imports is not the target's
    if "ready" in worker.events and used > min(limits.memory, limits.free):
        return "memory"
    if still > _find_allowed(limits, worker):
        return "hang"
    asked = worker.events.get("start", {}).get("examples", 0)
    asked += worker.events.get("premise", {}).get("of", 0)
    return "time" if total > max(limits.total, limits.each * asked) else None


def _find_allowed(limits: Limits, worker: WorkerExit) -> float:
    """The seconds that a worker may take until its next sign of life."""
    if worker.is_proving:  # the prover counts its own time, which may be longer here
        return SLOWNESS * float(worker.events["proof"]["seconds"]) + limits.case
    return limits.case if worker.cases else limits.load


def explain_end(
    worker: WorkerExit, broken: str, limits: Limits, used: int, total: float, own: str | None
) -> None:
    """What a worker that broke a limit is said to have died of.

    `own` is the line of gemmproof's own that ran: then nothing is known of the kernel.
    """
    launched = worker.events.get("case", {}).get("phase") == "launch"
    if broken == "time":
        worker.end, worker.how = "time", f"{say_count(worker.cases, 'case')} took {total:.0f} s"
    elif broken == "hang" and own and not launched:
        allowed = _find_allowed(limits, worker)
        worker.end = "slow"
        worker.how = f"no sign of progress for {allowed:g} s in gemmproof's own code, at {own}"
    elif broken == "hang":
        allowed = _find_allowed(limits, worker)
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
