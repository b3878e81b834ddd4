"""Whether what was predicted in a check is what the compiler makes: asked for, or in doubt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gemmproof.engine.judge import Judged
from gemmproof.lowering.premise.check import PremiseCheck, Tell
from gemmproof.reference.gpus import TARGETS
from gemmproof.report.report import Report


def open_premises(
    asked: bool,
    target: str | None,
    launch: bool,
    seconds: float,
    memory: int | None,
    tell: Tell,
    room: str | None = None,
) -> PremiseCheck:
    """What compiles the launches of a check. Raises ValueError where none would be predicted."""
    if asked and target not in TARGETS and not launch:
        expected = f"one of {' '.join(TARGETS)}"
        raise ValueError(f"premise: got target {target}, expected {expected}, which are predicted")
    made = PremiseCheck(tell, seconds, every=asked)
    made.memory, made.room = memory or made.memory, room
    return made


def add_premises(
    report: Report, premises: PremiseCheck, target: str | None, judged: Iterable[Judged]
) -> Report:
    """The report with what became of the premises; incomplete where one does not hold.

    The report is told before any launch is compiled, so that it outlives the compiler.
    """
    if premises.every and report.verdict != "error":
        for one in judged:
            premises.note(target, one.launches)
        premises.tell({"event": "promised", "report": report.to_dict()})
        premises.check_noted()
    found = premises.conclude()
    if found is None:
        return report
    report = replace(report, premises=found)
    if found.is_kept or report.verdict == "error":
        return report
    said = report.note or ""  # a launch whose bits differ told its own
    told = (line for line in (*found.contradicted[:1], *found.failed[:1]) if line not in said)
    verdict = "incomplete" if report.verdict == "pass" else report.verdict
    return replace(report, verdict=verdict, note="; ".join(filter(None, (said, *told))))
