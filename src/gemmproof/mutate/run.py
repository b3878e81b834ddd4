"""The mutants of one kernel, each in its own worker, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.engine.assemble import make_report
from gemmproof.mutate.changed_source import Mutant
from gemmproof.mutate.mutants import Reached, list_mutants, sample
from gemmproof.mutate.record import (
    EQUIVALENT,
    INVALID,
    KILLED,
    SURVIVED,
    UNJUDGED,
    UNSEEN,
    MutantResult,
    Score,
)
from gemmproof.properties.codec import decode
from gemmproof.properties.finding import list_by_cause
from gemmproof.report.record import Report, versions
from gemmproof.target import TargetError, display_path
from gemmproof.terminal import Interrupted
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import Limits, open_pool, watch

Tell = Callable[[int, int, MutantResult], None]

TASKS = "gemmproof.mutate.task"


@dataclass(frozen=True, slots=True)
class Original:
    """The lines that a kernel reaches, and the digests of its cases, before any change."""

    formats: list[str]
    mutants: list[Mutant]
    cases: list[list[str]]
    programs: dict[str, list[str]]
    source: str


def mutate(
    request: Request,
    limits: Limits,
    *,
    jobs: int,
    most: int | None = None,
    operators: Collection[str] = (),
    tell: Tell = lambda done, of, judgement: None,
) -> tuple[Score, Interrupted | None]:
    """Return the score of the kernel in a request to mutate, and the interruption, if any.

    `most` mutants are judged, drawn by the request's seed; None for all. Only `operators` are used,
    or all if it is empty. `tell` is called with each judgement. Raises TargetError if the kernel
    does not pass as it is.
    """
    began = time.monotonic()
    survey = survey_kernel(request, limits, jobs)
    mutants = [m for m in survey.mutants if not operators or m.operator in operators]
    if most is not None:
        mutants = sample(mutants, most, request.seed)
    judged: dict[int, MutantResult] = {}
    stopped = None
    try:
        with open_pool(jobs) as pool:
            started = {
                pool.submit(judge_mutant, request, limits, mutant, survey): i
                for i, mutant in enumerate(mutants)
            }
            for future in as_completed(started):
                outcome = future.result()
                if outcome is not None:
                    judged[started[future]] = outcome
                    tell(len(judged), len(mutants), outcome)
    except Interrupted as stop:
        stopped = stop
    score = Score(
        request.name,
        tuple(judged[i] for i in sorted(judged)),
        len(mutants),
        round(time.monotonic() - began, 1),
        formats=tuple(survey.formats),
        seed=request.seed,
        max_examples=request.max_examples,
        proof=request.proof,
        reached=len(survey.mutants),
        source=survey.source,
        versions=versions(),
        note="interrupted" if stopped else "",
    )
    return score, stopped


def survey_kernel(request: Request, limits: Limits, jobs: int) -> Original:
    """Judge the unchanged kernel, a worker a format, and list its mutants. Raises TargetError."""
    formats = list(request.contract.get("formats", ())) or _list_formats(request, limits)
    request = replace(request, function=f"{TASKS}:survey")
    requests = [narrow(request, fmt) for fmt in formats]
    with open_pool(min(jobs, len(requests))) as pool:
        workers = list(pool.map(lambda narrowed: watch(narrowed, limits), requests))
    reached: dict[str, Reached] = {}
    cases: list[list[str]] = []
    programs: dict[str, list[str]] = {}
    for worker in workers:
        report = make_report(worker, request.name)
        if report.verdict != "pass":
            raise TargetError(
                f"{request.name}: {_describe_failure(report)}, expected it to pass first"
            )
        surveyed = worker.events["surveyed"]
        for path, lines in surveyed["reached"].items():
            lines_reached = decode(Reached, lines, "lines")
            reached[path] = lines_reached.join(reached[path]) if path in reached else lines_reached
        cases += surveyed["cases"]
        programs = {**surveyed["programs"], **programs}
    shown = {path: display_path(path) for path in reached}
    source = workers[0].events["surveyed"]["source"]
    return Original(formats, list_mutants(reached, shown), cases, programs, source)


def narrow(request: Request, fmt: str) -> Request:
    """Narrow the request to one format of its kernel."""
    if request.conftest is not None:
        return replace(request, format=fmt)
    return replace(request, contract={**request.contract, "formats": [fmt]})


def _list_formats(request: Request, limits: Limits) -> list[str]:
    """List the formats of a registered kernel. Raises TargetError if it cannot be loaded."""
    worker = watch(replace(request, function=f"{TASKS}:list_formats", format=""), limits)
    if failure := worker.explain_failure(request.name):
        raise TargetError(failure)
    formats = list(worker.events["kernels"]["names"])
    if request.format not in ("", *formats):
        expected = f"one that {request.name} is registered with: {' '.join(formats)}"
        raise TargetError(f"--dtype: got {request.format}, expected {expected}")
    return [request.format] if request.format else formats


def _describe_failure(report: Report) -> str:
    if report.findings:
        return f"got {report.verdict} ({report.findings[0].message})"
    return f"got {report.verdict} ({report.note})"


def judge_mutant(
    request: Request, limits: Limits, mutant: Mutant, survey: Original
) -> MutantResult | None:
    """Judge one mutant; None if its worker was interrupted."""
    plan: dict[str, Any] = {
        "file": mutant.file,
        "text": mutant.text,
        "compiled": mutant.where == "kernel",
        "cases": survey.cases,
        "programs": survey.programs,
    }
    worker = watch(replace(request, function=f"{TASKS}:judge_mutant", plan=plan), limits)
    if worker.end == "halted":
        return None
    return conclude(mutant.start(), worker, request.name)


def conclude(mutant: MutantResult, worker: WorkerExit, name: str) -> MutantResult:
    """Return the mutant with the outcome that a worker's events amount to."""
    verdict = worker.events.get("mutated", {"fate": "", "why": "", "proved": ""})
    fate, reason = verdict["fate"], verdict["why"]
    if fate in (EQUIVALENT, INVALID):
        return replace(mutant, outcome=fate, why=reason)
    if "error" in worker.events and not worker.cases:
        return replace(mutant, outcome=INVALID, why=str(worker.events["error"]["message"]))
    report = make_report(worker, name)
    if report.verdict == "fail":
        first, _ = list_by_cause(report.findings)[0]
        case = first.case.to_json()
        return replace(mutant, outcome=KILLED, why=first.message, by=first.property, case=case)
    if report.verdict != "pass":
        return replace(mutant, outcome=UNJUDGED, why=report.note or worker.how)
    if fate == "other bits":
        return replace(mutant, outcome=SURVIVED, why=f"first other bits: {reason}")
    if fate in ("other accesses", "same") and verdict["proved"]:
        return replace(
            mutant,
            outcome=EQUIVALENT,
            why=f"proved right for {verdict['proved']}, with the same bits",
        )
    if fate == "same":
        return replace(
            mutant, outcome=UNSEEN, why=f"the same accesses and bits {_describe_paths(report)}"
        )
    if fate == "other accesses":
        return replace(
            mutant, outcome=SURVIVED, why=f"the same bits, first other accesses: {reason}"
        )
    return replace(mutant, outcome=SURVIVED, why=f"not compared with the original: {worker.how}")


def _describe_paths(report: Report) -> str:
    """Describe whether the cases took every path of the wrapper, if the prover found them all."""
    if report.unvisited:
        return f"in every case; not visited: {report.unvisited[0]}"
    found_all = any(p.is_proved for p in report.properties)
    return "on every path" if found_all else "in every case"
