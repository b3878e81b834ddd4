"""From judged cases to a report: how each property fared, on each backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmproof.engine.judge import Judged
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.finding import Finding
from gemmproof.properties.observation import SIMULATOR
from gemmproof.properties.table import Property, list_required
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
    note = _note(drawn, results)
    return Report(
        schema=SCHEMA,
        target=kernel.name,
        verdict="fail" if findings else "error" if note else "pass",
        properties=results,
        findings=tuple(findings),
        seconds=0.0,
        versions=versions(),
        note=note,
    )


def _note(drawn: list[Judged], results: Iterable[PropertyResult]) -> str | None:
    """What the simulator did not know, or where it failed; None if nothing."""
    for judged in drawn:
        raised = judged.raised
        if raised is not None and not judged.applied:
            if raised.kind == "internal":
                return f"gemmproof itself failed at {judged.case}: {raised.text}"
            ran = [r.name for r in results if r.examples]
            return f"{raised.text}; judged before: {', '.join(ran) or 'no property'}"
    return None
