"""The table of properties: what must hold of every GEMM kernel, root causes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gemmproof.properties import completion, inputs, mirror, repeat, values
from gemmproof.properties.addresses import BOUNDS, LANES, ONCE, judge_faults
from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome


def _ended(outcome: Outcome) -> bool:
    return len(outcome.runs) > 0 and outcome.known


def _known(outcome: Outcome) -> bool:
    return outcome.known


@dataclass(frozen=True, slots=True)
class Property:
    """A claim that is true of a good kernel, and the judge that finds where it is not.

    `applies(outcome)` says whether an outcome bears on the claim; `judge` yields what is wrong.
    `ratio(outcome)` measures error over bound, where there is a bound. `follows` names properties
    whose findings, in the same case, bring findings of this one about (judged.py says when).
    """

    name: str
    claim: str
    judge: Callable[[Outcome], Iterator[Finding]]
    applies: Callable[[Outcome], bool] = _ended
    ratio: Callable[[Outcome], float | None] | None = None
    follows: tuple[str, ...] = ()


PROPERTIES: tuple[Property, ...] = (
    Property(
        completion.NAME,
        "every call that the contract admits returns a new tensor of the product's shape",
        completion.judge,
        applies=_known,
    ),
    Property(
        BOUNDS,
        "every unmasked lane addresses an element of its operand",
        judge_faults(BOUNDS),
    ),
    Property(
        ONCE,
        "every element of the result is stored exactly once, or accumulated onto a defined value",
        judge_faults(ONCE),
        follows=(BOUNDS,),
    ),
    Property(
        LANES,
        "a lane that nothing defined decides nothing and never reaches the result",
        judge_faults(LANES),
    ),
    Property(
        inputs.NAME,
        "operands, the gaps in them and the memory around them are left as they were",
        inputs.judge,
        applies=_known,
    ),
    Property(
        mirror.NAME,
        "the kernel's own body touches the offsets that its mirror states, under the same masks",
        mirror.judge,
        applies=mirror.applies,
        follows=(BOUNDS, ONCE, LANES),
    ),
    Property(
        values.EXACT,
        "the product of integers whose sums are exact is exact",
        values.judge_exact,
        applies=values.exact_applies,
        follows=(ONCE, LANES, inputs.NAME, mirror.NAME),
    ),
    Property(
        values.BOUND,
        "|c - a b| is within what the declared accumulator and one rounding allow",
        values.judge_bound,
        applies=values.bound_applies,
        ratio=values.largest_ratio,
        follows=(ONCE, LANES, inputs.NAME, mirror.NAME, values.EXACT),
    ),
    Property(
        repeat.NAME,
        "three calls over different dirty memory give the same bits",
        repeat.judge,
        applies=repeat.applies,
        follows=(ONCE, LANES, inputs.NAME),
    ),
)
BY_NAME = {p.name: p for p in PROPERTIES}
