"""The command `check`."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from gemmproof.commands import output as forms
from gemmproof.commands.list import find_only_wrapper
from gemmproof.commands.output import answer, limits_of, note_unpredicted, unwritable
from gemmproof.engine.assemble import judge, make_error
from gemmproof.engine.saved_cases import find_store, judge_kept, note_kept
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import ANY, HUGE
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT, GRAVEST_FIRST, Coverage, PropertyResult, Report
from gemmproof.report.text import Line, Reproduce, clean, document, lines
from gemmproof.spelling import write_command
from gemmproof.target import Calling, Target, TargetError, parse
from gemmproof.terminal import progress, say
from gemmproof.worker.protocol import Request
from gemmproof.worker.supervisor import Limits, open_pool, preload


# -- one check for each format -------------------------------------------------------------------
@dataclass(slots=True)
class Checks:
    """The checks of one kernel, `jobs` at a time.

    `known` are the reports by contracts of one format. What a format draws does not depend on the
    others, so a report stays true where others are added or given up.
    """

    request: Request
    limits: Limits
    jobs: int
    quiet: bool = False
    known: dict[Contract, Report] = field(default_factory=dict)

    def check(
        self, contract: Contract, title: str, kept: Collection[str] = ()
    ) -> dict[str, Report]:
        """The report of each format of a contract; the first one is tried beyond it, too.

        Where a format of `kept` fails, which kept a narrower contract, those that have not begun
        are left out: they would fail too, for what they have in common.
        """
        asked = {name: replace(contract, formats=(name,)) for name in contract.formats}
        new = [name for name, one in asked.items() if one not in self.known]
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
        return {name: self.known[one] for name, one in asked.items() if one in self.known}


def merge(reports: dict[str, Report]) -> Report:
    """One report of those of each format; what lies beyond the first one, other formats aside."""
    first = next(iter(reports.values()))
    gravest = min(reports.values(), key=lambda report: GRAVEST_FIRST.index(report.verdict))
    return replace(
        first,
        verdict=gravest.verdict,
        note=gravest.note,
        properties=_merge_properties(p for r in reports.values() for p in r.properties),
        findings=_merge_findings(f for r in reports.values() for f in r.findings),
        seconds=round(sum(report.seconds for report in reports.values()), 2),
        limits=tuple(limit for limit in first.limits if limit.name not in reports),
        facts=None if first.facts is None else first.facts.of_formats(reports),
        coverage=Coverage.merge(report.coverage for report in reports.values()),
    )


def _merge_properties(results: Iterable[PropertyResult]) -> tuple[PropertyResult, ...]:
    found: dict[str, PropertyResult] = {}
    for one in results:
        other = found.setdefault(one.label, one)
        if other is not one:
            status = next(
                s
                for s in ("fail", "expected", "pass", "not run")
                if s in (one.status, other.status)
            )
            ratio = max((r.ratio for r in (one, other) if r.ratio is not None), default=None)
            examples = one.examples + other.examples
            found[one.label] = replace(one, status=status, ratio=ratio, examples=examples)
    return tuple(found.values())


def _merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each fault once, at its simplest case, root causes first."""
    found: dict[Any, Finding] = {}
    for one in sorted(findings, key=lambda f: (f.cause is not None, f.case.rank)):
        found.setdefault(one.key, one)
    return tuple(found.values())


# -- check ---------------------------------------------------------------------------------------
SHOWN_PRINTS = 40  # lines of what a kernel prints for a single case


def run(options: argparse.Namespace) -> int:
    """Judge the target, write the reports that were asked for, print the answer.

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
    # a worker of its own for each judgement, which begins with the engine imported
    with preload(limits=limits_of(options)) if options.device == "cpu" else nullcontext():
        why = keep_judging(target, judge_now, options.quiet)
    say(f"gemmproof check: --watch: {why}")
    return EXIT["incomplete"]


def prepare(options: argparse.Namespace) -> Callable[[], int]:
    """Judge the target; what gives the answer, writes the reports and has the exit code."""
    if problem := forms.find_mistake(options):
        return partial(_answer, options, make_error(options.target, problem), write=False)
    try:
        if options.target.endswith(".py"):
            file, (options.target, others) = options.target, find_only_wrapper(options.target)
            if others:
                return partial(_answer, options, _refuse_file(file), more=others)
            say(f"gemmproof check: {options.target} is the only wrapper in it")
        request = request_of(options)
    except (TargetError, ValueError) as mistake:
        return partial(_answer, options, make_error(options.target, str(mistake)))
    with progress(request.name, options.quiet) as listener:
        store = find_store(options.kept, request)
        report, worker = judge_kept(request, limits_of(options), store, listener)
    report = replace(note_kept(report, worker), target=options.target)
    # A single case is looked at closely; our own mistake needs its traceback.
    said = options.case or "internal" in worker.events
    printed = worker.events.get("printed", {"lines": []})["lines"]
    output = worker.output if said else ""
    return partial(_answer, options, report, output=output, printed=printed)


def _refuse_file(file: str) -> Report:
    return make_error(file, f"target: got {file!r}, expected {file}:function, one of its wrappers")


def request_of(options: argparse.Namespace) -> Request:
    """What the worker is asked. Raises TargetError or ValueError, in one line."""
    case = None if options.case is None else Case.from_json(options.case)
    target = parse(options.target)
    calling = calling_of(options, target.name)
    if case is not None:
        calling.state(target.name).require(case)
    return Request(
        ask="check",
        name=target.name,
        target=asdict(target),
        contract=contract_of(options, target, case).to_dict(),
        calling=asdict(calling),
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
    """How the wrapper is called. Raises ValueError, in one line, for what makes no kernel."""
    calling = Calling(options.call, tuple(options.operand), options.spec)
    calling.state(name)
    return calling


def contract_of(options: argparse.Namespace, target: Target, case: Case | None = None) -> Contract:
    """The contract that the options state; a case alone widens it to the least that admits it."""
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
    """The contract with what a case needs beyond it: empty sides, its layouts, offsets."""
    huge = contract.huge or case.is_sampled or any(place in HUGE for _, place in case.layouts)
    layouts = ANY if case.layouts else contract.layouts
    sides: dict[str, Any] = {
        axis: f"{min(n, contract.sizes(axis).low)}.."
        for axis, n in case.sides.items()
        if n not in contract.sizes(axis)
    }
    wider = replace(contract, layouts=layouts, huge=huge, **sides)
    return wider if wider.admits(case.sides) else replace(wider, where=None)


def reproduce_line(options: argparse.Namespace, case: Case) -> str:
    """A command that judges this case alone; it can be pasted into a shell."""
    words = ["gemmproof", "check", options.target]
    if options.sizes:
        words += ["--sizes", ",".join(f"{axis}={sizes}" for axis, sizes in options.sizes.items())]
    for name in ("where", "layouts", "accumulator", "out_dtype"):
        if getattr(options, name) not in (None, "contiguous", "fp32"):
            words += [f"--{name.replace('_', '-')}", getattr(options, name)]
    words += calling_of(options, "kernel").words()
    for flag in ("huge", "batched", "any_order", "batch_invariant", "tensor_cores"):
        words += [f"--{flag.replace('_', '-')}"] * getattr(options, flag)
    if options.spills is not None:
        words += ["--spills", str(options.spills)]
    if options.fits:
        words += ["--fits", ",".join(dict.fromkeys(options.fits))]
    if options.gpu:
        words += ["--target", options.gpu]
    if options.device != "cpu":
        words += ["--device", options.device]
    return write_command([*words, "--case", case.to_json()])


def _hint(report: Report) -> list[Line]:
    """Where more is said of the first finding, for a person who reads this now."""
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
        "json": lambda place: write_json(place, document(report, reproduce)),
        **forms.list_forms([report], by_target),
    }
    said = [(f"  | {clean(line)}", "") for line in output.splitlines()[-10:]]
    head = [("the last output of the worker:", ""), *said, ("", "")] if said else []
    if printed:
        head += [("the kernel printed:", "")]
        head += [(f"  | {clean(line)}", "") for line in printed[:SHOWN_PRINTS]]
        if len(printed) > SHOWN_PRINTS:
            head.append((f"  and {len(printed) - SHOWN_PRINTS} lines more", ""))
        head.append(("", ""))
    code, written = EXIT[report.verdict], reports if write else {}
    told = (options, [report], by_target)
    if report.verdict == "error":
        why = (clean(f"gemmproof check: {report.note}"), "")
        said = [*head, why, *more, *forms.list_notes(*told)]
        code = answer(options, code, said, written, to_stderr=True)
    else:
        found = [*lines(report, reproduce), *note_unpredicted(options.gpu), *_hint(report)]
        code = answer(options, code, [*head, *found, *forms.list_notes(*told)], written)
    return forms.summarise(code, report.verdict, *told)
