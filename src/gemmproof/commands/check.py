"""`gemmproof check`: one kernel, judged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands import output as forms
from gemmproof.commands.list import find_only_wrapper
from gemmproof.commands.output import answer, note_unpredicted, unwritable
from gemmproof.draft.command import declare, draft_target, list_draft, list_reasons
from gemmproof.draft.record import DraftedOptions
from gemmproof.engine.assemble import make_error, make_unjudged
from gemmproof.engine.request import PRINTED, CheckRequest
from gemmproof.engine.saved_cases import find_store, judge_kept, note_kept
from gemmproof.options import Command, argument, flag, group
from gemmproof.report.files import Writer, write_json
from gemmproof.report.record import EXIT, Report
from gemmproof.report.text import Line, Reproduce, add_commands, clean, lines, list_gaps
from gemmproof.target import Calling, Target, TargetError, parse
from gemmproof.terminal import progress, say
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.supervisor import preload
from gemmproof.wrappers import count_required

SHOWN_PRINTS = 40  # lines of what a kernel prints for a single case


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of `gemmproof check`."""

    command: ClassVar = Command(
        "check",
        help="check one kernel",
        description="Check the wrapper f(a, b) -> c of a Triton GEMM kernel. No GPU is needed. The"
        " call and the formula of another wrapper are drafted.",
        examples=(
            "gemmproof check my_kernels.py:matmul",
            "gemmproof check my_kernels.py:matmul --dtype bf16 --sizes K=16..:16 --layouts any",
        ),
        exits="0 every property held, 1 findings, or gaps with --strict, 2 bad usage or target,"
        " 3 incomplete, 4 held with a draft of the declaration",
    )

    target: str = argument("TARGET", groups.TARGET)
    expected: tuple[tuple[str, str], ...] = groups.expected_option()
    strict: bool = flag("fail if a property was not exercised, or a branch never ran")
    limits: bool = flag("list each limit beyond the contract, with the option that includes it")
    watch: bool = flag("check again whenever a source file of the target changes")
    quiet: bool = groups.quiet_flag()
    search: groups.SearchOptions = group(groups.SearchOptions())
    judge: groups.JudgeOptions = group(groups.JudgeOptions())
    forms: groups.FormOptions = group(groups.FormOptions())
    contract: groups.ContractOptions = group(groups.ContractOptions())
    calling: Calling = group(Calling())
    worker: groups.WorkerOptions = group(groups.WorkerOptions())


def run(options: CheckOptions) -> int:
    """Judge the target, write the requested reports, print the answer.

    With --watch, again after each change.
    """
    if not options.watch:
        return prepare(options)()
    from gemmproof.watch import explain_no_watch, keep_judging

    if problem := explain_no_watch() or unwritable(options):
        return forms.refuse_with_annotation(options, problem)
    try:
        if options.target.endswith(".py"):
            options = replace(options, target=find_only_wrapper(options.target)[0])
        target = parse(options.target)
    except (TargetError, ValueError):
        return prepare(options)()
    # a separate worker for each judgement, which starts with the engine imported
    with preload(limits=options.worker.limits) if options.judge.device == "cpu" else nullcontext():
        reason = keep_judging(target, partial(prepare, options), options.quiet)
    say(f"gemmproof check: --watch: {reason}")
    return EXIT["incomplete"]


def prepare(options: CheckOptions) -> Callable[[], int]:
    """Judge the target; return a function that answers, writes the reports and returns the code."""
    if problem := forms.find_mistake(options):
        return partial(_answer, options, make_error(options.target, problem), write=False)
    try:
        if options.target.endswith(".py"):
            target, others = find_only_wrapper(options.target)
            if others:
                text = f"target: got {target!r}, expected {target}:function, one of its wrappers"
                return partial(_answer, options, make_error(target, text), more=others)
            options = replace(options, target=target)
            say(f"gemmproof check: {options.target} is the only wrapper in it")
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return partial(_answer, options, make_error(options.target, str(error)))
    can_draft = options.calling.is_plain and options.judge.case is None
    assert request.kernel.target is not None
    required = count_required(request.kernel.target) if can_draft else 2
    if required not in (2, None):
        drafted = _draft(options, request.kernel.target)
        return _judge_draft(options, request.kernel.target, drafted)
    report, worker = _judge(options, request)
    is_unknown = required is None and report.verdict == "error"
    if can_draft and (is_unknown or _may_take_others(report)):
        drafted = _draft(options, request.kernel.target)
        is_taken = report.verdict != "error" and drafted is not None and drafted.is_plain
        if drafted is not None and drafted.is_drafted and not is_taken:
            return _judge_draft(options, request.kernel.target, drafted)
    return _complete(options, report, worker)


def _judge(options: CheckOptions, request: CheckRequest) -> tuple[Report, WorkerExit]:
    """Judge a kernel, and save its failing cases."""
    with progress(request.name, options.quiet) as listener:
        store = find_store(options.judge.saved_cases, request)
        return judge_kept(request, options.worker.limits, store, listener)


def _may_take_others(report: Report) -> bool:
    """Return whether a wrapper may take other operands than a[M, K] and b[K, N]."""
    return any(
        f.property == "runs_to_completion" and f.backend == "simulator" for f in report.findings
    )


def _draft(options: CheckOptions, target: Target) -> DraftedOptions | None:
    """Draft the declaration of a target in a worker; None if that gives no answer."""
    with progress(target.name, options.quiet) as listener:
        return draft_target(target, options.worker.limits, listener)[1]


def _judge_draft(
    options: CheckOptions, target: Target, draft: DraftedOptions | None
) -> Callable[[], int]:
    """Judge a target as it was drafted; return the function that answers."""
    if draft is None:  # the plain check says what is wrong with the target
        return _complete(options, *_judge(options, request_of(options)))
    if not draft.is_drafted:
        text = f"no draft of its declaration: declare {', '.join(draft.asked)}"
        report = make_unjudged(options.target, text)
        return partial(_answer, options, report, more=list_reasons(target, draft))
    options = replace(options, contract=declare(options.contract, draft), calling=draft.calling)
    try:
        request = request_of(options)
    except (TargetError, ValueError) as error:
        return partial(_answer, options, make_error(options.target, str(error)))
    request = replace(request, kernel=replace(request.kernel, draft=True))
    report, worker = _judge(options, request)
    return _complete(options, report, worker, list_draft(target, draft))


def _complete(
    options: CheckOptions, report: Report, worker: WorkerExit, more: Sequence[Line] = ()
) -> Callable[[], int]:
    """Return the function that answers with a report."""
    report = replace(note_kept(report, worker), target=options.target)
    if options.strict and report.verdict == "pass" and list_gaps(report):
        report = report.with_note("--strict: what was not judged is a failure", "fail")
    # Output matters for a single case; an internal error needs its traceback.
    shows_output = options.judge.case or worker.is_internal
    printed = worker.read_part(PRINTED, tuple[str, ...]) or ()
    output = worker.output if shows_output else ""
    return partial(_answer, options, report, output=output, printed=printed, more=more)


def request_of(options: CheckOptions) -> CheckRequest:
    """Return the request to check. Raises TargetError or ValueError, in one line."""
    target, judge = parse(options.target), options.judge
    declared = (options.contract, options.calling, options.search, judge.case, options.expected)
    return replace(groups.ask_judge(groups.ask_check(target, *declared), judge), limits=True)


def _hint(report: Report) -> list[Line]:
    """Return a line on the help page of the first finding, if stdout is a terminal."""
    if not report.findings or not sys.stdout.isatty():
        return []
    return [(f"gemmproof explain {clean(report.findings[0].property)} explains it", "dim")]


def _answer(
    options: CheckOptions,
    report: Report,
    write: bool = True,
    output: str = "",
    printed: Sequence[str] = (),
    more: Sequence[Line] = (),
) -> int:
    kernel = [options.target, *groups.spell_declared(options.contract, options.calling)]
    gpu, device = options.search.gpu, options.judge.device
    reproduce = partial(groups.replay, "check", kernel, gpu, device=device)
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
            head.append((f"  and {len(printed) - SHOWN_PRINTS} more lines", ""))
        head.append(("", ""))
    code, written = EXIT[report.verdict], reports if write else {}
    context = (options, [report], by_target)
    if report.verdict == "error" and not report.findings:
        reason = (clean(f"gemmproof check: {report.note}"), "")
        text = [*head, reason, *more, *forms.list_notes(*context)]
        code = answer(options, code, text, written, to_stderr=True)
    else:
        body = [
            *lines(report, reproduce, options.limits),
            *note_unpredicted(options.search.gpu),
            *_hint(report),
        ]
        body += [("", ""), *more] if more else []
        code = answer(options, code, [*head, *body, *forms.list_notes(*context)], written)
    return forms.summarise(code, report.verdict, *context)
