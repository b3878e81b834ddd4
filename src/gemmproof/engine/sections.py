"""The sections of a report: tally, coverage, assumptions, compiled code."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemmproof.engine.observe import CaseResult
from gemmproof.lowering.assumption_check import AssumptionCheck, Tell
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import probe, smallest
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract, list_promised
from gemmproof.properties.finding import UNEXPECTED, Finding, find_reasons
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.observation import SIMULATOR, parameters_of
from gemmproof.properties.table import BY_NAME, Property, list_required
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import (
    AXES,
    SCHEMA,
    UNKNOWN,
    Bits,
    Coverage,
    PropertyResult,
    Report,
    Verdict,
    join_residues,
    versions,
)
from gemmproof.settings import EXAMPLES
from gemmproof.spelling import require_one


# -- compiled code -------------------------------------------------------------------------------
def judge_compiled(
    report: Report,
    kernel: KernelUnderTest,
    target: str | None,
    case: Case | None,
    most: int,
    began: float,
) -> Report:
    """Return the report with the results of these guarantees, and the seconds of the whole check.

    At most `most` launches of a format and a GPU are compiled, or a few more (`plan_launches`).
    """
    if list_promised(kernel.contract):
        from gemmproof.lowering.guarantee_outcome import compile_claims  # few need it

        report = compile_claims(report, kernel, target, case, most)
    return replace(report, seconds=time.perf_counter() - began)


# -- coverage ------------------------------------------------------------------------------------
KEPT = 4  # cases of a format whose bits are kept, plus the smallest and the one of middle size


def cover(contract: Contract, judged: Sequence[CaseResult]) -> Coverage:
    """Return the coverage of the cases to which some property applied."""
    bore = [result for result in judged if result.applied]
    residues = (join_residues(_name(result, axis) for axis in AXES) for result in bore)
    bits = {fmt: _keep_bits(contract, fmt, bore) for fmt in contract.formats}
    return Coverage(dict(sorted(Counter(residues).items())), {k: v for k, v in bits.items() if v})


def _name(judged: CaseResult, axis: str) -> str:
    """Return the residue of a size modulo the tile, by the constexprs of the launch with dots."""
    size = getattr(judged.case, axis)
    # the tiles of a launch that only sums or copies have another meaning
    launches = sorted(judged.launches, key=lambda launch: not launch.tiles)
    for launch in launches:
        for name in (f"BLOCK_{axis}", f"BLOCK_SIZE_{axis}"):
            block = launch.constexprs.get(name)
            if type(block) is int and block > 0:
                rest = size % block
                # the simpler name takes precedence if two apply to a small tile
                return {block - 1: "BLOCK-1", 1: "1", 0: "0"}.get(rest, "other")
    return UNKNOWN


def _keep_bits(contract: Contract, fmt: str, judged: Iterable[CaseResult]) -> tuple[Bits, ...]:
    """Return the bits of cases that are likely the same in every run.

    Cases other than those that every check begins with are chosen by their hash, not by their
    order: the cases of a proof come first, and their number depends on the time there was. With
    special data the bits of a NaN would depend on the machine.
    """
    # the first call is the same for every comparison and number of calls
    known = {
        replace(result.case, calls=1, compare=None): result.bits
        for result in judged
        if result.bits and result.case.dtype == fmt
    }
    always = [case for case in (smallest(contract, fmt), probe(contract, fmt)) if case in known]
    others = [
        case for case in known if case not in always and case.fill not in ("index", "special")
    ]
    chosen = [*always, *sorted(others, key=_hash)[:KEPT]]
    return tuple(Bits(case.to_json(), known[case]) for case in chosen)


def _hash(case: Case) -> str:
    return hashlib.sha256(case.to_json().encode()).hexdigest()


# -- assumptions ---------------------------------------------------------------------------------
def open_premises(
    asked: bool,
    target: str | None,
    launch: bool,
    seconds: float,
    memory: int | None,
    tell: Tell,
    workdir: str | None = None,
) -> AssumptionCheck:
    """Return the compiler of a check's launches. Raises ValueError if none is predicted."""
    if asked and target not in TARGETS and not launch:
        expected = f"one of {' '.join(TARGETS)}"
        raise ValueError(f"premise: got target {target}, expected {expected}, which are predicted")
    check = AssumptionCheck(tell, seconds, every=asked)
    check.memory, check.workdir = memory or check.memory, workdir
    return check


def add_premises(
    report: Report, premises: AssumptionCheck, target: str | None, judged: Iterable[CaseResult]
) -> Report:
    """Return the report with the checked premises; incomplete if one does not hold.

    The report is emitted before any launch is compiled, so that it survives the compiler's death.
    """
    if premises.every and report.verdict != "error":
        for result in judged:
            premises.note(target, result.launches)
        premises.tell({"event": "promised", "report": encode(report)})
        premises.check_noted()
    checked = premises.conclude()
    if checked is None:
        return report
    report = replace(report, model_check=checked)
    if checked.is_kept or report.verdict == "error":
        return report
    note = report.note or ""  # a launch whose bits differ has added its line already
    lines = (line for line in (*checked.contradicted[:1], *checked.failed[:1]) if line not in note)
    verdict = "incomplete" if report.verdict == "pass" else report.verdict
    return replace(report, verdict=verdict, note="; ".join(filter(None, (note, *lines))))


# -- tally ---------------------------------------------------------------------------------------
def tally(
    properties: Iterable[Property],
    judged: Sequence[CaseResult],
    findings: Sequence[Finding],
    backend: str,
    expected: Mapping[str, str] | None = None,
) -> tuple[PropertyResult, ...]:
    """Return each property's result over one backend's cases, with the reason if `expected`."""
    reasons = find_reasons(findings, expected or {})
    failed = {f.property for f in findings if f.backend == backend and f not in reasons}
    excused = {f.property: reason for f, reason in reasons.items() if f.backend == backend}
    all_reasons = {**excused, **(expected or {})}
    results = []
    for each in properties:
        bore = [j for j in judged if each.name in j.applied]
        ratio = max((j.ratios[each.name] for j in bore if each.name in j.ratios), default=None)
        status = "pass" if bore else "not run"
        status = "fail" if each.name in failed else "expected" if each.name in excused else status
        result = PropertyResult(each.name, each.claim, status, len(bore), ratio, backend)
        results.append(replace(result, reason=all_reasons.get(each.name)))
    return tuple(results)


def describe_claims(kernel: KernelUnderTest, launched: bool) -> dict[str, Any]:
    """Return the event with the properties a kernel must satisfy, and its names for a and b.

    Raises ContractError if the contract expects an unknown property to fail.
    """
    require_properties(kernel)
    names, expected = parameters_of(kernel.launch), kernel.contract.reasons
    claims = list_claims(kernel, launched)
    return {"event": "properties", "claims": claims, "names": names, "expected": expected}


def list_claims(kernel: KernelUnderTest, launched: bool) -> list[list[str]]:
    """Return the name, claim and backend of each property that a kernel must satisfy."""
    claims = [[p.name, p.claim, SIMULATOR] for p in list_required(kernel)]
    if launched:
        claims += [[p.name, p.claim, "cuda"] for p in list_required(kernel, launched=True)]
    return claims


def make_report(
    kernel: KernelUnderTest, drawn: list[CaseResult], findings: list[Finding]
) -> Report:
    """Return the report of the simulated cases."""
    expected = kernel.contract.reasons
    results = tally(list_required(kernel), drawn, findings, SIMULATOR, expected)
    unexpected = find_unexpected(findings, kernel)
    verdict, note = _find_unknown(drawn, results)
    return Report(
        schema=SCHEMA,
        target=kernel.name,
        verdict="fail" if unexpected else verdict,
        properties=results,
        findings=unexpected,
        seconds=0.0,
        versions=versions(),
        note=note,
        names=parameters_of(kernel.launch),
        expected=tuple(find_reasons(findings, expected)),
        coverage=cover(kernel.contract, drawn),
    )


def find_unexpected(findings: Sequence[Finding], kernel: KernelUnderTest) -> tuple[Finding, ...]:
    """Return the findings that the contract does not expect."""
    reasons = find_reasons(findings, kernel.contract.reasons)
    return tuple(finding for finding in findings if finding not in reasons)


def require_properties(kernel: KernelUnderTest) -> None:
    """Raise ContractError, in one line, for an unknown property that is expected to fail."""
    for name in kernel.contract.reasons:
        try:
            require_one(name, BY_NAME)
        except ValueError as error:
            raise ContractError(f"contract expected: {error}") from None


def describe_passes(
    report: Report, kernel: KernelUnderTest, cases: Collection[Case], asked: int
) -> Report:
    """Return the report with a finding for each property that held and was expected to fail.

    Only a run that reached its end has them: one with other findings draws fewer cases. `cases` are
    those that were drawn, of `asked` for each format: fewer than the default would miss a rare
    failure. If another expected failure hides what a property compares, that it held means
    nothing.
    """
    if report.verdict != "pass" or not cases or asked < EXAMPLES:
        return report
    case = min(cases, key=lambda c: c.rank)
    findings, properties = [], []
    for result in report.properties:
        fares = {other.status for other in report.properties if other.name == result.name}
        hidden = bool(report.expected) and BY_NAME[result.name].sound
        expected = kernel.contract.reasons.get(result.name)
        if expected is not None and fares == {"pass"} and not hidden:
            got, expectation = format_count(result.examples, "case") + " that held", "it to fail"
            message = f"all cases: got {got}, expected {expectation}: {expected}"
            more: dict[str, Any] = {"got": got, "expected": expectation, "backend": result.backend}
            findings.append(Finding(result.name, UNEXPECTED, message, case, **more))
            result = replace(result, status="fail")
        properties.append(result)
    verdict = "fail" if findings else report.verdict
    reported = tuple(findings)
    return replace(report, verdict=verdict, findings=reported, properties=tuple(properties))


def _find_unknown(
    drawn: list[CaseResult], results: Iterable[PropertyResult]
) -> tuple[Verdict, str | None]:
    """Return the verdict if there are no findings, and a note on unknown cases, or None."""
    unknown = [(j.case, j.raised) for j in drawn if j.raised is not None and not j.applied]
    for case, raised in unknown:
        if raised.kind == "internal":
            return "error", f"gemmproof itself failed at {case}: {raised.text}"
        if raised.kind != "exhausted":
            ran = [r.name for r in results if r.examples]
            return "error", f"{raised.text}; judged before: {', '.join(ran) or 'no property'}"
    if not unknown:
        return "pass", None
    (case, raised), *more = unknown
    others = f", nor {format_count(len(more), 'case')} more" if more else ""
    return "incomplete", f"not judged: {case}{others}: {raised.text}"
