"""From judged cases to a report: how each property fared, on each backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmproof.engine.coverage import cover
from gemmproof.engine.judge import Judged
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.naming import parameters_of
from gemmproof.properties.observation import SIMULATOR
from gemmproof.properties.table import Property, list_required
from gemmproof.reference.wording import say_count
from gemmproof.report.report import SCHEMA, PropertyResult, Report, versions


def tally(
    properties: Iterable[Property],
    judged: Sequence[Judged],
    findings: Iterable[Finding],
    backend: str,
) -> tuple[PropertyResult, ...]:
    """How each property fared over the cases that a backend ran."""
    failed = {f.property for f in findings if f.backend == backend}
    results = []
    for each in properties:
        bore = [j for j in judged if each.name in j.applied]
        ratio = max((j.ratios[each.name] for j in bore if each.name in j.ratios), default=None)
        status = "fail" if each.name in failed else "pass" if bore else "not run"
        results.append(PropertyResult(each.name, each.claim, status, len(bore), ratio, backend))
    return tuple(results)


def list_claims(kernel: KernelUnderTest, launched: bool) -> list[list[str]]:
    """The name, claim and backend of each property that a kernel is held to."""
    claims = [[p.name, p.claim, SIMULATOR] for p in list_required(kernel)]
    if launched:
        claims += [[p.name, p.claim, "cuda"] for p in list_required(kernel, launched=True)]
    return claims


def make_report(kernel: KernelUnderTest, drawn: list[Judged], findings: list[Finding]) -> Report:
    """The report of the simulated cases."""
    results = tally(list_required(kernel), drawn, findings, SIMULATOR)
    lack, note = _find_unknown(drawn, results)
    return Report(
        schema=SCHEMA,
        target=kernel.name,
        verdict="fail" if findings else lack,
        properties=results,
        findings=tuple(findings),
        seconds=0.0,
        versions=versions(),
        note=note,
        names=parameters_of(kernel.launch),
        coverage=cover(kernel.contract, drawn),
    )


def _find_unknown(drawn: list[Judged], results: Iterable[PropertyResult]) -> tuple[str, str | None]:
    """The verdict without findings, and what was not known of some case; None if nothing."""
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
    others = f", nor {say_count(len(more), 'case')} more" if more else ""
    return "incomplete", f"not judged: {case}{others}: {raised.text}"
