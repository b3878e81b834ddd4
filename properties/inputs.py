"""The property that operands, their gaps and the memory around them are left as they were."""

from __future__ import annotations

from collections.abc import Iterator

from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome

NAME = "leaves_inputs_untouched"


def judge(outcome: Outcome) -> Iterator[Finding]:
    """One finding per operand and kind of memory that changed."""
    for change in outcome.touched:
        noun = {"element": "elements", "gap": "gap elements", "guard": "guard elements"}
        if change.what == "view":
            got, expected = change.place, "the view it was given"
        else:
            got = f"{change.count} {noun[change.what]} changed, first {change.place}"
            expected = "none changed"
        yield Finding(
            property=NAME,
            fault=f"{change.what}_changed",
            message=f"operand {change.operand}: got {got}, expected {expected}",
            case=outcome.case,
            operand=change.operand,
            got=got,
            expected=expected,
        )
