"""The verdict of a sign-off, from its baseline, benchmark, mutants and drift."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from gemmproof.bench.record import SOURCE, BenchReport, TimedRow
from gemmproof.drift.record import DriftRequest, read_drift
from gemmproof.engine.request import CheckRequest
from gemmproof.mutate.record import EQUIVALENT, KILLED, SURVIVED, UNSEEN, MutationReport, Score
from gemmproof.properties.finding import list_by_cause
from gemmproof.properties.help import read_claim
from gemmproof.reference.gpus import DEFAULT, UNMODELLED
from gemmproof.report.files import read_record
from gemmproof.report.record import (
    GRAVEST_FIRST,
    READS,
    Identity,
    PropertyResult,
    Report,
    Verdict,
)
from gemmproof.report.text import list_expected, list_unexercised
from gemmproof.signoff.record import (
    ACCUMULATOR,
    FIELD,
    GRAVEST,
    INCOMPLETE,
    REFUSED,
    SIGNED,
    SIGNOFF_SCHEMA,
    Benchmark,
    DriftClass,
    Inputs,
    KernelRecord,
    MutationScore,
    Ratios,
    Reason,
    Signoff,
    is_sealed,
    list_accepting,
    weigh,
)
from gemmproof.signoff.rules import BRANCH, EXERCISE, compare
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.entry_points import MEASURE_DRIFT
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import Limits, watch

# -- baseline ------------------------------------------------------------------------------------
BASELINE_FORM = "a report of `gemmproof signoff --json`"


def read_baseline(name: str) -> Signoff:
    """Read the sign-off in a file. Raises ValueError, in one line, if it is none or was edited."""

    def refuse(reason: str) -> ValueError:
        return ValueError(f"got {name!r} ({reason}), expected {BASELINE_FORM}")

    data = read_record(dict[str, Any], name, BASELINE_FORM)
    if "kernels" not in data:
        raise refuse("not a sign-off")
    if data.get("schema") != SIGNOFF_SCHEMA:
        raise refuse(f"schema {data.get('schema')!r}, not {SIGNOFF_SCHEMA}: sign off again")
    if FIELD not in data:
        raise refuse("it has no hash")
    try:
        if not is_sealed(data):
            raise refuse("edited: its hash does not match its contents")
    except RecursionError:
        raise refuse("nested too deeply") from None
    try:
        signoff = Signoff.from_dict(data)
        _try_out(signoff)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        kind = "" if isinstance(error, ValueError) else type(error).__name__
        reason = " ".join(f"{kind} {error}".split())
        raise refuse(f"malformed: {reason}") from None
    if signoff.inputs.case is not None:
        raise refuse("of one case only")
    return signoff


def _try_out(signoff: Signoff) -> None:
    """Compare it with itself: a sealed report may hold anything, which is reported at once."""
    held = [replace(k, report=replace(k.report, findings=(), notes=())) for k in signoff.kernels]
    passed = replace(signoff, kernels=tuple(held))
    list(compare(passed, passed))


# -- benchmarks ----------------------------------------------------------------------------------
BENCH_FORM = "a report of `gemmproof bench --json`"


@dataclass(frozen=True, slots=True)
class Timed:
    """The benchmark in a file."""

    name: str
    report: BenchReport

    def find(self, kernel: str, facts: Identity | None) -> tuple[Benchmark | None, str]:
        """Return the benchmark of a kernel, or None and the reason why it does not count.

        Each part that the timed function can reach is one that the judged wrapper can reach, with
        the same text: it may be that function itself, or the registered one may call it.
        """
        rows = [row for row in self.report.rows if row.kernel == kernel and row.ratio is not None]
        if not rows:
            return None, f"{self.name} has no ratio for it"
        run = self.report.facts
        declared = run.get(f"{SOURCE}{kernel}", "").split()
        if not declared:
            return None, f"{self.name} does not name the source it measured"
        if facts is None or not facts.source:
            return None, "its source is not known"
        if not set(declared) <= {word for text in facts.source.values() for word in text.split()}:
            return None, f"{self.name} measured a different source"
        return Benchmark(run["device"], run["date"], _summarise(rows)), ""


def read_bench(name: str) -> Timed:
    """Read the benchmark in a file. Raises ValueError, in one line, if it is none."""
    return Timed(name, read_record(BenchReport, name, BENCH_FORM))


def _summarise(rows: list[TimedRow]) -> tuple[Ratios, ...]:
    def key(row: TimedRow) -> tuple[str, str]:
        return row.format, row.peer

    summaries = []
    for (fmt, peer), group in groupby(sorted(rows, key=key), key):
        ratios = [row.ratio.median for row in group if row.ratio is not None]
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        summaries.append(Ratios(fmt, peer, len(ratios), mean, min(ratios), max(ratios)))
    return tuple(summaries)


# -- mutants -------------------------------------------------------------------------------------
#: In the order of a score's fields.
_COUNTED = (KILLED, EQUIVALENT, SURVIVED, UNSEEN)
MUTANTS_FORM = "a record of `gemmproof mutate --json`"


@dataclass(frozen=True, slots=True)
class Mutated:
    """The scores in a file, by the name of the kernel."""

    name: str
    kernels: Mapping[str, Score]

    def find(self, kernel: str, facts: Identity | None) -> tuple[MutationScore | None, str]:
        """Return the score of a kernel, or None and the reason why it does not count."""
        if kernel not in self.kernels:
            return None, f"{self.name} has no mutants for it"
        score = self.kernels[kernel]
        if not score.source:
            return None, f"{self.name} does not name the source it measured"
        if facts is None or not facts.source:
            return None, "its source is not known"
        if score.source != facts.digest:
            return None, f"{self.name} measured a different source"
        if not score.whole:
            return None, f"{self.name} was cut short"
        killed, equivalent, survivors, unseen = (score.counts[outcome] for outcome in _COUNTED)
        return MutationScore(killed, equivalent, survivors, unseen, score.asked, score.reached), ""


def read_mutation(name: str) -> Mutated:
    """Read the scores in a file. Raises ValueError, in one line, if there are none."""
    report = read_record(MutationReport, name, MUTANTS_FORM)
    return Mutated(name, {score.target: score for score in report.kernels})


# -- drift ---------------------------------------------------------------------------------------
def add_drift(
    report: Report,
    request: CheckRequest,
    formats: Sequence[str],
    limits: Limits,
    listener: Listener,
) -> tuple[Report, tuple[DriftClass, ...]]:
    """Return the report of a check with its drift added, and the drift class in each format.

    `request` is that of the check. Sums that are worse than declared are findings; a drift that
    could not be measured as requested leaves the report incomplete.
    """
    if reason := _explain_unmeasured(report, request):
        return report, tuple(DriftClass(name, why=reason) for name in formats)
    classes: list[DriftClass] = []
    reports: list[Report] = []
    for name in formats:
        asked = DriftRequest(replace(request.kernel, format=name), request.gpu or DEFAULT)
        worker = watch(MEASURE_DRIFT, asked, limits, listener)
        measured = read_drift(worker)
        if isinstance(measured, Report):
            reports.append(measured)
            classes.append(_classify(name, measured))
        elif measured is not None:
            classes.append(DriftClass(name, why=measured))
        else:
            classes.append(_describe_missing(name, request.name, worker))
        report = replace(report, seconds=round(report.seconds + worker.seconds, 2))
    return _join(report, reports, [drift for drift in classes if drift.missed]), tuple(classes)


def _explain_unmeasured(report: Report, request: CheckRequest) -> str:
    """Return why no drift is measured in any format, "" if there is no reason."""
    if report.verdict != "pass":
        return f"the verdict of its check is {report.verdict}"
    if report.expected:  # which sums of a failing kernel are its own?
        return "its check fails as expected"
    if request.gpu in UNMODELLED:
        return f"no model of the matrix cores of {request.gpu}"
    return ""


def _classify(name: str, measured: Report) -> DriftClass:
    from gemmproof.properties.judges.accumulator_drift import (
        find_kept,  # imports numpy, as its report does
    )

    drift = measured.drift
    assert drift is not None
    accumulator = drift.accumulator
    declared = DriftClass(name, drift.gpu, drift.declared)
    if accumulator is None:
        return replace(declared, why=measured.findings[0].message)
    return replace(
        declared,
        name=accumulator.name,
        is_kept=measured.verdict == "pass",
        keeps=find_kept(accumulator, name),
        reads=accumulator.read,
        truncated=accumulator.output == "truncated",
    )


def _describe_missing(name: str, kernel: str, worker: WorkerExit) -> DriftClass:
    case = worker.case.case if worker.case else kernel
    reason = worker.explain_failure(kernel) or f"{case}: {worker.how}"
    return DriftClass(name, why=reason if worker.end != "halted" else worker.how, missed=True)


def _join(report: Report, drifts: Sequence[Report], missed: Sequence[DriftClass]) -> Report:
    """Add the property that the drift judges, if any, to the report of the check."""
    results = [result for drift in drifts for result in drift.properties]
    findings = tuple(finding for drift in drifts for finding in drift.findings)
    if not results and not missed:
        return report
    ratio = max((result.ratio for result in results if result.ratio is not None), default=None)
    status = "fail" if findings else "pass" if results else "not run"
    # one for each format, as a sign-off counts cases
    added = PropertyResult(ACCUMULATOR, read_claim(ACCUMULATOR), status, len(results), ratio)
    for drift in missed:
        text = f"its drift in {drift.format} was not measured: {drift.why}"
        report = report.with_note(text, "incomplete")
    return replace(
        report,
        properties=(*report.properties, added),
        findings=(*report.findings, *findings),
    )


# -- verdict -------------------------------------------------------------------------------------
ALONE = "left out: registered as device_only, checked only with --device cuda"
_CODES: dict[str, Verdict] = {REFUSED: "fail", INCOMPLETE: "incomplete", SIGNED: "pass"}


def sign(
    inputs: Inputs,
    reports: Sequence[Report],
    left_out: Sequence[str] = (),
    baseline: Signoff | None = None,
    accepted: Collection[str] = (),
    timed: Timed | None = None,
    mutated: Mutated | None = None,
    drifts: Mapping[str, tuple[DriftClass, ...]] | None = None,
) -> Signoff:
    """Return the sign-off of the reports.

    `accepted`: kinds of changes and gaps that do not count against it, "proof", or "proof:KERNEL"
    of one.
    `drifts`: the drift of kernels, by name, if requested.
    """
    reports = [accept_reads(report, accepted) for report in reports]
    kernels = tuple(
        replace(_record(report, timed, mutated), drift=(drifts or {}).get(report.target, ()))
        for report in reports
    )
    codes = {report.verdict for report in reports} or {"incomplete"}
    codes = {"fail" if code == "draft" else code for code in codes}
    versions = next((r.versions for r in reports if len(r.versions) > 1), {})
    signoff = Signoff(SIGNED, "pass", inputs, kernels, tuple(left_out), versions=versions)
    changes = tuple(_accept(compare(baseline, signoff), accepted)) if baseline else ()
    gaps = tuple(_accept(_list_gaps(signoff), accepted))
    own = [*_list_reasons(signoff, baseline), *gaps]
    reasons = [*own, *(c for c in changes if c.weight != SIGNED)]
    reasons.sort(key=lambda reason: GRAVEST.index(weigh(reason)))  # pages show the first ones
    weights = {reason.weight for reason in reasons if not reason.accepted} or {SIGNED}
    codes |= {_CODES[reason.weight] for reason in (*changes, *gaps) if not reason.accepted}
    return replace(
        signoff,
        verdict=next(v for v in GRAVEST if v in weights),
        code=next(v for v in GRAVEST_FIRST if v in codes),
        reasons=tuple(reasons),
        changes=changes,
        baseline=baseline.hash if baseline else None,
    )


def accept_reads(report: Report, accepted: Collection[str]) -> Report:
    """Return the report with lines that look for the checker as mere notes, if they are accepted.

    They stay gaps of the sign-off; without this its kernel would be incomplete.
    """
    if not {READS, f"{READS}:{report.target}"} & set(accepted):
        return report
    notes = (replace(x, verdict="pass") if x.gap == READS else x for x in report.notes)
    return replace(report, notes=tuple(notes))


def _drop_reads(report: Report) -> Report:
    """Return the report without the notes on lines that look for the checker."""
    return replace(report, notes=tuple(note for note in report.notes if note.gap != READS))


def _record(report: Report, timed: Timed | None, mutated: Mutated | None) -> KernelRecord:
    name, facts = report.target, report.identity
    benchmark, why_not_timed = timed.find(name, facts) if timed else (None, "")
    score, why_not_mutated = mutated.find(name, facts) if mutated else (None, "")
    return KernelRecord(report, benchmark, why_not_timed, score, why_not_mutated)


def _accept(reasons: Iterable[Reason], accepted: Collection[str]) -> Iterator[Reason]:
    for reason in reasons:
        is_accepted = bool(set(list_accepting(reason)) & set(accepted))
        yield replace(reason, accepted=is_accepted and reason.weight != SIGNED)


def _list_reasons(signoff: Signoff, baseline: Signoff | None) -> Iterator[Reason]:
    """Yield the reasons that need no baseline, and what the sign-off does not cover."""
    if not signoff.kernels:
        yield Reason("", "incomplete", INCOMPLETE, "no kernel was checked")
    if signoff.inputs.case is not None:
        yield Reason("", "incomplete", INCOMPLETE, "only one case was checked (--case)")
    if signoff.inputs.kernels:
        yield Reason("", "inputs", SIGNED, "only the kernels that --kernel names were judged")
    known = {k.report.target: k.report for k in baseline.kernels} if baseline else {}
    for kernel in signoff.kernels:
        yield from _explain(kernel.report, known.get(kernel.report.target))
    for name in signoff.left_out:
        yield Reason(name, "left out", SIGNED, ALONE)


def _list_gaps(signoff: Signoff) -> Iterator[Reason]:
    """Yield what was not judged of kernels that pass: of others graver reasons are listed."""
    for report in (kernel.report for kernel in signoff.kernels):
        for note in report.notes:
            if note.gap == READS:
                yield Reason(report.target, READS, INCOMPLETE, note.text)
        if _drop_reads(report).verdict == "pass":
            for gap in list_unexercised(report):
                yield Reason(report.target, EXERCISE, INCOMPLETE, gap)
            for branch in report.unvisited:
                yield Reason(report.target, BRANCH, INCOMPLETE, f"branch never ran: {branch}")


def _explain(report: Report, before: Report | None) -> Iterator[Reason]:
    previous = {_key(f) for f in before.findings} if before else set()
    for finding, _ in list_by_cause(report.findings):
        is_new = "" if before is None else "known: " if _key(finding) in previous else "new: "
        text = f"{is_new}{finding.property}: {finding.message}"
        yield Reason(report.target, "finding", REFUSED, text)
    for known, _ in list_expected(report):
        if not known.startswith(" "):  # the reason, not its details
            yield Reason(report.target, "expected", SIGNED, known)
    other = _drop_reads(report)  # the lines that look for the checker are gaps
    if other.verdict in ("error", "incomplete"):
        text = other.note or "it was not checked"
        yield Reason(report.target, other.verdict, INCOMPLETE, text)
    elif other.verdict == "draft":
        yield Reason(report.target, "draft", REFUSED, other.note or "its declaration is a draft")
    elif report.verdict == "fail" and not report.findings:
        yield Reason(report.target, "finding", REFUSED, report.note or "it fails")


def _key(finding: object) -> tuple[object, ...]:
    names = ("property", "fault", "operand", "axis", "backend")
    return tuple(getattr(finding, name) for name in names)
