"""`gemmproof draft`: the options that declare a wrapper, read from its source and its kernels."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, answer_death, refuse
from gemmproof.draft.record import DraftedOptions
from gemmproof.options import Command, argument, group, spell
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, Line, clean
from gemmproof.target import KernelRef, Target, TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import Limits, watch

DRAFT = "gemmproof.draft.task:draft"
MEANING = (
    "The formula was read from the kernel. With it, a check shows that the kernel is consistent",
    "with itself (masks, addresses, races, rounding, sizes), not that it computes what you mean.",
)
WITHOUT = "Values are not judged: no formula was read."
WIDEST = 40  # characters of a part that its origin follows on the same line
CONFIRM = "Read the draft; the command confirms it:"


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The options of `gemmproof draft`."""

    command: ClassVar = Command(
        "draft",
        help="draft the options for a wrapper that takes more than a and b",
        description="Draft --call, --operand, --sizes and --spec for a wrapper: from its signature,"
        " its shapes and docstring, and from the formula that its kernels compute in one simulated"
        " call.",
        examples=("gemmproof draft my_layers.py:linear",),
        exits="0 drafted, 2 bad usage or target, 3 no call was understood",
    )

    target: str = argument("TARGET", groups.TARGET)
    quiet: bool = groups.quiet_flag()
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=60))


def run(options: DraftOptions) -> int:
    """Draft in a worker, and print the command with the origin of each of its parts."""
    try:
        target = parse(options.target)
    except TargetError as error:
        return refuse(options, str(error))
    with progress(target.name, options.quiet) as listener:
        worker, draft = draft_target(target, options.worker.limits, listener)
    if draft is None:
        return answer_death(options, worker, target.name, "a draft")
    if draft.is_drafted:
        return answer(options, EXIT["pass"], list_draft(target, draft))
    return answer(options, EXIT["incomplete"], list_reasons(target, draft))


def draft_target(
    target: Target, limits: Limits, listener: Listener = lambda event: None
) -> tuple[WorkerExit, DraftedOptions | None]:
    """Draft the declaration of a target in a worker; None if the worker gave no answer."""
    worker = watch(DRAFT, KernelRef(target.name, target=target), limits, listener)
    return worker, worker.read_result(DraftedOptions)


def declare(contract: groups.ContractOptions, draft: DraftedOptions) -> groups.ContractOptions:
    """Return the options of a contract, with those of a draft where they have the default."""
    usual = groups.ContractOptions()
    return replace(
        contract,
        dtype=contract.dtype or ((draft.dtype,) if draft.dtype != "fp16" else ()),
        sizes=contract.sizes if contract.sizes != usual.sizes else draft.sizes,
        batched=contract.batched or draft.batched,
        accumulator=contract.accumulator
        if contract.accumulator != usual.accumulator
        else draft.accumulator,
        any_order=contract.any_order or draft.any_order,
    )


def list_draft(target: Target, draft: DraftedOptions) -> list[Line]:
    """Return the lines of a draft: its parts with their origins, and the command to paste."""
    contract = declare(groups.ContractOptions(), draft)
    arguments = [*spell(contract), *spell(draft.calling)]
    command = shlex.join(["gemmproof", "check", str(target), *arguments])
    lines: list[Line] = [("drafted:", "bold")]
    lines += [(f"  {line}", "") for line in list_guesses(draft)]
    meaning = (WITHOUT,) if draft.calling.memory_only else MEANING
    lines += [(text, "") for text in (*meaning, CONFIRM)]
    return [*lines, (clean(f"  {command}"), "")]


def list_guesses(draft: DraftedOptions) -> list[str]:
    """Return the parts of a draft with their origins, as lines."""
    texts = [(clean(guess.text), clean(guess.origin)) for guess in draft.guesses]
    width = max([len(text) for text, _ in texts if len(text) <= WIDEST], default=0)
    lines = []
    for text, origin in texts:
        if len(text) > WIDEST:
            lines.append(text)
            text = ""
        lines.append(f"{text:<{width}}  {origin}")
    return lines


def list_reasons(target: Target, draft: DraftedOptions) -> list[Line]:
    """Return the lines of a target without a draft: why, and what must be declared by hand."""
    count = f"{draft.tried} call{'s' * (draft.tried != 1)}"
    lines: list[Line] = [
        (clean(f"{target.name}: no draft: none of {count} was understood"), STYLES["incomplete"])
    ]
    lines += [(clean(f"  {reason}"), "") for reason in draft.reasons]
    declared = f"declare {', '.join(draft.asked)} with --call, --operand and --spec"
    lines.append((clean(declared), ""))
    return lines
