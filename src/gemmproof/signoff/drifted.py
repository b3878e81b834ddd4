"""The drift of a kernel that its check holds: each format measured in a worker of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gemmproof.properties.help.pages import CLAIMS
from gemmproof.reference.gpus import DEFAULT, UNMODELLED
from gemmproof.report.report import PropertyResult, Report
from gemmproof.signoff.record import ACCUMULATOR, DriftClass
from gemmproof.worker.limits import Limits
from gemmproof.worker.protocol import Listener, Request, WorkerExit
from gemmproof.worker.supervisor import watch


def add_drift(
    report: Report, request: Request, formats: Sequence[str], limits: Limits, listener: Listener
) -> tuple[Report, tuple[DriftClass, ...]]:
    """The report of a check with what the drift adds to it, and what that is in each format.

    `request` asked for the check. Sums that are worse than declared are findings; what was to be
    measured and could not be leaves the report incomplete.
    """
    if why := _explain_unmeasured(report, request):
        return report, tuple(DriftClass(name, why=why) for name in formats)
    asked = Request(
        ask="drift", name=request.name, conftest=request.conftest, gpu=request.gpu or DEFAULT
    )
    classes: list[DriftClass] = []
    made: list[Report] = []
    for name in formats:
        worker = watch(replace(asked, format=name), limits, listener)
        if "report" in worker.events:
            made.append(Report.from_dict(worker.events["report"]["report"]))
            classes.append(_classify(name, made[-1]))
        else:
            classes.append(_tell_missing(name, request.name, worker))
        report = replace(report, seconds=round(report.seconds + worker.seconds, 2))
    return _join(report, made, [one for one in classes if one.missed]), tuple(classes)


def _explain_unmeasured(report: Report, request: Request) -> str:
    """Why no drift is measured of any format, "" where there is no such reason."""
    if report.verdict != "pass":
        return f"its check: {report.verdict}"
    if report.expected:  # which sums of a kernel that fails are its own?
        return "its check fails as expected"
    if request.gpu in UNMODELLED:
        return f"{request.gpu} has no model of its matrix cores"
    return ""


def _classify(name: str, measured: Report) -> DriftClass:
    from gemmproof.properties.judges.accumulator_drift import (
        find_kept,  # brings numpy, as its report does
    )

    drift = measured.drift
    assert drift is not None
    found = drift.accumulator
    stated = DriftClass(name, drift.gpu, drift.declared)
    if found is None:
        return replace(stated, why=measured.findings[0].message)
    return replace(
        stated,
        name=found.name,
        is_kept=measured.verdict == "pass",
        keeps=find_kept(found, name),
        reads=found.read,
        truncated=found.output == "truncated",
    )


def _tell_missing(name: str, kernel: str, worker: WorkerExit) -> DriftClass:
    if "unmeasured" in worker.events:
        return DriftClass(name, why=worker.events["unmeasured"]["why"])
    case = worker.events.get("case", {"case": kernel})["case"]
    why = worker.explain_failure(kernel) or f"{case}: {worker.how}"
    return DriftClass(name, why=why if worker.end != "halted" else worker.how, missed=True)


def _join(report: Report, made: Sequence[Report], missed: Sequence[DriftClass]) -> Report:
    """The report of the check with the property that the drift judges, if it judges any."""
    results = [result for one in made for result in one.properties]
    findings = tuple(finding for one in made for finding in one.findings)
    if not results and not missed:
        return report
    ratio = max((result.ratio for result in results if result.ratio is not None), default=None)
    status = "fail" if findings else "pass" if results else "not run"
    # of each format one, as a sign-off counts cases
    added = PropertyResult(ACCUMULATOR, CLAIMS[ACCUMULATOR], status, len(results), ratio)
    lacks = [f"its drift in {one.format} was not measured: {one.why}" for one in missed]
    return replace(
        report,
        verdict="fail" if findings else "incomplete" if missed else report.verdict,
        properties=(*report.properties, added),
        findings=(*report.findings, *findings),
        note="; ".join(filter(None, [report.note, *lacks])) or None,
    )
