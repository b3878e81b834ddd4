"""The limits of a contract: sizes beyond which a kernel fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.properties.cases.beyond import Extension, list_beyond, list_keywords
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Tile, smallest
from gemmproof.properties.cases.layouts import ANY
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import memory_use
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.reference.spec import SpecError
from gemmproof.reference.work import counted_seconds
from gemmproof.report.record import Limit

# -- limits by cases -----------------------------------------------------------------------------
# counted, for all that lies beyond; what is not reached is reported as not tried
LIMIT_SECONDS = 20.0

Judge = Callable[[KernelUnderTest, Case, Extension], CaseResult]


@dataclass(frozen=True, slots=True)
class LimitFound:
    """A step beyond a contract with what became of it, and the finding where it is a limit."""

    step: Extension
    limit: Limit
    finding: Finding | None = None


def find_limits(kernel: KernelUnderTest, tile: Tile, judge: Judge) -> Iterator[LimitFound]:
    """For every step beyond the contract, whether it holds, or the first case that shows a limit.

    Where other strides are a limit, a misaligned base and spans are not tried: they are views too.
    """
    until, limited = counted_seconds() + LIMIT_SECONDS, set()
    for step in (*list_keywords(kernel, tile), *list_beyond(kernel.contract, tile)):
        if "any strides" in limited and step.words.get("layouts") == ANY:
            continue
        if counted_seconds() > until:
            yield LimitFound(step, Limit(step.name, step.option, "not tried", "no time was left"))
            continue
        stop = _try(kernel, step, judge)
        if stop.limit.status != "holds":
            limited.add(step.name)
        yield stop


def _try(kernel: KernelUnderTest, step: Extension, judge: Judge) -> LimitFound:
    def say(status: str, why: str = "", case: Case | None = None) -> LimitFound:
        return LimitFound(step, Limit(step.name, step.option, status, why, case))

    wider = step.widen(kernel)
    for case in step.cases:
        try:
            judged = judge(wider, case, step)
        except (ContractError, SpecError) as mistake:  # it need not hold where nothing is promised
            return say("not tried", str(mistake), case)
        root = next((f for f in judged.findings if f.cause is None), None)
        if root is not None:
            return replace(say("limit", root.message, case), finding=root)
        if judged.raised is not None:  # the simulator does not know what the kernel does there
            return say("not tried", judged.raised.text, case)
        if case.is_sampled and not judged.followed:
            why = "what the call does depends on elements of so large a result"
            return say("not tried", why, case)
    return say("holds")


# -- exact limits --------------------------------------------------------------------------------
EXACT_SECONDS = 5.0  # counted, for the place of one limit
MOST_STEP = 1024  # that sizes are asked to be multiples of


def sharpen(kernel: KernelUnderTest, target: str | None, stop: LimitFound, judge: Judge) -> Limit:
    """A limit with where it begins, as far as that is decided."""
    try:
        return _sharpen(kernel, target, stop, judge)
    except Exception:  # it runs the wrapper over symbols, which may raise anything, and z3
        return stop.limit


def _sharpen(kernel: KernelUnderTest, target: str | None, stop: LimitFound, judge: Judge) -> Limit:
    step, limit = stop.step, stop.limit
    if stop.finding is None or limit.case is None:
        return limit
    wider = step.widen(kernel)
    wider = replace(wider, contract=replace(wider.contract, formats=(limit.case.dtype,)))

    def fails(case: Case) -> bool | None:
        return _fails(judge(wider, case, step))

    axis = next((axis for axis in step.words if axis in ("M", "N", "K", "batch")), None)
    said = ""
    if stop.finding.property == memory_use.FIT:
        said = _format_wraps(wider, target, fails)
    elif axis is not None and kernel.contract.sizes(axis).step > 1:
        said = _format_divisor(wider, target, axis, kernel.contract.sizes(axis).step, fails)[1]
    return replace(limit, proof=said)


def find_needed(
    kernel: KernelUnderTest,
    target: str | None,
    findings: Sequence[Finding],
    tiles: Sequence[Tile],
    judge: Callable[[Case], CaseResult],
) -> tuple[Limit, ...]:
    """The multiples that a kernel needs which breaks its contract, where it is right with them."""
    try:
        return tuple(_find_needed(kernel, target, findings, tiles, judge))
    except Exception:  # as above
        return ()


def _find_needed(
    kernel: KernelUnderTest,
    target: str | None,
    findings: Sequence[Finding],
    tiles: Sequence[Tile],
    judge: Callable[[Case], CaseResult],
) -> Iterator[Limit]:
    roots = [finding for finding in findings if finding.cause is None]
    axes = dict.fromkeys(finding.axis for finding in roots if finding.axis in ("M", "N", "K"))
    sides = {axis: math.lcm(*(tile["MNK".index(axis)] for tile in tiles)) for axis in axes if axis}
    if not roots or len(sides) < len({finding.axis for finding in roots}):
        return
    if not sides or not tiles or max(sides.values()) > MOST_STEP:
        return
    from gemmproof.properties.proof.size_limits import narrow

    def fails(case: Case) -> bool | None:
        return _fails(judge(case))

    said = []
    for axis in sides:
        one = kernel
        for other, n in sides.items():
            one = one if other == axis else narrow(one, other, n)
        step, words = _format_divisor(one, target, axis, sides[axis], fails)
        if not words:
            return
        sides[axis] = step
        said.append(words)
    sizes = ",".join(f"{axis}={n}..:{n}" for axis, n in sides.items())
    name = " and ".join(f"{axis} in {n}..:{n}" for axis, n in sides.items())
    yield Limit(name, f"--sizes {sizes}", "needed", proof="; ".join(said))


def _format_wraps(
    kernel: KernelUnderTest, target: str | None, fails: Callable[[Case], bool | None]
) -> str:
    """Up to where offsets fit, and that they wrap there; "" where that is not decided."""
    from gemmproof.properties.proof.size_limits import find_wraps

    wraps = find_wraps(kernel, target, EXACT_SECONDS)
    first = smallest(kernel.contract, kernel.contract.formats[0])
    for wrap in wraps:
        sides: dict[str, Any] = dict(wrap.sides)
        with suppress(ValueError):  # no case has such sizes
            case = replace(first, **sides)
            if wrap.is_dense and case.is_sampled and fails(case) is False:
                return ""
    return f"proved of offsets: {'; '.join(map(str, wraps))}" if wraps else ""


def _format_divisor(
    kernel: KernelUnderTest,
    target: str | None,
    axis: str,
    step: int,
    fails: Callable[[Case], bool | None],
) -> tuple[int, str]:
    """What sizes must be multiples of, at most `step`, and words; "" where nothing is proved."""
    from gemmproof.properties.proof.size_limits import find_divisor

    found = find_divisor(kernel, target, axis, step, EXACT_SECONDS)
    if found is None:
        return step, ""
    # of a formula only the addresses are proved
    what = "proved" if kernel.spec is None else "addresses proved"
    enough = f"{what} for every {axis} that is a multiple of {found.step}"
    shown = [case for case in found.below if fails(case)]
    if not found.is_least or len(shown) < len(found.below):
        return found.step, enough
    less = ", ".join(f"{axis}={getattr(case, axis)}" for case in shown)
    return found.step, f"{enough}, and not of less: {less} fails" if less else enough


def _fails(judged: CaseResult) -> bool | None:
    """Whether a case shows a fault; None where it could not be followed."""
    if any(finding.cause is None for finding in judged.findings):
        return True
    return None if judged.raised is not None or not judged.followed else False
