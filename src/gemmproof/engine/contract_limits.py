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
from gemmproof.reference.provenance import format_error
from gemmproof.reference.spec import SpecError
from gemmproof.reference.work import counted_seconds
from gemmproof.report.record import Limit

# -- limits by cases -----------------------------------------------------------------------------
# counted, for all steps beyond the contract; steps not reached are reported as not tried
LIMIT_SECONDS = 20.0

Judge = Callable[[KernelUnderTest, Case, Extension], CaseResult]


@dataclass(frozen=True, slots=True)
class LimitFound:
    """The result of a step beyond a contract, with the finding if it is a limit."""

    step: Extension
    limit: Limit
    finding: Finding | None = None


def find_limits(kernel: KernelUnderTest, tile: Tile, judge: Judge) -> Iterator[LimitFound]:
    """Yield, for every step beyond the contract, that it holds, or the first case that fails.

    If other strides are a limit, a misaligned base and spans are not tried: they are views too.
    """
    until, limited = counted_seconds() + LIMIT_SECONDS, set()
    for step in (*list_keywords(kernel, tile), *list_beyond(kernel.contract, tile)):
        if "any strides" in limited and step.changes.get("layouts") == ANY:
            continue
        if counted_seconds() > until:
            yield LimitFound(step, Limit(step.name, step.option, "not tried", "no time was left"))
            continue
        stop = _try(kernel, step, judge)
        if stop.limit.status != "holds":
            limited.add(step.name)
        yield stop


def _try(kernel: KernelUnderTest, step: Extension, judge: Judge) -> LimitFound:
    def stop_at(status: str, reason: str = "", case: Case | None = None) -> LimitFound:
        return LimitFound(step, Limit(step.name, step.option, status, reason, case))

    wider = step.widen(kernel)
    for case in step.cases:
        try:
            judged = judge(wider, case, step)
        except (ContractError, SpecError) as error:  # the contract does not cover this case
            return stop_at("not tried", str(error), case)
        root = next((f for f in judged.findings if f.cause is None), None)
        if root is not None:
            return replace(stop_at("limit", root.message, case), finding=root)
        if judged.raised is not None:  # the simulator cannot follow the kernel there
            return stop_at("not tried", judged.raised.text, case)
        if case.is_sampled and not judged.followed:
            reason = "what the call does depends on elements of so large a result"
            return stop_at("not tried", reason, case)
    return stop_at("holds")


# -- exact limits --------------------------------------------------------------------------------
EXACT_SECONDS = 5.0  # counted, to solve for one limit
MOST_STEP = 1024  # the largest divisor that sizes may need


def sharpen(kernel: KernelUnderTest, target: str | None, stop: LimitFound, judge: Judge) -> Limit:
    """Return a limit with the size at which it begins, as far as that is decided."""
    try:
        return _sharpen(kernel, target, stop, judge)
    except (
        Exception
    ) as error:  # it runs the wrapper over symbols, and z3: either may raise anything
        return replace(stop.limit, proof=f"where it begins is unknown: {_describe(error)}")


def _describe(error: Exception) -> str:
    return f"the proof raised {format_error(error)}"


def _sharpen(kernel: KernelUnderTest, target: str | None, stop: LimitFound, judge: Judge) -> Limit:
    step, limit = stop.step, stop.limit
    if stop.finding is None or limit.case is None:
        return limit
    wider = step.widen(kernel)
    wider = replace(wider, contract=replace(wider.contract, formats=(limit.case.dtype,)))

    def fails(case: Case) -> bool | None:
        return _fails(judge(wider, case, step))

    axis = next((axis for axis in step.changes if axis in ("M", "N", "K", "batch")), None)
    proof = ""
    if stop.finding.property == memory_use.FIT:
        proof = _format_wraps(wider, target, fails)
    elif axis is not None and kernel.contract.sizes(axis).step > 1:
        proof = _format_divisor(wider, target, axis, kernel.contract.sizes(axis).step, fails)[1]
    return replace(limit, proof=proof)


def find_needed(
    kernel: KernelUnderTest,
    target: str | None,
    findings: Sequence[Finding],
    tiles: Sequence[Tile],
    judge: Callable[[Case], CaseResult],
) -> tuple[Limit, ...]:
    """Return the divisors of sizes that a kernel which breaks its contract needs to be right."""
    try:
        return tuple(_find_needed(kernel, target, findings, tiles, judge))
    except Exception as error:  # as above
        message = f"which sizes it needs is unknown: {_describe(error)}"
        return (Limit("multiples", "", "not tried", message),)


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

    proofs = []
    for axis in sides:
        narrowed = kernel
        for other, n in sides.items():
            narrowed = narrowed if other == axis else narrow(narrowed, other, n)
        step, text = _format_divisor(narrowed, target, axis, sides[axis], fails)
        if not text:
            return
        sides[axis] = step
        proofs.append(text)
    sizes = ",".join(f"{axis}={n}..:{n}" for axis, n in sides.items())
    name = " and ".join(f"{axis} in {n}..:{n}" for axis, n in sides.items())
    yield Limit(name, f"--sizes {sizes}", "needed", proof="; ".join(proofs))


def _format_wraps(
    kernel: KernelUnderTest, target: str | None, fails: Callable[[Case], bool | None]
) -> str:
    """Format the sizes up to which offsets do not wrap; "" if that is not decided."""
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
    """Return the divisor, at most `step`, that sizes need, and its proof as text; "" if none."""
    from gemmproof.properties.proof.size_limits import find_divisor

    divisor = find_divisor(kernel, target, axis, step, EXACT_SECONDS)
    if divisor is None:
        return step, ""
    # for a formula only the addresses are proved
    what = "proved" if kernel.spec is None else "addresses proved"
    enough = f"{what} for every {axis} that is a multiple of {divisor.step}"
    shown = [case for case in divisor.below if fails(case)]
    if not divisor.is_least or len(shown) < len(divisor.below):
        return divisor.step, enough
    less = ", ".join(f"{axis}={getattr(case, axis)}" for case in shown)
    return divisor.step, f"{enough}, and not of less: {less} fails" if less else enough


def _fails(judged: CaseResult) -> bool | None:
    """Return whether a case shows a fault, or None if it could not be followed."""
    if any(finding.cause is None for finding in judged.findings):
        return True
    return None if judged.raised is not None or not judged.followed else False
