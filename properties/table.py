"""The table of properties: what must hold of every GEMM kernel, root causes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gemmproof.properties import (
    completion,
    inputs,
    mirror,
    order,
    repeat,
    rows,
    special,
    symmetry,
    values,
)
from gemmproof.properties.addresses import (
    BOUNDS,
    COMPILES,
    FIT,
    HINTS,
    LANES,
    ONCE,
    RACES,
    judge_faults,
)
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome
from gemmproof.reference.formats import FORMATS


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
    `sound`: it is judged only where nothing was found that can change a value, because what it
    compares with the result is wrong then too.
    """

    name: str
    claim: str
    judge: Callable[[Outcome], Iterator[Finding]]
    applies: Callable[[Outcome], bool] = _ended
    ratio: Callable[[Outcome], float | None] | None = None
    follows: tuple[str, ...] = ()
    sound: bool = False


# what makes a wrong address, or a lane that is not the compiled kernel's
ADDRESSES = (BOUNDS, FIT, HINTS)
# what changes no value by itself
HARMLESS = (BOUNDS, HINTS)
# what makes a wrong value
VALUES = (FIT, HINTS, ONCE, RACES, LANES, inputs.NAME)

PROPERTIES: tuple[Property, ...] = (
    Property(
        COMPILES,
        "every specialisation and configuration that the contract admits is one that Triton"
        " compiles",
        completion.judge_compiles,
        applies=_known,
    ),
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
        follows=(FIT,),
    ),
    Property(
        FIT,
        "no offset leaves the range of its integer type, on views of the hugest parent either",
        judge_faults(FIT),
    ),
    Property(
        HINTS,
        "every hint to the compiler is true, and every descriptor keeps the copy engine's rules",
        judge_faults(HINTS),
    ),
    Property(
        RACES,
        "no program reads or overwrites what another program stores in the same launch",
        judge_faults(RACES),
        follows=(BOUNDS,),
    ),
    Property(
        ONCE,
        "every element of the result is stored exactly once, or accumulated onto a defined value",
        judge_faults(ONCE),
        follows=ADDRESSES,
    ),
    Property(
        LANES,
        "a lane that nothing defined decides nothing and never reaches the result",
        judge_faults(LANES),
        follows=(FIT,),
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
        follows=(*ADDRESSES, ONCE, RACES, LANES),
    ),
    Property(
        values.EXACT,
        "the product of integers whose sums are exact is exact",
        values.judge_exact,
        applies=values.exact_applies,
        follows=(*VALUES, mirror.NAME),
    ),
    Property(
        values.BOUND,
        "|c - a b| is within what the declared accumulator and one rounding allow",
        values.judge_bound,
        applies=values.bound_applies,
        ratio=values.largest_ratio,
        follows=(*VALUES, mirror.NAME, values.EXACT),
    ),
    Property(
        repeat.NAME,
        "three calls over different dirty memory give the same bits",
        repeat.judge,
        applies=repeat.applies,
        follows=VALUES,
    ),
    Property(
        special.NAME,
        "what is no finite number (NaN, Inf, overflow) is where the product has it, and only there",
        special.judge,
        applies=special.applies,
        sound=True,
    ),
    Property(
        symmetry.NAME,
        "negated, scaled, permuted, zero-padded and transposed operands give c so changed",
        symmetry.judge,
        applies=symmetry.applies,
        sound=True,
    ),
    Property(
        order.NAME,
        "a call after others, of other shapes, strides and formats, gives the bits of a fresh one",
        order.judge,
        applies=order.applies,
        sound=True,
    ),
    Property(
        rows.NAME,
        "the bits of a row of c are the same at every M",
        rows.judge,
        applies=rows.applies,
        sound=True,
    ),
)
BY_NAME = {p.name: p for p in PROPERTIES}


def owed(kernel: KernelUnderTest) -> tuple[Property, ...]:
    """The properties that a kernel is held to: what nobody promised, or has no sense, is left out.

    Sums of integers have no bound and no NaN; a mirror has to be written, and that a row's bits do
    not depend on M has to be promised.
    """
    integers = all(FORMATS[name].kind == "int" for name in kernel.contract.formats)
    absent = {values.BOUND, special.NAME} if integers else set()
    if kernel.mirror is None:
        absent.add(mirror.NAME)
    if not kernel.contract.batch_invariant:
        absent.add(rows.NAME)
    return tuple(p for p in PROPERTIES if p.name not in absent)
