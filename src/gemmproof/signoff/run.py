"""A sign-off: every kernel of a project, each in a separate worker, in one table."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gemmproof.commands import groups, output
from gemmproof.commands.output import answer, note_unpredicted
from gemmproof.engine.assemble import make_unjudged
from gemmproof.engine.saved_cases import find_store, judge_kept, note_kept
from gemmproof.options import iter_options
from gemmproof.properties.cases.case import Case
from gemmproof.reference.provenance import format_count
from gemmproof.report.files import Writer, write_early
from gemmproof.report.record import EXIT, GRAVEST_FIRST, Report
from gemmproof.report.text import STYLES, Line, clean, lines, list_besides, table
from gemmproof.signoff.page import lines as signoff_lines
from gemmproof.signoff.page import list_gaps, list_lost, list_uncounted, list_unused, list_writers
from gemmproof.signoff.record import (
    ACCUMULATOR,
    INCOMPLETE,
    REFUSED,
    DriftClass,
    Inputs,
    Signoff,
    weigh,
)
from gemmproof.signoff.rules import GAPS
from gemmproof.signoff.verdict import ALONE, accept_reads, add_drift, sign
from gemmproof.terminal import Course, Interrupted, progress, say
from gemmproof.worker.supervisor import open_pool, preload

if TYPE_CHECKING:
    from gemmproof.signoff.command import SignoffOptions

Drifts = dict[str, tuple[DriftClass, ...]]  # by the kernel's name

INTERRUPTED = "stopped after 0 cases: interrupted"
UNDER_WAY = "not checked yet when this was written"
FAIL_FAST = "not run: --fail-fast"


class _Enough(BaseException):
    """With --fail-fast: a kernel has findings, so the others are stopped."""


def find_mistake(options: SignoffOptions) -> str | None:
    """Return one line on options with which no kernel can be judged, or None."""
    if problem := output.find_mistake(options):
        return problem
    if options.judge.case:
        try:
            Case.from_json(options.judge.case)
        except ValueError as error:
            return str(error)
        if options.pages.drift:
            return "--drift: got --case too, expected one of the two"
    if not Path(options.conftest).is_file():
        expected = "expected a conftest.py that registers kernels"
        return f"--conftest: got {options.conftest!r} (no such file), {expected}"
    return None


def prepare(options: SignoffOptions) -> Callable[[], int]:
    """Judge the kernels; return a function that prints the answer and returns the exit code."""
    if error := find_mistake(options):
        return partial(output.refuse_with_annotation, options, error)
    # A conftest that uses the GPU is imported by each worker: a process that uses one cannot fork.
    # So is one that may ask which GPU is the target.
    is_shared = options.judge.device == "cpu" and options.search.gpu is None
    imported = options.conftest if is_shared else None
    with nullcontext() if options.watch else preload(imported, options.worker.limits):
        try:
            kernels, left_out = _kernels(options)
        except ValueError as problem:
            return partial(output.refuse_with_annotation, options, str(problem))
        names = list(kernels)
        drifts: Drifts = {}
        keep = partial(_keep, options, names, left_out, drifts)
        judged, interrupted, reason = _judge_all(options, kernels, drifts, keep)

    def answer_now() -> int:
        code = _answer(options, names, judged, left_out, drifts, reason)
        if interrupted:
            raise interrupted
        return code

    return answer_now


def _kernels(options: SignoffOptions) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the formats of the kernels to judge, by name, and the kernels that need a GPU.

    A kernel that is requested by name is never excluded. Raises ValueError if there are none.
    """
    registered = groups.list_registered(options.conftest, options.worker.limits)
    formats = {kernel.name: kernel.formats for kernel in registered}
    for name in options.kernel:
        if name not in formats:
            raise ValueError(f"--kernel: got {name!r}, expected one of: {' '.join(formats)}")
    if not formats:
        raise ValueError(f"{options.conftest}: got no kernels, expected at least one")
    if options.kernel:
        return {name: formats[name] for name in options.kernel}, []
    is_cpu = options.judge.device == "cpu"
    left_out = [kernel.name for kernel in registered if kernel.device_only and is_cpu]
    return {name: x for name, x in formats.items() if name not in left_out}, left_out


def _judge_all(
    options: SignoffOptions,
    kernels: dict[str, tuple[str, ...]],
    drifts: Drifts,
    keep: Callable[[dict[str, Report]], None],
) -> tuple[dict[str, Report], Interrupted | None, str]:
    """Return the reports by name, what interrupted the run, and why there are no others.

    An interruption is raised if there are no results yet. `keep` is called after each kernel.
    """
    jobs = options.jobs or max(1, min(os.cpu_count() or 1, len(kernels)))
    judged: dict[str, Report] = {}
    interrupted, reason = None, INTERRUPTED
    try:
        shown = progress("signoff", options.quiet, len(kernels), "kernels")
        with shown as course, open_pool(jobs) as pool:
            started = [
                pool.submit(_judge_one, options, name, formats, judged, drifts, course)
                for name, formats in kernels.items()
            ]
            for future in as_completed(started):
                report = judged.get(future.result())
                if report is None:  # it was halted: a file of it changed
                    break
                say(f"{report.target}: {report.verdict} after {report.seconds:.1f} s")
                if not options.watch:  # which writes only complete results
                    keep(dict(judged))
                if options.fail_fast and report.verdict == "fail":
                    raise _Enough
    except _Enough:
        reason = FAIL_FAST
    except Interrupted as stop:
        if not judged or options.watch:
            raise
        interrupted = stop
    return judged, interrupted, reason


def _judge_one(
    options: SignoffOptions,
    name: str,
    formats: tuple[str, ...],
    judged: dict[str, Report],
    drifts: Drifts,
    course: Course,
) -> str:
    """Add a kernel's report to `judged`, where it survives an interruption.

    The report of a halted kernel is added if it has findings.
    """
    registered = groups.ask_registered(_choose(options, name), (), options.search)
    request = replace(groups.ask_judge(registered, options.judge), limits=True)
    store = find_store(options.judge.saved_cases, request)
    limits = options.worker.limits
    with course.follow(name) as listener:
        report, worker = judge_kept(request, limits, store, listener)
        report = accept_reads(note_kept(report, worker), options.pages.accept)
        if report.memory_only:
            report = report.with_note("a sign-off needs values: remove memory_only", "incomplete")
        if options.pages.drift and worker.end != "halted":
            result = add_drift(report, request, formats, limits, listener)
            report, drifts[name] = result
    if worker.end != "halted" or report.findings:
        judged[name] = report
    return name


def _choose(options: SignoffOptions, name: str) -> groups.KernelOptions:
    return groups.KernelOptions(kernel=(name,), conftest=options.conftest)


def _reproduce(options: SignoffOptions, report: Report) -> Callable[[Case], str]:
    drifted = {f.case for f in report.findings if f.property == ACCUMULATOR}
    kernel, gpu = _choose(options, report.target).arguments, options.search.gpu
    line = partial(groups.replay, "signoff", kernel, gpu, device=options.judge.device)
    # drift is measured at separate sizes
    return lambda case: line(None if case in drifted else case)


def _answer(
    options: SignoffOptions,
    names: list[str],
    judged: dict[str, Report],
    left_out: list[str],
    drifts: Drifts,
    reason: str,
) -> int:
    reports = _complete(names, judged, reason)
    reproduce = {report.target: _reproduce(options, report) for report in reports}
    signed = _sign(options, reports, left_out, drifts)
    verdict = signed.code
    notes = [(clean(f"{name}: {ALONE}"), "") for name in left_out]
    if reason == FAIL_FAST:
        notes += [(clean(f"{name}: {reason}"), "") for name in names if name not in judged]
    shown = [r for r in reports if r.target in judged and r.verdict != "pass"]
    output_lines = [line for r in shown for line in (*lines(r, reproduce[r.target]), ("", ""))]
    for report in reports:
        if report.verdict == "pass":
            name = clean(report.target)
            notes += [(f"{name}: {text.strip()}", style) for text, style in list_besides(report)]
    notes += list_gaps(signed)
    notes += [*list_unused(signed, options.pages.accept), *list_uncounted(signed)]
    context = (options, reports, reproduce, list_lost(signed))
    output_lines += [*signoff_lines(signed), *_summarise(options, reports, signed), *notes]
    output_lines += output.list_notes(*context)
    code = answer(options, EXIT[verdict], output_lines, _list_writers(signed, reports, reproduce))
    return output.summarise(code, verdict, *context)


def _complete(names: list[str], judged: dict[str, Report], reason: str) -> list[Report]:
    """Return the reports in the order of their kernels; an unjudged one has the reason."""
    return [judged.get(name) or make_unjudged(name, reason) for name in names]


def _sign(
    options: SignoffOptions, reports: Sequence[Report], left_out: Sequence[str], drifts: Drifts
) -> Signoff:
    """Return the sign-off of the reports."""
    search, judge, pages = options.search, options.judge, options.pages
    inputs = Inputs(
        target=search.gpu,
        device=judge.device,
        seed=search.seed,
        max_examples=search.max_examples,
        proof=judge.proof,
        case=judge.case,
        kernels=options.kernel,
    )
    read = (pages.baseline, pages.accept, pages.bench, pages.mutation)
    return sign(inputs, reports, left_out, *read, drifts)


def _list_writers(
    signed: Signoff, reports: list[Report], reproduce: dict[str, Callable[[Case], str]]
) -> dict[str, Writer]:
    """Return the writer of each report that can be requested, by its option."""
    return {
        **list_writers(signed, reproduce),
        **output.list_forms(reports, reproduce, list_lost(signed)),
    }


def _keep(
    options: SignoffOptions,
    names: list[str],
    left_out: list[str],
    drifts: Drifts,
    judged: dict[str, Report],
) -> None:
    """Write the reports so far, so that they survive the end of this process."""
    reports = _complete(names, judged, UNDER_WAY)
    reproduce = {report.target: _reproduce(options, report) for report in reports}
    signed = _sign(options, reports, left_out, drifts)
    writers = _list_writers(signed, reports, reproduce)
    for option in iter_options(options):
        if option.field in writers:
            write_early(option.default, writers[option.field])


def _summarise(options: SignoffOptions, reports: list[Report], signed: Signoff) -> list[Line]:
    """Return the table of all kernels, their verdicts, and the regressions against a baseline."""
    width = shutil.get_terminal_size((100, 24)).columns
    out: list[Line] = [(row, "") for row in table(reports, width)]
    proofs = any(p.is_proved for report in reports for p in report.properties)
    legend = f"worst error as a fraction of its bound,{' proved for every size,' * proofs} cases"
    out += [("", ""), (legend, "dim")]
    counts = {v: sum(r.verdict == v for r in reports) for v in GRAVEST_FIRST}
    summary = ", ".join(f"{count} {v}" for v, count in counts.items() if count)
    weights = [weigh(change) for change in signed.changes]
    against = [f"{weights.count(w)} {w}" for w in (REFUSED, INCOMPLETE) if w in weights]
    summary = f"{summary or 'no kernel checked'}"
    gaps = sum(reason.kind in GAPS and not reason.accepted for reason in signed.reasons)
    summary += f"; {format_count(gaps, 'gap')}" if gaps else ""
    summary += f"; against the baseline: {', '.join(against)}" if against else ""
    verdict = (f"signoff: {signed.code} ({summary})", STYLES[signed.code])
    return [*out, verdict, *note_unpredicted(options.search.gpu)]
