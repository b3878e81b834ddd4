"""The command `check`."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gemmproof.commands import output as forms
from gemmproof.commands.list import find_only_wrapper
from gemmproof.commands.output import answer, limits_of, note_unpredicted, unwritable
from gemmproof.engine.assemble import judge, make_error
from gemmproof.engine.saved_cases import find_store, judge_kept, note_kept
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import ANY, HUGE
from gemmproof.properties.codec import encode
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT, GRAVEST_FIRST, Coverage, PropertyResult, Report
from gemmproof.report.text import Line, Reproduce, add_commands, clean, lines
from gemmproof.spelling import write_command
from gemmproof.target import Calling, Target, TargetError, parse
from gemmproof.terminal import progress, say
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import Limits, open_pool, preload


# -- one check for each format -------------------------------------------------------------------
@dataclass(slots=True)
class Checks:
    """The checks of one kernel, `jobs` at a time.

    `known` are the reports by contracts of one format. A format's cases do not depend on the other
    formats, so a report stays valid if others are added or dropped.
    """

    request: Request
    limits: Limits
    jobs: int
    quiet: bool = False
    known: dict[Contract, Report] = field(default_factory=dict)

    def check(
        self, contract: Contract, title: str, kept: Collection[str] = ()
    ) -> dict[str, Report]:
        """Return the report of each format of a contract; the first one is tried beyond it, too.

        If a format of `kept`, which kept a narrower contract, fails, formats not yet begun are
        skipped: they would fail too, for what they have in common.
        """
        asked = {name: replace(contract, formats=(name,)) for name in contract.formats}
        new = [name for name, narrow in asked.items() if narrow not in self.known]
        stop = threading.Event()
        shown = progress(title, self.quiet, len(new), "formats")
        with shown as course, open_pool(self.jobs) as pool:

            def judge_one(name: str) -> None:
                if stop.is_set():
                    return
                limits = name == contract.formats[0]
                request = replace(self.request, contract=asked[name].to_dict(), limits=limits)
                with course.follow(name) as listener:
                    report = self.known[asked[name]] = judge(request, self.limits, listener)[0]
                if report.verdict != "pass" and name in kept:
                    stop.set()

            list(pool.map(judge_one, new))
        return {name: self.known[narrow] for name, narrow in asked.items() if narrow in self.known}


def merge(reports: dict[str, Report]) -> Report:
    """Return one report for all formats; limits are the first format's, without other formats."""
    first = next(iter(reports.values()))
    gravest = min(reports.values(), key=lambda report: GRAVEST_FIRST.index(report.verdict))
    return replace(
        first,
        notes=gravest.notes,
        properties=_merge_properties(p for r in reports.values() for p in r.properties),
        findings=_merge_findings(f for r in reports.values() for f in r.findings),
        seconds=round(sum(report.seconds for report in reports.values()), 2),
        limits=tuple(limit for limit in first.limits if limit.name not in reports),
        identity=None if first.identity is None else first.identity.of_formats(reports),
        coverage=Coverage.merge(report.coverage for report in reports.values()),
    )


def _merge_properties(results: Iterable[PropertyResult]) -> tuple[PropertyResult, ...]:
    merged: dict[str, PropertyResult] = {}
    for result in results:
        other = merged.setdefault(result.label, result)
        if other is not result:
            status = next(
                s
                for s in ("fail", "expected", "pass", "not run")
                if s in (result.status, other.status)
            )
            ratio = max((r.ratio for r in (result, other) if r.ratio is not None), default=None)
            examples = result.examples + other.examples
            merged[result.label] = replace(result, status=status, ratio=ratio, examples=examples)
    return tuple(merged.values())


def _merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return each fault once, at its simplest case, root causes first."""
    merged: dict[Any, Finding] = {}
    for finding in sorted(findings, key=lambda f: (f.cause is not None, f.case.rank)):
        merged.setdefault(finding.key, finding)
    return tuple(merged.values())


# -- check ---------------------------------------------------------------------------------------
SHOWN_PRINTS = 40  # lines of what a kernel prints for a single case


def run(options: argparse.Namespace) -> int:
    """Judge the target, write the requested reports, print the answer.

    With --watch, again after each change.
    """
    judge_now = partial(prepare, options)
    if not options.watch:
        return judge_now()()
    from gemmproof.watch import explain_no_watch, keep_judging

    if problem := explain_no_watch() or unwritable(options, forms.FORMS):
        return forms.refuse_with_annotation(options, problem)
    try:
        if options.target.endswith(".py"):
            options.target = find_only_wrapper(options.target)[0]
        target = parse(options.target)
    except (TargetError, ValueError):
        return judge_now()()
    # a separate worker for each judgement, which starts with the engine imported
    with preload(limits=limits_of(options)) if options.device == "cpu" else nullcontext():
        reason = keep_judging(target, judge_now, options.quiet)
    say(f"gemmproof check: --watch: {reason}")
    return EXIT["incomplete"]


def prepare(options: argparse.Namespace) -> Callable[[], int]:
    """Judge the target; return a function that answers, writes the reports and returns the code."""
    if problem := forms.find_mistake(options):
        return partial(_answer, options, make_error(options.target, problem), write=False)
    try:
        if options.target.endswith(".py"):
            file, (options.target, others) = options.target, find_only_wrapper(options.target)
            if others:
                return partial(_answer, options, _refuse_file(file), more=others)
            say(f"gemmproof check: {options.target} is the only wrapper in it")
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return partial(_answer, options, make_error(options.target, str(error)))
    with progress(request.name, options.quiet) as listener:
        store = find_store(options.kept, request)
        report, worker = judge_kept(request, limits_of(options), store, listener)
    report = replace(note_kept(report, worker), target=options.target)
    # Output matters for a single case; an internal error needs its traceback.
    shows_output = options.case or "internal" in worker.events
    printed = worker.events.get("printed", {"lines": []})["lines"]
    output = worker.output if shows_output else ""
    return partial(_answer, options, report, output=output, printed=printed)


def _refuse_file(file: str) -> Report:
    return make_error(file, f"target: got {file!r}, expected {file}:function, one of its wrappers")


def request_of(options: argparse.Namespace) -> Request:
    """Return the worker's request. Raises TargetError or ValueError, in one line."""
    case = None if options.case is None else Case.from_json(options.case)
    target = parse(options.target)
    calling = calling_of(options, target.name)
    if case is not None:
        calling.state(target.name).require(case)
    return Request(
        ask="check",
        name=target.name,
        target=encode(target),
        contract=contract_of(options, target, case).to_dict(),
        calling=encode(calling),
        max_examples=options.max_examples,
        seed=options.seed,
        gpu=options.gpu,
        launch=options.device == "cuda",
        limits=True,
        case=options.case,
        proof=options.proof,
        premise=options.premise,
    )


def calling_of(options: argparse.Namespace, name: str) -> Calling:
    """Return how to call the wrapper. Raises ValueError, in one line, for options of no kernel."""
    calling = Calling(options.call, tuple(options.operand), options.spec)
    calling.state(name)
    return calling


def contract_of(options: argparse.Namespace, target: Target, case: Case | None = None) -> Contract:
    """Return the contract of the options; a single case widens it to the least that admits it."""
    formats = tuple(dict.fromkeys(options.dtype or [case.dtype if case else "fp16"]))
    batched = options.batched or target.name == "bmm"
    if case and case.dtype not in formats:
        raise ValueError(
            f"case dtype: got {case.dtype}, expected one of --dtype: {' '.join(formats)}"
        )
    if case and batched and case.batch is None:
        raise ValueError("case: got no batch, expected one for 3-D operands")
    contract = Contract(
        formats=formats,
        **options.sizes,
        where=options.where,
        layouts=options.layouts,
        huge=options.huge,
        batched=batched or (case is not None and case.batch is not None),
        accumulator=options.accumulator,
        out=options.out_dtype,
        deterministic=not options.any_order,
        batch_invariant=options.batch_invariant,
        tensor_cores=options.tensor_cores,
        spills=options.spills,
        fits=tuple(dict.fromkeys(options.fits or ())),
        expected=dict(getattr(options, "expect", ())),
    )
    return contract if case is None else widen_to(contract, case)


def widen_to(contract: Contract, case: Case) -> Contract:
    """Return the contract widened by what a case needs: empty sides, its layouts, offsets."""
    huge = contract.huge or case.is_sampled or any(layout in HUGE for _, layout in case.layouts)
    layouts = ANY if case.layouts else contract.layouts
    sides: dict[str, Any] = {
        axis: f"{min(n, contract.sizes(axis).low)}.."
        for axis, n in case.sides.items()
        if n not in contract.sizes(axis)
    }
    wider = replace(contract, layouts=layouts, huge=huge, **sides)
    return wider if wider.admits(case.sides) else replace(wider, where=None)


def reproduce_line(options: argparse.Namespace, case: Case) -> str:
    """Return a command that judges this case alone; it can be pasted into a shell."""
    argv = ["gemmproof", "check", options.target]
    if options.sizes:
        argv += ["--sizes", ",".join(f"{axis}={sizes}" for axis, sizes in options.sizes.items())]
    for name in ("where", "layouts", "accumulator", "out_dtype"):
        if getattr(options, name) not in (None, "contiguous", "fp32"):
            argv += [f"--{name.replace('_', '-')}", getattr(options, name)]
    argv += calling_of(options, "kernel").to_argv()
    for flag in ("huge", "batched", "any_order", "batch_invariant", "tensor_cores"):
        argv += [f"--{flag.replace('_', '-')}"] * getattr(options, flag)
    if options.spills is not None:
        argv += ["--spills", str(options.spills)]
    if options.fits:
        argv += ["--fits", ",".join(dict.fromkeys(options.fits))]
    if options.gpu:
        argv += ["--target", options.gpu]
    if options.device != "cpu":
        argv += ["--device", options.device]
    return write_command([*argv, "--case", case.to_json()])


def _hint(report: Report) -> list[Line]:
    """Return a line on the help page of the first finding, if stdout is a terminal."""
    if not report.findings or not sys.stdout.isatty():
        return []
    return [(f"gemmproof explain {clean(report.findings[0].property)} says more", "dim")]


def _answer(
    options: argparse.Namespace,
    report: Report,
    write: bool = True,
    output: str = "",
    printed: Sequence[str] = (),
    more: Sequence[Line] = (),
) -> int:
    def reproduce(case: Case) -> str:
        return reproduce_line(options, case)

    by_target: dict[str, Reproduce] = {report.target: reproduce}
    reports: dict[str, Writer] = {
        "json": lambda path: write_json(path, add_commands(report, reproduce)),
        **forms.list_forms([report], by_target),
    }
    text = [(f"  | {clean(line)}", "") for line in output.splitlines()[-10:]]
    head = [("the last output of the worker:", ""), *text, ("", "")] if text else []
    if printed:
        head += [("the kernel printed:", "")]
        head += [(f"  | {clean(line)}", "") for line in printed[:SHOWN_PRINTS]]
        if len(printed) > SHOWN_PRINTS:
            head.append((f"  and {len(printed) - SHOWN_PRINTS} lines more", ""))
        head.append(("", ""))
    code, written = EXIT[report.verdict], reports if write else {}
    context = (options, [report], by_target)
    if report.verdict == "error":
        reason = (clean(f"gemmproof check: {report.note}"), "")
        text = [*head, reason, *more, *forms.list_notes(*context)]
        code = answer(options, code, text, written, to_stderr=True)
    else:
        body = [*lines(report, reproduce), *note_unpredicted(options.gpu), *_hint(report)]
        code = answer(options, code, [*head, *body, *forms.list_notes(*context)], written)
    return forms.summarise(code, report.verdict, *context)
