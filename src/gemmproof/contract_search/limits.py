"""The limits of a contract: steps that a kernel does not hold, by cases or by proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from gemmproof.contract_search.steps import ContractStep, list_beyond, list_keywords, narrow
from gemmproof.engine.observe import CaseResult
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile, smallest
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.contract import AXES, Contract
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import memory_use
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.reference.provenance import format_error
from gemmproof.reference.spec import SpecError
from gemmproof.reference.work import counted_seconds
from gemmproof.report.record import Limit

# -- outcomes ------------------------------------------------------------------------------------
HOLDS, LIMIT, NOT_TRIED = "holds", "limit", "not tried"

Judge = Callable[[KernelUnderTest, Case, ContractStep], CaseResult]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step: the status of its limit, what decided it, and the finding there."""

    step: ContractStep
    status: str
    reason: str = ""
    case: Case | None = None
    finding: Finding | None = None

    @property
    def limit(self) -> Limit:
        """The outcome as a report has it."""
        return Limit(self.step.name, self.step.option, self.status, self.reason, self.case)


def try_cases(kernel: KernelUnderTest, step: ContractStep, judge: Judge) -> Outcome:
    """Return the first case of a step that fails or shows nothing, or that all of them hold."""
    wider = step.apply(kernel)
    for case in step.cases:
        try:
            judged = judge(wider, case, step)
        except (ContractError, SpecError) as error:  # the contract does not cover this case
            return Outcome(step, NOT_TRIED, str(error), case)
        root = next((f for f in judged.findings if f.cause is None), None)
        if root is not None:
            return Outcome(step, LIMIT, root.message, case, root)
        if judged.raised is not None:  # the simulator cannot follow the kernel there
            return Outcome(step, NOT_TRIED, judged.raised.text, case)
        if case.is_sampled and not judged.followed:
            reason = "what the call does depends on elements of a result that is too large"
            return Outcome(step, NOT_TRIED, reason, case)
    return Outcome(step, HOLDS)


def try_proof(
    kernel: KernelUnderTest,
    step: ContractStep,
    target: str | None,
    until: float,
    needs: Set[str] = frozenset(),
) -> Outcome:
    """Return that a step is proved, or a case that refutes it, or that it was not decided.

    `needs`: properties without which a step is not decided. No proof is about the results of a
    formula, for example.
    """
    from gemmproof.properties.proof import PROVED, REFUTED
    from gemmproof.properties.proof.prove import prove  # imports the solver

    left = until - counted_seconds()
    if left <= 0:
        return Outcome(step, NOT_TRIED, "no time was left")
    verdicts = prove(step.apply(kernel), target, left).verdicts
    if verdicts and all(x.status == PROVED for x in verdicts):
        if needs <= {x.property for x in verdicts}:
            return Outcome(step, HOLDS)
        return Outcome(step, NOT_TRIED, "no proof is about the property that fails")
    refuted = next((x for x in verdicts if x.status == REFUTED), None)
    if refuted is None:
        return Outcome(step, NOT_TRIED, "it was not decided")
    case = None if refuted.case is None else Case.from_json(refuted.case)
    return Outcome(step, LIMIT, "refuted", case)


# -- wider contracts -----------------------------------------------------------------------------
# counted, for all steps beyond the contract; steps not reached are reported as not tried
LIMIT_SECONDS = 20.0


def find_limits(kernel: KernelUnderTest, tile: Tile, judge: Judge) -> Iterator[Outcome]:
    """Yield, for every step beyond the contract, that it holds, or the first case that fails.

    If other strides are a limit, a misaligned base and spans are not tried: they are views too.
    """
    until, limited = counted_seconds() + LIMIT_SECONDS, set()
    for step in (*list_keywords(kernel, tile), *list_beyond(kernel.contract, tile)):
        if "any strides" in limited and step.changes.get("layouts") == ANY:
            continue
        if counted_seconds() > until:
            yield Outcome(step, NOT_TRIED, "no time was left")
            continue
        outcome = try_cases(kernel, step, judge)
        if outcome.status != HOLDS:
            limited.add(step.name)
        yield outcome


# -- exact limits --------------------------------------------------------------------------------
EXACT_SECONDS = 5.0  # counted, to solve for one limit
MOST_STEP = 1024  # the largest divisor that sizes may need

JudgeCase = Callable[[Case], CaseResult]


def sharpen(kernel: KernelUnderTest, target: str | None, outcome: Outcome, judge: Judge) -> Limit:
    """Return a limit with the size at which it begins, as far as that is decided."""
    try:
        proof = _format_begin(kernel, target, outcome, judge)
    except Exception as error:  # the wrapper over symbols, and z3, may raise anything
        proof = f"the exact limit is unknown: the proof raised {format_error(error)}"
    return replace(outcome.limit, proof=proof)


def _format_begin(
    kernel: KernelUnderTest, target: str | None, outcome: Outcome, judge: Judge
) -> str:
    step, finding = outcome.step, outcome.finding
    if finding is None or outcome.case is None:
        return ""
    wider = step.apply(kernel)
    wider = replace(wider, contract=replace(wider.contract, formats=(outcome.case.dtype,)))

    def judge_case(case: Case) -> CaseResult:
        return judge(wider, case, step)

    if finding.property == memory_use.FIT:
        return _format_wraps(wider, target, judge_case)
    axis = next((axis for axis in step.changes if axis in AXES), None)
    divisor = 1 if axis is None else kernel.contract.sizes(axis).step
    if axis is None or divisor == 1:
        return ""
    return _format_divisor(wider, target, axis, divisor, judge_case)[1]


def find_needed(
    kernel: KernelUnderTest,
    target: str | None,
    findings: Sequence[Finding],
    tiles: Sequence[Tile],
    judge: JudgeCase,
) -> tuple[Limit, ...]:
    """Return the divisors of sizes that a kernel which breaks its contract needs to be right.

    There are none if no proof is about a property that fails.
    """
    roots = [finding for finding in findings if finding.cause is None]
    axes = dict.fromkeys(finding.axis for finding in roots)
    needs = {finding.property for finding in roots}
    if not axes or not tiles or not axes.keys() <= {"M", "N", "K"}:
        return ()
    sides = {str(x): math.lcm(*(tile["MNK".index(str(x))] for tile in tiles)) for x in axes}
    if max(sides.values()) > MOST_STEP:
        return ()
    proofs = []
    try:
        for axis in sides:
            narrowed = kernel
            for other in (x for x in sides if x != axis):
                narrowed = narrow(kernel.contract, other, sides[other]).apply(narrowed)
            sides[axis], text = _format_divisor(narrowed, target, axis, sides[axis], judge, needs)
            if not text:
                return ()
            proofs.append(text)
    except Exception as error:  # as above
        reason = f"the sizes that it needs are unknown: the proof raised {format_error(error)}"
        return (Limit("multiples", "", NOT_TRIED, reason),)
    steps = [narrow(kernel.contract, axis, n) for axis, n in sides.items()]
    needed = kernel
    for step in steps:
        needed = step.apply(needed)
    if any(needed.contract.admits(finding.case.sides) for finding in roots):
        return (Limit("multiples", "", NOT_TRIED, "a proof contradicts a case that fails"),)
    sizes = ",".join(f"{axis}={n}..:{n}" for axis, n in sides.items())
    name = " and ".join(step.name for step in steps)
    return (Limit(name, f"--sizes {sizes}", "needed", proof="; ".join(proofs)),)


def _format_wraps(kernel: KernelUnderTest, target: str | None, judge: JudgeCase) -> str:
    """Format the sizes up to which offsets do not wrap; "" if that is not decided."""
    from gemmproof.properties.proof.offset_wraps import find_wraps  # imports the solver

    wraps = find_wraps(kernel, target, EXACT_SECONDS)
    first = smallest(kernel.contract, kernel.contract.formats[0])
    for wrap in wraps:
        with suppress(ValueError):  # no case has such sizes
            case = first.with_sides(dict(wrap.sides))
            if wrap.is_dense and case.is_sampled and _fails(judge(case)) is False:
                return ""
    return f"proved for offsets: {'; '.join(map(str, wraps))}" if wraps else ""


def _format_divisor(
    kernel: KernelUnderTest,
    target: str | None,
    axis: str,
    most: int,
    judge: JudgeCase,
    needs: Set[str] = frozenset(),
) -> tuple[int, str]:
    """Return the divisor, at most `most`, that sizes need, and its proof as text; "" if none."""
    until = counted_seconds() + EXACT_SECONDS
    tried = find_divisor(
        kernel.contract, axis, most, lambda step: try_proof(kernel, step, target, until, needs)
    )
    if tried is None:
        return most, ""
    divisor, less = tried
    # for a formula only the addresses are proved
    what = "proved" if kernel.spec is None else "addresses proved"
    enough = f"{what} for every {axis} that is a multiple of {divisor}"
    cases = [outcome.case for outcome in less if outcome.case is not None]
    refuted = all(outcome.status == LIMIT for outcome in less)
    if not cases or not refuted or not all(_fails(judge(case)) for case in cases):
        return divisor, enough
    shown = ", ".join(f"{axis}={case.sides[axis]}" for case in cases)
    return divisor, f"{enough}; {shown} fails"


def find_divisor(
    contract: Contract, axis: str, divisor: int, outcome: Callable[[ContractStep], Outcome]
) -> tuple[int, list[Outcome]] | None:
    """Return the least number that divides `divisor` whose multiples along an axis hold, or None.

    With it come the outcomes of the largest numbers that divide it, none of which holds.
    """
    if outcome(narrow(contract, axis, divisor)).status != HOLDS:
        return None
    n, less = divisor, []
    for prime in (p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))):
        while divisor % prime == 0:
            tried = outcome(narrow(contract, axis, divisor // prime))
            if tried.status != HOLDS:
                less.append(tried)
                break
            divisor //= prime
    return divisor, less


def _fails(judged: CaseResult) -> bool | None:
    """Return whether a case shows a fault, or None if it could not be followed."""
    if any(finding.cause is None for finding in judged.findings):
        return True
    return None if judged.raised is not None or not judged.followed else False
