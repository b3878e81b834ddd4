"""Whether a GPU shows a bug in values, in words: what was simulated and tried, never a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gemmproof.report.text import clean
from gemmproof.reproduction.bug import ALWAYS, BY_CHANCE, ENDS, Bug

_GOT = re.compile(r": got (\S+), expected ")
# of a test under Triton's interpreter, by what lay around the operands: what it said where it
# failed, "" where it passed, or None and why it could not run
Outcomes = Mapping[str, tuple[str | None, str]]


def tell_gpu(bug: Bug, outcomes: Outcomes | str) -> list[str]:
    """Two lines: on a GPU, and under Triton's interpreter; a text is why that was not tried."""
    return [
        f"On a GPU: {_tell_gpu(bug, outcomes)}",
        f"Triton's interpreter: {tell_try(bug, outcomes)}",
    ]


def _tell_gpu(bug: Bug, outcomes: Outcomes | str) -> str:
    tried = (
        {} if isinstance(outcomes, str) else {name: said for name, (said, _) in outcomes.items()}
    )
    if bug.shown == ENDS:
        return "the call itself fails, as it did when it was simulated"
    if bug.shown == ALWAYS:
        place = f"{bug.finding.result}{list(bug.at or ())}"
        amid = "with zeros where nothing is defined as well"
        return f"values show it, {amid}: simulated, {place} is {bug.got}"
    if tried.get("zeros"):
        return "values show it, even with zeros around the operands"
    if tried.get("nan") and bug.finding.message.startswith(("store", "atomic")):
        return (
            "it may pass: what is overwritten lies beyond the tensor. This test keeps memory there"
            " and looks at it"
        )
    poison = "NaN" if any("float" in x.dtype for x in bug.operands) else "85"
    if tried.get("nan"):
        return (
            f"it may pass: what lies behind the operands decides. {poison} lies there in this test,"
            " which shows it; zeros hide it"
        )
    if bug.shown == BY_CHANCE:
        return (
            "it may pass: what undefined lanes hold decides, which is whatever registers and memory"
            " held before; as zeros they hide it"
        )
    return (
        f"it may pass: no value of this case shows {bug.finding.property}; the simulator and tools"
        " such as compute-sanitizer see the accesses themselves"
    )


def tell_try(bug: Bug, outcomes: Outcomes | str) -> str:
    """What became of the test under Triton's interpreter."""
    if isinstance(outcomes, str):
        return f"the test ends there: {clean(outcomes)}"
    (nan, why), (zeros, _) = outcomes["nan"], outcomes["zeros"]
    if nan is None:
        return f"the test stops there: {clean(why)}"
    if nan:
        amid = "" if zeros else " (with zeros around the operands it passes)"
        seen = _GOT.search(zeros or "")
        if bug.shown == ALWAYS and bug.got is not None and seen and float(seen[1]) != bug.got:
            amid = f"; simulated it was {bug.got}: the interpreter computes otherwise"
        return f"the test fails: {clean(nan)}{amid}"
    return "the test passes there"
