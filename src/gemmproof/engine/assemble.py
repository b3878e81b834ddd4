"""Assembly of a report from the events of a worker, however it ended."""

from __future__ import annotations

from dataclasses import replace

from gemmproof import __version__
from gemmproof.engine.request import (
    GUARANTEES,
    IDENTITY,
    CheckRequest,
    GuaranteeRequest,
    Guarantees,
    ShrinkRequest,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import decode
from gemmproof.properties.finding import Finding
from gemmproof.properties.proof import DEATH, NOT_DECIDED
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import (
    SCHEMA,
    Identity,
    Limit,
    Note,
    ProofResult,
    Report,
    Verdict,
    mark_failures,
)
from gemmproof.target import display_path
from gemmproof.worker import entry_points
from gemmproof.worker.ends import UNKNOWN_ENDS, WorkerExit
from gemmproof.worker.entry_points import CHECK, COMPILE_GUARANTEED, SHRINK
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import Limits, watch


def judge(
    request: CheckRequest,
    limits: Limits,
    listener: Listener = lambda event: None,
    compiles: bool = True,
) -> tuple[Report, WorkerExit]:
    """Return the report on the kernel that `request` names, and its worker's exit.

    If not `compiles`, the guarantees about compiled code are not judged.
    """
    request = replace(request, engine=request.engine or entry_points.ENGINE)
    worker = watch(CHECK, request, limits, listener)
    report = make_report(worker, request.name, worker.read_result(Report))
    report = _describe_undecided(report, worker.undecided)
    findings, excused = (tuple(map(_shorten_path, x)) for x in (report.findings, report.expected))
    report = replace(report, findings=findings, expected=excused)
    seconds = worker.seconds
    # what dies on a GPU does not when simulated, so there is nothing to shrink
    # a candidate that hangs would take the whole limit, to be sure
    died = worker.end == "crash" and not worker.is_launching
    # a death that is expected is not among the findings
    is_found = bool(report.findings) and report.findings[0].fault == worker.end
    if died and is_found and request.case is None:
        death, *others = report.findings
        # The worker and its child together stay below the limit of the group.
        again = ShrinkRequest(
            request.kernel,
            death.case.to_json(),
            limits.memory // 2,
            request.gpu,
            request.engine,
        )
        shrunk = watch(SHRINK, again, limits, listener)
        if smaller := shrunk.read_result(str):
            death = replace(death, case=Case.from_json(smaller))
            report = replace(report, findings=(death, *others))
        seconds += shrunk.seconds
    report = replace(report, seconds=seconds)
    if compiles:
        report = judge_compiled(report, worker, request, limits, listener)
    facts = worker.read_part(IDENTITY, Identity)
    return replace(report, seconds=round(report.seconds, 2), identity=facts), worker


PATIENCE = 4  # a compilation may take this many times as long as a simulated call


def judge_compiled(
    report: Report, worker: WorkerExit, request: CheckRequest, limits: Limits, listener: Listener
) -> Report:
    """Return the report with the results of the kernel's guarantees about compiled code, if any.

    If that is interrupted, the `worker` that judged the cases counts as interrupted, too.
    """
    guarantees = worker.read_part(GUARANTEES, Guarantees)
    # an interruption ends the whole check; a kernel that could not be judged has nothing to add to
    if guarantees is None or worker.end == "halted" or not report.properties:
        return report
    from gemmproof.compiled.guarantees import LaunchPlan, conclude
    from gemmproof.compiled.run import compile_in_worker

    allowed = replace(limits, case=PATIENCE * limits.case)
    asked = GuaranteeRequest(request.kernel, request.gpu, request.case, request.max_examples)
    compiled = compile_in_worker(COMPILE_GUARANTEED, asked, allowed, listener)
    report = conclude(
        report,
        decode(LaunchPlan, compiled.plan, "plan") if compiled.plan else LaunchPlan(),
        compiled.results,
        guarantees.names,
        guarantees.expected,
        is_whole=request.case is None,
        mistake=compiled.mistake,
    )
    if compiled.halted:
        worker.end, worker.how = "halted", "interrupted"
    return replace(report, seconds=report.seconds + compiled.seconds)


def _shorten_path(finding: Finding) -> Finding:
    """Return the finding with its file's display path, so that two machines' reports are equal."""
    return finding if finding.file is None else replace(finding, file=display_path(finding.file))


def _describe_undecided(report: Report, reason: dict[str, str]) -> Report:
    """Return the report with the reasons why nothing is proved of some properties."""
    properties = (
        replace(p, proof=ProofResult(NOT_DECIDED, why=reason[p.name], cut=DEATH))
        if p.name in reason and p.backend == "simulator"
        else p
        for p in report.properties
    )
    return replace(report, properties=tuple(properties))


def make_report(worker: WorkerExit, name: str, report: Report | None) -> Report:
    """Return the worker's report; if it gave none, its last one so far and how it ended."""
    if report is not None:
        return replace(report, target=name)
    failure = worker.explain_failure(name)
    if worker.has_error:
        return make_error(name, str(failure))
    if worker.partial is None:
        report = Report(SCHEMA, name, (), (), 0.0, {"gemmproof": __version__})
        return _add_end(report, worker, failure)
    report = replace(decode(Report, worker.partial.report, "report"), target=name)
    if worker.partial.judged:
        return _add_later_end(report, worker)
    return _add_end(report, worker, failure)


def _add_end(report: Report, worker: WorkerExit, failure: str | None) -> Report:
    """Return the report so far of a worker that ended at a case: its death is a finding."""
    if worker.end not in UNKNOWN_ENDS and failure is not None:
        return make_error(report.target, failure)
    report = replace(report, seconds=worker.seconds)
    if worker.end not in UNKNOWN_ENDS:
        death = make_death(worker, report.target)
        reasons = {p.name: p.reason for p in report.properties if p.reason is not None}
        findings = (death, *report.findings)
        report = replace(
            report,
            properties=mark_failures(report.properties, (*findings, *report.expected), reasons),
            findings=report.findings if death.property in reasons else findings,
            expected=(death, *report.expected) if death.property in reasons else report.expected,
        )
    # also a kernel that dies as expected is not judged further
    at = f", at {worker.where}" if worker.end == "full" and worker.where else ""
    text = f"stopped after {format_count(worker.cases, 'case')}: {worker.how}{at}"
    return report.with_note(text, "incomplete")


def _add_later_end(report: Report, worker: WorkerExit) -> Report:
    """Return the report of a worker that ended beyond the contract: no finding, but a limit."""
    if report.model_check is None and worker.model_check is not None:
        launch = worker.model_check.launch
        how = worker.how or worker.explain_failure(report.target)
        text = f"model check: {launch}: not compiled: {how}; no other launch was compiled"
        return report.with_note(text, "incomplete")
    case = worker.case
    if case and case.limit and case.limit[0] not in {limit.name for limit in report.limits}:
        how = f"{worker.where or report.target}: {worker.how}"
        status = "not tried" if worker.end in (*UNKNOWN_ENDS, "done") else "limit"
        limit = Limit(*case.limit, status, how, Case.from_json(case.case))
        report = replace(report, limits=(*report.limits, limit))
    return report.with_note("further steps beyond the contract were not tried")


def make_error(name: str, text: str) -> Report:
    """Return a report that holds only the reason why nothing could be judged."""
    return make_unjudged(name, text, "error")


def make_unjudged(name: str, text: str, verdict: Verdict = "incomplete") -> Report:
    """Return the report on a kernel that was not judged, by default for a reason outside it."""
    notes = (Note(text, verdict),)
    return Report(SCHEMA, name, (), (), 0.0, {"gemmproof": __version__}, notes)


def make_death(worker: WorkerExit, name: str) -> Finding:
    """Return the finding on a kernel that ended its worker at a case."""
    assert worker.case is not None
    where = worker.where or name
    got, expected = worker.how, "a result"
    return Finding(
        property="runs_to_completion",
        fault="exit" if worker.end == "left" else worker.end,
        message=f"{where}: {got}",
        case=Case.from_json(worker.case.case),
        where=worker.where,
        file=worker.file,
        got=got,
        expected=expected,
        backend="cuda" if worker.is_launching else "simulator",
    )
