"""The verdict of a sign-off, and why: findings, what was not judged, what a baseline shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gemmproof.properties.finding import list_by_cause
from gemmproof.report.report import GRAVEST_FIRST, Report
from gemmproof.report.text import list_expected
from gemmproof.signoff.compare import compare
from gemmproof.signoff.mutated import Mutated
from gemmproof.signoff.record import (
    GRAVEST,
    INCOMPLETE,
    REFUSED,
    SIGNED,
    DriftClass,
    Inputs,
    KernelRecord,
    Reason,
    Signoff,
    list_accepting,
    weigh,
)
from gemmproof.signoff.timed import Timed

ALONE = "left out: registered device_only, it is judged with --device cuda"
_CODES = {REFUSED: "fail", INCOMPLETE: "incomplete", SIGNED: "pass"}


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
    """The sign-off of these reports.

    `accepted`: kinds of changes that do not speak against it, "proof", or "proof:KERNEL" of one.
    `drifts`: the drift of kernels, by name, where it was asked for.
    """
    kernels = tuple(
        replace(_record(report, timed, mutated), drift=(drifts or {}).get(report.target, ()))
        for report in reports
    )
    codes = {report.verdict for report in reports} or {"incomplete"}
    versions = next((r.versions for r in reports if len(r.versions) > 1), {})
    made = Signoff(SIGNED, "pass", inputs, kernels, tuple(left_out), versions=versions)
    changes = tuple(_accept(compare(baseline, made), accepted)) if baseline else ()
    reasons = [*_list_reasons(made, baseline), *(c for c in changes if c.weight != SIGNED)]
    reasons.sort(key=lambda one: GRAVEST.index(weigh(one)))  # pages show the first of them
    weights = {reason.weight for reason in reasons if not reason.accepted} or {SIGNED}
    codes |= {_CODES[one.weight] for one in changes if not one.accepted}
    return replace(
        made,
        verdict=next(v for v in GRAVEST if v in weights),
        code=next(v for v in GRAVEST_FIRST if v in codes),
        reasons=tuple(reasons),
        changes=changes,
        baseline=baseline.hash if baseline else None,
    )


def _record(report: Report, timed: Timed | None, mutated: Mutated | None) -> KernelRecord:
    name, facts = report.target, report.facts
    benchmark, why_not_timed = timed.find(name, facts) if timed else (None, "")
    score, why_not_mutated = mutated.find(name, facts) if mutated else (None, "")
    return KernelRecord(report, benchmark, why_not_timed, score, why_not_mutated)


def _accept(changes: Iterable[Reason], accepted: Collection[str]) -> Iterator[Reason]:
    for one in changes:
        is_accepted = bool(set(list_accepting(one)) & set(accepted))
        yield replace(one, accepted=is_accepted and one.weight != SIGNED)


def _list_reasons(made: Signoff, baseline: Signoff | None) -> Iterator[Reason]:
    """What speaks for itself, and what the sign-off does not cover."""
    if not made.kernels:
        yield Reason("", "incomplete", INCOMPLETE, "no kernel was judged")
    if made.inputs.case is not None:
        yield Reason("", "incomplete", INCOMPLETE, "only one case was judged (--case)")
    if made.inputs.kernels:
        yield Reason("", "inputs", SIGNED, "only the kernels that --kernel names were judged")
    known = {k.report.target: k.report for k in baseline.kernels} if baseline else {}
    for kernel in made.kernels:
        yield from _explain(kernel.report, known.get(kernel.report.target))
    for name in made.left_out:
        yield Reason(name, "left out", SIGNED, ALONE)


def _explain(report: Report, before: Report | None) -> Iterator[Reason]:
    found = {_key(f) for f in before.findings} if before else set()
    for finding, _ in list_by_cause(report.findings):
        is_new = "" if before is None else "known: " if _key(finding) in found else "new: "
        said = f"{is_new}{finding.property}: {finding.message}"
        yield Reason(report.target, "finding", REFUSED, said)
    for known, _ in list_expected(report):
        if not known.startswith(" "):  # of what is told of it, the reason
            yield Reason(report.target, "expected", SIGNED, known)
    if report.verdict in ("error", "incomplete"):
        said = report.note or "it was not judged"
        yield Reason(report.target, report.verdict, INCOMPLETE, said)
    elif report.verdict == "fail" and not report.findings:
        yield Reason(report.target, "finding", REFUSED, report.note or "it fails")


def _key(finding: object) -> tuple[object, ...]:
    names = ("property", "fault", "operand", "axis", "backend")
    return tuple(getattr(finding, name) for name in names)
