"""One kernel's report, whatever became of the worker that ran it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gemmproof import __version__
from gemmproof.properties.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.results import SCHEMA, PropertyResult, Report
from gemmproof.supervise import Limits, Outcome, watch

RUNS = "runs_to_completion"


def judge(
    request: dict[str, Any],
    limits: Limits,
    listener: Callable[[dict[str, Any]], None] = lambda event: None,
) -> tuple[Report, Outcome]:
    """The report on the kernel that `request` names, and what its worker left."""
    outcome = watch(request, limits, listener)
    report = report_of(outcome, request["name"])
    seconds = outcome.seconds
    # what dies on a GPU does not when simulated, so there is nothing to shrink
    launched = outcome.events.get("case", {}).get("phase") == "launch"
    died = outcome.end in ("crash", "hang", "memory") and report.findings and not launched
    if died and request["case"] is None:
        death, *others = report.findings
        found = watch(_shrink_request(request, limits, outcome.end, death.case), limits, listener)
        if "shrunk" in found.events:
            death = replace(death, case=Case.from_json(found.events["shrunk"]["case"]))
            report = replace(report, findings=(death, *others))
        seconds += found.seconds
    return replace(report, seconds=round(seconds, 2)), outcome


def _shrink_request(
    request: dict[str, Any], limits: Limits, end: str, case: Case
) -> dict[str, Any]:
    # The worker and its child together stay below the limit of the group.
    return {
        **request,
        "ask": "shrink",
        "case": case.to_json(),
        "end": end,
        "seconds": limits.case,
        "memory": limits.memory // 2,
    }


def report_of(outcome: Outcome, name: str) -> Report:
    """The worker's own report, or what can be said where it made none."""
    events = outcome.events
    if "report" in events:
        return replace(Report.from_json(events["report"]["report"]), target=name)
    if "error" in events:
        return error(name, events["error"]["message"])
    if "internal" in events:
        return error(name, f"gemmproof itself failed, please report it: {_internal(events)}")
    if "case" not in events:
        return error(name, f"{outcome.where or name}: loading it: {outcome.how}")
    if outcome.end == "time":
        return _stopped(outcome, name, "incomplete", ())
    return _stopped(outcome, name, "fail", (_death(outcome, name),))


def error(name: str, note: str) -> Report:
    """A report of nothing but the reason why there is none."""
    return Report(SCHEMA, name, "error", (), (), 0.0, {"gemmproof": __version__}, note)


def _internal(events: dict[str, dict[str, Any]]) -> str:
    case = f" (case {events['case']['case']})" if "case" in events else ""
    return f"{events['internal']['message']}{case}"


def _death(outcome: Outcome, name: str) -> Finding:
    where = outcome.where or name
    got, expected = outcome.how, "a result"
    return Finding(
        property=RUNS,
        fault="exit" if outcome.end == "left" else outcome.end,
        message=f"{where}: got {got}, expected {expected}",
        case=Case.from_json(outcome.events["case"]["case"]),
        where=outcome.where,
        got=got,
        expected=expected,
    )


def _status(examples: int) -> str:
    return "pass" if examples else "not run"


def _stopped(outcome: Outcome, name: str, verdict: str, deaths: tuple[Finding, ...]) -> Report:
    """The report on a run that was cut short: what was found before, and what was not judged."""
    found = tuple(Finding.from_dict(data) for data in outcome.findings)
    failed = {finding.property for finding in (*found, *deaths)}
    claims = outcome.events["properties"]["claims"]
    properties = tuple(
        PropertyResult(
            name=property_name,
            claim=claim,
            status="fail" if property_name in failed else _status(outcome.examples[property_name]),
            examples=outcome.examples[property_name],
            ratio=outcome.ratios.get(property_name),
        )
        for property_name, claim in claims.items()
    )
    note = f"stopped after {outcome.cases} cases: {outcome.how}"
    return Report(
        SCHEMA,
        name,
        "fail" if failed else verdict,
        properties,
        (*deaths, *found),
        outcome.seconds,
        {"gemmproof": __version__},
        note,
    )
