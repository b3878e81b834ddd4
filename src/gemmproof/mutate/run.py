"""The mutants of one kernel, each in its own worker, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import as_completed
from dataclasses import dataclass, replace

from gemmproof.engine.assemble import make_report
from gemmproof.engine.request import CheckRequest
from gemmproof.mutate.changed_source import Mutant
from gemmproof.mutate.mutants import list_mutants, sample
from gemmproof.mutate.record import (
    EQUIVALENT,
    INVALID,
    KILLED,
    REPORT,
    SURVIVED,
    UNJUDGED,
    UNSEEN,
    MutantJudgement,
    MutantRequest,
    MutantResult,
    OriginalProgram,
    OriginalSurvey,
    Reached,
    Score,
    SeenCase,
)
from gemmproof.properties.finding import list_by_cause
from gemmproof.report.record import Report, versions
from gemmproof.report.text import format_unvisited
from gemmproof.target import KernelRef, TargetError, display_path
from gemmproof.terminal import Interrupted
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.supervisor import Limits, open_pool, watch

Tell = Callable[[int, int, MutantResult], None]

TASKS = "gemmproof.mutate.task"


@dataclass(frozen=True, slots=True)
class Original:
    """The lines that a kernel reaches, and the digests of its cases, before any change."""

    formats: tuple[str, ...]
    mutants: list[Mutant]
    cases: tuple[SeenCase, ...]
    programs: dict[str, OriginalProgram]
    source: str


def mutate(
    request: CheckRequest,
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
        formats=survey.formats,
        seed=request.seed,
        max_examples=request.max_examples,
        proof=request.proof,
        reached=len(survey.mutants),
        source=survey.source,
        versions=versions(),
        note="interrupted" if stopped else "",
    )
    return score, stopped


def survey_kernel(request: CheckRequest, limits: Limits, jobs: int) -> Original:
    """Judge the unchanged kernel, a worker a format, and list its mutants. Raises TargetError."""
    contract = request.kernel.contract
    formats = contract.formats if contract else _list_formats(request.kernel, limits)
    requests = [narrow(request, fmt) for fmt in formats]
    with open_pool(min(jobs, len(requests))) as pool:
        workers = list(pool.map(lambda each: watch(f"{TASKS}:survey", each, limits), requests))
    reached: dict[str, Reached] = {}
    cases: list[SeenCase] = []
    programs: dict[str, OriginalProgram] = {}
    source = ""
    for worker in workers:
        survey = worker.read_result(OriginalSurvey)
        report = make_report(worker, request.name, survey.report if survey else None)
        if survey is None or report.verdict != "pass":
            raise TargetError(
                f"{request.name}: {_describe_failure(report)}, expected it to pass first"
            )
        for path, lines in survey.reached.items():
            reached[path] = lines.join(reached[path]) if path in reached else lines
        cases += survey.cases
        programs = {**survey.programs, **programs}
        source = source or survey.source
    shown = {path: display_path(path) for path in reached}
    return Original(formats, list_mutants(reached, shown), tuple(cases), programs, source)


def narrow(request: CheckRequest, fmt: str) -> CheckRequest:
    """Narrow the request to one format of its kernel."""
    kernel = request.kernel
    if kernel.contract is None:
        return replace(request, kernel=replace(kernel, format=fmt))
    return replace(
        request, kernel=replace(kernel, contract=replace(kernel.contract, formats=(fmt,)))
    )


def _list_formats(kernel: KernelRef, limits: Limits) -> tuple[str, ...]:
    """List the formats of a registered kernel. Raises TargetError if it cannot be loaded."""
    worker = watch(f"{TASKS}:list_formats", replace(kernel, format=""), limits)
    if failure := worker.explain_failure(kernel.name):
        raise TargetError(failure)
    formats = worker.read_result(tuple[str, ...]) or ()
    if kernel.format not in ("", *formats):
        expected = f"one that {kernel.name} is registered with: {' '.join(formats)}"
        raise TargetError(f"--dtype: got {kernel.format}, expected {expected}")
    return (kernel.format,) if kernel.format else formats


def _describe_failure(report: Report) -> str:
    if report.findings:
        return f"got {report.verdict} ({report.findings[0].message})"
    return f"got {report.verdict} ({report.note})"


def judge_mutant(
    request: CheckRequest, limits: Limits, mutant: Mutant, survey: Original
) -> MutantResult | None:
    """Judge one mutant; None if its worker was interrupted."""
    is_compiled = mutant.where == "kernel"
    asked = MutantRequest(
        request, mutant.file, mutant.text, is_compiled, survey.cases, survey.programs
    )
    worker = watch(f"{TASKS}:judge_mutant", asked, limits)
    if worker.end == "halted":
        return None
    return conclude(mutant.start(), worker, request.name)


def conclude(mutant: MutantResult, worker: WorkerExit, name: str) -> MutantResult:
    """Return the mutant with the outcome that a worker's result, or its end, amounts to."""
    judgement = worker.read_result(MutantJudgement) or MutantJudgement()
    fate, reason = judgement.fate, judgement.reason
    if fate in (EQUIVALENT, INVALID):
        return replace(mutant, outcome=fate, why=reason)
    if worker.failure and worker.failure.kind == "error" and not worker.cases:
        return replace(mutant, outcome=INVALID, why=worker.failure.message)
    report = make_report(worker, name, worker.read_part(REPORT, Report))
    if report.verdict == "fail":
        first, _ = list_by_cause(report.findings)[0]
        case = first.case.to_json()
        return replace(mutant, outcome=KILLED, why=first.message, by=first.property, case=case)
    if report.verdict != "pass":
        return replace(mutant, outcome=UNJUDGED, why=report.note or worker.how)
    if fate == "other bits":
        return replace(mutant, outcome=SURVIVED, why=f"bits differ, first: {reason}")
    if fate in ("other accesses", "same") and judgement.proved:
        return replace(
            mutant,
            outcome=EQUIVALENT,
            why=f"proved right for {judgement.proved}, with the same bits",
        )
    if fate == "same":
        return replace(
            mutant, outcome=UNSEEN, why=f"same accesses and bits {_describe_branches(report)}"
        )
    if fate == "other accesses":
        return replace(mutant, outcome=SURVIVED, why=f"same bits, accesses differ, first: {reason}")
    return replace(mutant, outcome=SURVIVED, why=f"not compared with the original: {worker.how}")


def _describe_branches(report: Report) -> str:
    """Describe whether the cases took every branch, if the prover followed them all."""
    if report.unvisited:
        return f"in every case; {format_unvisited(report)}"
    follows_all = any(p.is_proved for p in report.properties)
    return "on every branch" if follows_all else "in every case"
