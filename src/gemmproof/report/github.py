"""Annotations and summaries for GitHub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from gemmproof.report.located_findings import PlacedFinding
from gemmproof.report.record import Regression, Report
from gemmproof.report.text import Reproduce, clean, kernel_name, lines

MOST_ANNOTATIONS = 10  # GitHub shows no more of a step
MOST_BYTES = 1 << 20  # of a step's summary: GitHub drops what is larger
RESERVED = 256  # bytes, for the line that says what was cut
SUMMARY = "GITHUB_STEP_SUMMARY"  # the variable that names the file


def is_wanted(annotations: str) -> bool:
    """Whether a run writes for GitHub: as the option says, or where a GitHub job runs it."""
    if annotations == "auto":
        return os.environ.get("GITHUB_ACTIONS") == "true"
    return annotations == "github"


def list_annotations(
    command: str,
    reports: Sequence[Report],
    placed: Sequence[PlacedFinding],
    lost: Sequence[Regression] = (),
) -> Iterator[str]:
    """Workflow commands, the gravest first, and a line on what is not annotated.

    Root causes come first, then what a baseline refuses, then what could not be judged; what
    follows from a cause goes with it.
    """
    causes = [_annotate_finding(one) for one in placed if not one.follows]
    unjudged = [
        write_command(
            "error" if verdict == "error" else "warning",
            f"{report.note}",
            title=f"gemmproof {command}: {kernel_name(report)}: {verdict}",
        )
        for verdict in ("error", "incomplete")
        for report in reports
        if report.verdict == verdict
    ]
    refused, unknown = (
        [_annotate_lost(command, one) for one in lost if one.is_refused is is_refused]
        for is_refused in (True, False)
    )
    every = [*causes, *refused, *unjudged, *unknown]
    yield from every[:MOST_ANNOTATIONS]
    counts = {
        f"beyond the {MOST_ANNOTATIONS} that GitHub shows": len(every[MOST_ANNOTATIONS:]),
        "that follow from others": sum(one.follows for one in placed),
    }
    if any(counts.values()):
        left = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
        yield f"not annotated: {left}"


def _annotate_finding(one: PlacedFinding) -> str:
    place = {} if one.path is None else {"file": one.path, "line": str(one.line)}
    return write_command("error", one.text, **place, title=f"{one.kernel}: {one.finding.property}")


def _annotate_lost(command: str, one: Regression) -> str:
    title = f"gemmproof {command}: {one.kind}"
    return write_command("error" if one.is_refused else "warning", one.words, title=title)


def write_command(name: str, message: str, **properties: str) -> str:
    """A workflow command; lines of the message stay lines."""
    stated = ",".join(f"{key}={_escape_property(clean(x))}" for key, x in properties.items())
    return f"::{name} {stated}::{_escape(chr(10).join(map(clean, message.split(chr(10)))))}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def append_summary(
    command: str,
    verdict: str,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> tuple[str, str]:
    """Append the page to the file that GitHub names; that name and why it failed, or "".

    Another step's text stays; what has no room is counted.
    """
    name = os.environ.get(SUMMARY, "")
    if not name:
        return "", ""
    pieces = list(_write_page(command, verdict, reports, reproduce, lost))
    try:
        with open(name, "ab") as file:
            page = fit(pieces, MOST_BYTES - file.tell())
            file.write(page)
    except (OSError, ValueError) as error:
        return name, getattr(error, "strerror", None) or str(error)
    return name, "" if page else "it has no room left in 1 MiB"


def fit(pieces: Iterable[str], room: int) -> bytes:
    """The pieces that have room, from the first on, and a line on those that have not."""
    told = [piece.encode("utf-8", "backslashreplace") for piece in pieces]
    if sum(map(len, told)) <= room:
        return b"".join(told)
    kept, used = [], RESERVED
    for piece in told:
        if used + len(piece) > room:
            break
        kept.append(piece)
        used += len(piece)
    cut = f"\nCut: {len(told) - len(kept)} of {len(told)} parts have no room in 1 MiB.\n"
    return b"".join([*kept, cut.encode()]) if room >= RESERVED else b""


def _write_page(
    command: str,
    verdict: str,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression],
) -> Iterator[str]:
    """Markdown, in parts that can be left out from the end: a row of the table, a kernel's text."""
    yield f"## gemmproof {command}: {verdict}\n\n| kernel | verdict | cases | findings |\n"
    yield "|---|---|--:|--:|\n"
    for report in reports:
        cases = max((result.examples for result in report.properties), default=0)
        cells = [_plain(kernel_name(report)), report.verdict, f"{cases}", f"{len(report.findings)}"]
        yield f"| {' | '.join(cells)} |\n"
    for number, one in enumerate(lost):
        weight = "refused" if one.is_refused else "incomplete"
        yield f"{'' if number else chr(10)}- **{weight}**: {_plain(one.words)}\n"
    for report in reports:
        if report.verdict != "pass" or report.expected:
            said = "\n".join(text for text, _ in lines(report, reproduce[report.target]))
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", said)), default=0))
            yield f"\n### {_plain(kernel_name(report))}\n\n{fence}text\n{said}\n{fence}\n"


def _plain(text: str) -> str:
    """Text in which nothing is Markdown or HTML."""
    return "".join(c if c.isalnum() or c in " -." else f"&#{ord(c)};" for c in clean(text))
