"""Which findings of many cases are one fault, and which instance of it says most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gemmproof.engine.judge import Judged
from gemmproof.properties import table
from gemmproof.properties.finding import Finding, Key
from gemmproof.properties.judges import memory_use


def dedupe(judged: Iterable[Judged]) -> list[Finding]:
    """The simplest instance of every fault, root causes first, in the table's order.

    An instance that is a root cause comes before any that is a consequence.
    """
    best: dict[Key, Finding] = {}
    for one in judged:
        for finding in one.findings:
            held = best.get(finding.key)
            if held is None or _rank(finding) < _rank(held):
                best[finding.key] = finding
    kept = [f for f in best.values() if not any(_says_more(g, f) for g in best.values())]
    order = list(table.BY_NAME)
    return sorted(kept, key=lambda f: (f.cause is not None, order.index(f.property)))


def _says_more(finding: Finding, other: Finding) -> bool:
    """Whether a finding is the other one with the axis named, as a larger case can show."""
    return (
        (finding.property, finding.fault) == (other.property, other.fault)
        and finding.operand == other.operand
        and other.where in (None, finding.where)
        and other.axis is None
        and finding.axis is not None
    )


def _rank(finding: Finding) -> tuple[Any, ...]:
    return (finding.cause is not None, finding.case.rank)


def find_no_launch(judged: Sequence[Judged]) -> list[Finding]:
    """One finding if no case with any work launched a kernel: then nothing was checked.

    A wrapper may leave some sizes to torch: only where all cases did is that a finding.
    """
    usual = (j for j in judged if j.raised is None and not j.case.is_sampled)
    worked = [j for j in usual if j.case.M and j.case.N and j.case.K]
    if not worked or any(j.launches for j in worked):
        return []
    cases = f"{len(worked)} cases" if len(worked) > 1 else "this case"
    return [
        Finding(
            property=memory_use.ENDS,
            fault="no_launch",
            message=f"the call: got no kernel launch in {cases}, expected at least one",
            case=worked[0].case,
            got="no kernel launch",
            expected="at least one",
        )
    ]
