"""A sign-off as Markdown, for a comment on a merge request: one table, reasons, changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gemmproof.reference.provenance import say_count
from gemmproof.report.facts import RESIDUES
from gemmproof.report.text import clean
from gemmproof.signoff import show
from gemmproof.signoff.record import SIGNED, KernelRecord, Reason, Signoff

HEADS = (
    "kernel", "verdict", "source", "cases", "M, N, K beside the tile", "proved", "worst error",
    "on a GPU", "drift", "speed", "mutants",
)  # fmt: skip
SHOWN = 30  # reasons and changes: a comment has an end, --json has all
LONGEST = 400  # characters of one
# what Markdown, HTML in it, or a forge reads as more than text: marks, references and mentions,
# emoji, and links that need no marks
_ACTIVE = re.compile(r"[\\`*\[\]<>&#|~@$!%^{}]|\b_\B|\B_\b|:(?=//|[\w+-]+:)|(?<=www)\.", re.ASCII)
_LEADING = re.compile(r"^[-+=\d]")  # what would begin a list within an item


def write(signed: Signoff) -> str:
    """The comment."""
    return "\n".join(_list_lines(signed)) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line, in a table or not."""
    return _ACTIVE.sub(_name_character, clean(text))


def _name_character(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _list_lines(signed: Signoff) -> Iterator[str]:
    yield f"## gemmproof sign-off: {signed.verdict}"
    yield ""
    count = say_count(len(signed.kernels), "kernel")
    yield f"{count}: {escape(show.say_inputs(signed.inputs))}."
    yield escape(show.say_versions(signed.versions)) or "Versions are not known."
    yield from _list_reasons(show.say_head(signed), signed.reasons)
    if signed.baseline is not None:
        yield from _list_reasons(show.BESIDES, signed.told, show.say_unchanged(signed))
    yield ""
    yield f"| {' | '.join(HEADS)} |"
    yield f"|{' --- |' * len(HEADS)}"
    for kernel in signed.kernels:
        yield f"| {' | '.join(_list_cells(kernel, signed.judge(kernel)))} |"
    for kernel in signed.kernels:
        if (premises := kernel.report.premises) is not None:
            yield ""
            yield escape(f"{kernel.report.target}: {premises.say()}")
    yield ""
    classes = ", ".join(RESIDUES)
    yield f"Beside the tile: cases whose size mod its BLOCK is {classes}. Worst error: over bound."
    yield ""
    yield f"`{signed.hash}`"


def _list_reasons(head: str, reasons: Iterable[Reason], none: str = "") -> Iterator[str]:
    known = list(reasons)
    if known or none:
        yield ""
        yield f"**{head}**"
        yield ""
    if not known and none:
        yield none
    for one in known[:SHOWN]:
        text = show.say_reason(one)
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        weight = show.say_weight(one)
        said = _LEADING.sub(_name_character, escape(text))
        yield f"- {f'**{weight}**: ' * bool(weight)}{said}"
    if len(known) > SHOWN:
        yield f"- and {len(known) - SHOWN} more: the JSON has all"


def _list_cells(kernel: KernelRecord, verdict: str) -> list[str]:
    verdict = verdict if verdict == SIGNED else f"**{verdict}**"
    cells = [
        show.say_cases(kernel),
        show.say_residues(kernel),
        show.say_proofs(kernel),
        show.say_worst(kernel),
        show.say_gpu(kernel),
        show.say_drift(kernel),
        show.say_benchmark(kernel),
        show.say_mutation(kernel),
    ]
    source = f"`{kernel.source[: show.SHORT]}`" if kernel.source else "not known"
    return [escape(kernel.report.target), verdict, source, *map(escape, cells)]
