"""`gemmproof check`: one target, judged in a worker, answered on one screen."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gemmproof.calling import Calling
from gemmproof.commands.console import answer, limits_of, note_unpredicted, progress, unwritable
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.layouts import ANY, HUGE
from gemmproof.properties.contract import Contract
from gemmproof.report.command import write_command
from gemmproof.report.files import Writer, write_json, write_junit
from gemmproof.report.report import EXIT, Report
from gemmproof.report.text import clean, document, lines
from gemmproof.target import Target, TargetError, parse
from gemmproof.worker.kept import find_store, judge_kept, note_kept
from gemmproof.worker.protocol import Request
from gemmproof.worker.verdict import make_error

SHOWN_PRINTS = 40  # lines of what a kernel prints for a single case


def run(options: argparse.Namespace) -> int:
    """Judge the target, write the reports that were asked for, print the answer."""
    if problem := unwritable(options):
        return _answer(options, make_error(options.target, problem), write=False)
    try:
        request = request_of(options)
    except (TargetError, ValueError) as mistake:
        return _answer(options, make_error(options.target, str(mistake)))
    with progress(request.name) as listener:
        store = find_store(options.kept, request)
        report, worker = judge_kept(request, limits_of(options), store, listener)
    report = replace(note_kept(report, worker), target=options.target)
    # A single case is looked at closely; our own mistake needs its traceback.
    said = options.case or "internal" in worker.events
    printed = worker.events.get("printed", {"lines": []})["lines"]
    return _answer(options, report, output=worker.output if said else "", printed=printed)


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
    for flag in ("huge", "batched", "any_order", "batch_invariant"):
        words += [f"--{flag.replace('_', '-')}"] * getattr(options, flag)
    if options.gpu:
        words += ["--target", options.gpu]
    if options.device != "cpu":
        words += ["--device", options.device]
    return write_command([*words, "--case", case.to_json()])


def _answer(
    options: argparse.Namespace,
    report: Report,
    write: bool = True,
    output: str = "",
    printed: Sequence[str] = (),
) -> int:
    def reproduce(case: Case) -> str:
        return reproduce_line(options, case)

    reports: dict[str, Writer] = {
        "json": lambda place: write_json(place, document(report, reproduce)),
        "junit": lambda place: write_junit(place, [report], {report.target: reproduce}),
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
    if report.verdict == "error":
        why = (clean(f"gemmproof check: {report.note}"), "")
        return answer(options, code, [*head, why], written, to_stderr=True)
    found = [*lines(report, reproduce), *note_unpredicted(options.gpu)]
    return answer(options, code, [*head, *found], written)
