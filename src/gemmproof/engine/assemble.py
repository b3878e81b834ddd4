"""Assembly of a report from the events of a worker, however it ended."""

from __future__ import annotations

from dataclasses import replace

from gemmproof import __version__
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import decode
from gemmproof.properties.finding import Finding, find_reasons
from gemmproof.properties.proof import DEATH, NOT_DECIDED
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import (
    SCHEMA,
    Identity,
    Limit,
    ProofResult,
    PropertyResult,
    Report,
    Verdict,
)
from gemmproof.target import display_path
from gemmproof.worker.protocol import UNKNOWN_ENDS, Listener, Request, WorkerExit
from gemmproof.worker.supervisor import Limits, watch


def judge(
    request: Request,
    limits: Limits,
    listener: Listener = lambda event: None,
    compiles: bool = True,
) -> tuple[Report, WorkerExit]:
    """Return the report on the kernel that `request` names, and its worker's exit.

    If not `compiles`, the guarantees about compiled code are not judged.
    """
    worker = watch(request, limits, listener)
    report = _describe_undecided(make_report(worker, request.name), worker.undecided)
    findings, excused = (tuple(map(_shorten_path, x)) for x in (report.findings, report.expected))
    report = replace(report, findings=findings, expected=excused)
    seconds = worker.seconds
    # what dies on a GPU does not when simulated, so there is nothing to shrink
    launched = worker.events.get("case", {}).get("phase") == "launch"
    died = worker.end in ("crash", "hang", "memory") and report.findings and not launched
    # a death that is expected is not among the findings
    if died and request.case is None and report.findings[0].fault == worker.end:
        death, *others = report.findings
        # The worker and its child together stay below the limit of the group.
        again = request.shrink(death.case.to_json(), worker.end, limits.memory // 2)
        shrunk = watch(again, limits, listener)
        if "shrunk" in shrunk.events:
            death = replace(death, case=Case.from_json(shrunk.events["shrunk"]["case"]))
            report = replace(report, findings=(death, *others))
        seconds += shrunk.seconds
    report = replace(report, seconds=seconds)
    if compiles:
        report = judge_compiled(report, worker, request, limits, listener)
    source = worker.events.get("source")
    facts = None if source is None else decode(Identity, source["facts"], "identity")
    return replace(report, seconds=round(report.seconds, 2), identity=facts), worker


def judge_compiled(
    report: Report, worker: WorkerExit, request: Request, limits: Limits, listener: Listener
) -> Report:
    """Return the report with the results of the kernel's guarantees about compiled code, if any.

    If that is interrupted, the `worker` that judged the cases counts as interrupted, too.
    """
    promised = worker.events.get("promises")
    # an interruption ends the whole check; a kernel that could not be judged has nothing to add to
    if not promised or worker.end == "halted" or not report.properties:
        return report
    from gemmproof.lowering.guarantee_check import add_claims

    report, halted = add_claims(report, promised, request, limits, listener)
    if halted:
        worker.end, worker.how = "halted", "interrupted"
    return report


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


def make_report(worker: WorkerExit, name: str) -> Report:
    """Return the worker's own report, or one assembled from its events if it wrote none."""
    if "report" in worker.events:
        return replace(decode(Report, worker.events["report"]["report"], "report"), target=name)
    if "promised" in worker.events:
        return _report_promised(worker, name)
    if worker.end in UNKNOWN_ENDS and "error" not in worker.events:
        return _report_stopped(worker, name, "incomplete", ())
    if failure := worker.explain_failure(name):
        return make_error(name, failure)
    return _report_stopped(worker, name, "fail", (_make_death(worker, name),))


def _report_promised(worker: WorkerExit, name: str) -> Report:
    """Return the report on the contract if the worker died beyond it.

    It has the findings up to the death of the worker, and the step at which it died.
    """
    report = decode(Report, worker.events["promised"]["report"], "report")
    if report.model_check is None and "premise" in worker.events:
        return _report_unfounded(report, worker, name)
    limits = [decode(Limit, data, "limit") for data in worker.limits]
    case = worker.events["case"]
    if "limit" in case and case["limit"][0] not in {limit.name for limit in limits}:
        how = f"{worker.where or name}: got {worker.how}, expected a result"
        status = "not tried" if worker.end in (*UNKNOWN_ENDS, "done") else "limit"
        step, option = case["limit"]
        limits.append(Limit(step, option, status, how, Case.from_json(case["case"])))
    notes = (report.note, "what lies further beyond the contract was not tried")
    note = "; ".join(filter(None, notes))
    return replace(report, target=name, limits=tuple(limits), note=note)


def _report_unfounded(report: Report, worker: WorkerExit, name: str) -> Report:
    """Return the report of a run that died while it compiled a predicted launch."""
    launch = worker.events["premise"]["launch"]
    how = worker.how or worker.explain_failure(name)
    reason = f"model check: {launch}: got {how}, expected a binary; no other launch was compiled"
    verdict = "incomplete" if report.verdict == "pass" else report.verdict
    note = "; ".join(filter(None, (report.note, reason)))
    return replace(report, target=name, verdict=verdict, note=note)


def make_error(name: str, note: str) -> Report:
    """Return a report that holds only the reason why nothing could be judged."""
    return Report(SCHEMA, name, "error", (), (), 0.0, {"gemmproof": __version__}, note)


def make_unjudged(name: str, reason: str) -> Report:
    """Return the report on a kernel that was not judged, for a reason outside the kernel."""
    return Report(SCHEMA, name, "incomplete", (), (), 0.0, {"gemmproof": __version__}, reason)


def _make_death(worker: WorkerExit, name: str) -> Finding:
    where = worker.where or name
    launched = worker.events["case"].get("phase") == "launch"
    got, expected = worker.how, "a result"
    return Finding(
        property="runs_to_completion",
        fault="exit" if worker.end == "left" else worker.end,
        message=f"{where}: got {got}, expected {expected}",
        case=Case.from_json(worker.events["case"]["case"]),
        where=worker.where,
        file=worker.file,
        got=got,
        expected=expected,
        backend="cuda" if launched else "simulator",
    )


def _report_stopped(
    worker: WorkerExit, name: str, verdict: Verdict, deaths: tuple[Finding, ...]
) -> Report:
    """Return the report on an interrupted run: findings so far, and properties not judged."""
    findings = (*deaths, *(decode(Finding, data, "finding") for data in worker.findings))
    properties = []
    held_to = worker.events.get("properties", {"claims": []})
    expected = held_to.get("expected", {})
    reasons = find_reasons(findings, expected)
    failed = {(f.property, f.backend) for f in findings if f not in reasons}
    excused = {(f.property, f.backend): reason for f, reason in reasons.items()}
    for property_name, claim, backend in held_to["claims"]:
        key = (property_name, backend)
        count = worker.examples[key]
        status = "expected" if key in excused else "pass" if count else "not run"
        status = "fail" if key in failed else status
        ratio, reason = worker.ratios.get(key), {**excused, key: expected.get(property_name)}
        result = PropertyResult(property_name, claim, status, count, ratio, backend)
        properties.append(replace(result, reason=reason[key] or excused.get(key)))
    return Report(
        SCHEMA,
        name,
        # a kernel that dies as expected is not judged further
        "fail" if failed else "incomplete" if reasons else verdict,
        tuple(properties),
        tuple(f for f in findings if f not in reasons),
        worker.seconds,
        {"gemmproof": __version__},
        f"stopped after {format_count(worker.cases, 'case')}: {worker.how}",
        names=held_to.get("names", {}),
        expected=tuple(reasons),
    )
