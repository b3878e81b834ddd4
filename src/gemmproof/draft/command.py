"""`gemmproof draft`: the options that declare a wrapper, read from its source and its kernels."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import ClassVar

from gemmproof.commands import groups
from gemmproof.commands.output import answer, answer_death, refuse
from gemmproof.options import Command, argument, group
from gemmproof.report.record import EXIT
from gemmproof.report.text import STYLES, Line, clean
from gemmproof.target import KernelRef, Target, TargetError, parse
from gemmproof.terminal import progress
from gemmproof.worker.supervisor import watch

DRAFT = "gemmproof.draft.task:draft"
MEANING = (
    "The formula was read from the kernel. A pass with it shows that the kernel is consistent with",
    "itself (masks, addresses, rounding, every size), not that it computes what you mean. Read the",
    "formula: with it in your command or in conftest.py it is yours.",
)


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The options of `gemmproof draft`."""

    command: ClassVar = Command(
        "draft",
        help="draft the options for a wrapper that takes more than a and b",
        description="Draft --call, --operand and --spec for a wrapper: from its signature, its"
        " shapes and docstring, and from the formula that its kernels compute in one simulated"
        " call.",
        examples=("gemmproof draft my_layers.py:linear",),
        exits="0 drafted, 2 bad usage or target, 3 no call was understood",
    )

    target: str = argument("TARGET", groups.TARGET)
    quiet: bool = groups.quiet_flag()
    worker: groups.WorkerOptions = group(groups.WorkerOptions(time_limit=60))


def run(options: DraftOptions) -> int:
    """Draft in a worker, and print the command with each guess."""
    from gemmproof.draft.task import DraftedOptions

    try:
        target = parse(options.target)
    except TargetError as error:
        return refuse(options, str(error))
    request = KernelRef(target.name, target=target)
    with progress(target.name, options.quiet) as listener:
        worker = watch(DRAFT, request, options.worker.limits, listener)
    draft = worker.read_result(DraftedOptions)
    if draft is None:
        return answer_death(options, worker, target.name, "a draft")
    if not draft.asked:
        return answer(options, EXIT["pass"], _show(target, draft.arguments, draft.guesses))
    return answer(
        options, EXIT["incomplete"], _ask(target, draft.asked, draft.reasons, draft.tried)
    )


def _show(target: Target, arguments: tuple[str, ...], guesses: tuple[str, ...]) -> list[Line]:
    """Return the command, where each part comes from, and what a pass with it means."""
    command = f"gemmproof check {shlex.join([str(target), *arguments])}"
    lines: list[Line] = [(clean(command), "bold")]
    lines += [(clean(f"  {guess}"), "") for guess in guesses]
    if arguments:
        lines += [("", ""), *((text, "") for text in MEANING)]
    return lines


def _ask(
    target: Target, asked: tuple[str, ...], reasons: tuple[str, ...], tried: int
) -> list[Line]:
    """Return what must be declared by hand, and why no call was understood."""
    count = f"{tried} call{'s' * (tried != 1)}"
    lines: list[Line] = [
        (clean(f"{target.name}: no draft: none of {count} was understood"), STYLES["incomplete"])
    ]
    lines += [(clean(f"  {reason}"), "") for reason in reasons]
    declared = f"declare {', '.join(asked)} with --call, --operand and --spec"
    lines.append((clean(declared), ""))
    return lines
