"""Annotations and summaries for GitHub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from gemmproof.reference.provenance import format_count
from gemmproof.report.located_findings import PlacedFinding
from gemmproof.report.record import UNCONFIRMED, Regression, Report
from gemmproof.report.text import Reproduce, clean, kernel_name, lines, list_gaps

MOST_ANNOTATIONS = 10  # GitHub shows no more of a step
MOST_BYTES = 1 << 20  # of a step's summary: GitHub drops a larger one
RESERVED = 256  # bytes, for the line on the parts that were cut
SUMMARY = "GITHUB_STEP_SUMMARY"  # the variable that names the file


def is_wanted(annotations: str) -> bool:
    """Return whether a run writes for GitHub: by the option, or because a GitHub job runs it."""
    if annotations == "auto":
        return os.environ.get("GITHUB_ACTIONS") == "true"
    return annotations == "github"


def list_annotations(
    command: str,
    reports: Sequence[Report],
    located: Sequence[PlacedFinding],
    lost: Sequence[Regression] = (),
) -> Iterator[str]:
    """Yield workflow commands, the gravest first, and a line on the findings not annotated.

    Root causes come first, then refused regressions, then kernels that could not be judged;
    consequences are counted only. What reports that pass left unjudged comes last.
    """
    causes = [_annotate_finding(item) for item in located if not item.follows]
    unjudged = [
        write_command(
            "error" if verdict == "error" else "warning",
            f"{report.note}",
            title=f"gemmproof {command}: {kernel_name(report)}: {verdict}",
        )
        for verdict in UNCONFIRMED
        for report in reports
        if report.verdict == verdict
    ]
    gaps = [
        write_command("warning", text, title=f"gemmproof {command}: {kernel_name(report)}")
        for report in reports
        if report.verdict == "pass"
        for text in list_gaps(report)
    ]
    refused, unknown = (
        [_annotate_lost(command, r) for r in lost if r.is_refused is is_refused]
        for is_refused in (True, False)
    )
    every = [*causes, *refused, *unjudged, *unknown, *gaps]
    yield from every[:MOST_ANNOTATIONS]
    left = []
    if excess := len(every[MOST_ANNOTATIONS:]):
        left.append(f"{excess} beyond the {MOST_ANNOTATIONS} that GitHub shows")
    if follows := sum(item.follows for item in located):
        left.append(f"{format_count(follows, 'consequence')} of others")
    if left:
        yield f"not annotated: {', '.join(left)}"


def _annotate_finding(item: PlacedFinding) -> str:
    position = {} if item.path is None else {"file": item.path, "line": str(item.line)}
    return write_command(
        "error", item.text, **position, title=f"{item.kernel}: {item.finding.property}"
    )


def _annotate_lost(command: str, regression: Regression) -> str:
    title = f"gemmproof {command}: {regression.kind}"
    return write_command(
        "error" if regression.is_refused else "warning", regression.line, title=title
    )


def write_command(name: str, message: str, **properties: str) -> str:
    """Return a workflow command; lines of the message stay lines."""
    parameters = ",".join(f"{key}={_escape_property(clean(x))}" for key, x in properties.items())
    return f"::{name} {parameters}::{_escape(chr(10).join(map(clean, message.split(chr(10)))))}"


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
    """Append the page to the file that GitHub names; return its name and the failure, or "".

    Other steps' text stays; parts that do not fit are counted.
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


def fit(pieces: Iterable[str], limit: int) -> bytes:
    """Return the pieces that fit, from the first on, and a line on those that do not."""
    encoded = [piece.encode("utf-8", "backslashreplace") for piece in pieces]
    if sum(map(len, encoded)) <= limit:
        return b"".join(encoded)
    kept, used = [], RESERVED
    for piece in encoded:
        if used + len(piece) > limit:
            break
        kept.append(piece)
        used += len(piece)
    cut = f"\nTruncated: {len(encoded) - len(kept)} of {len(encoded)} parts do not fit in 1 MiB.\n"
    return b"".join([*kept, cut.encode()]) if limit >= RESERVED else b""


def _write_page(
    command: str,
    verdict: str,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression],
) -> Iterator[str]:
    """Yield Markdown, in parts that can be cut from the end: table rows, then kernels' texts."""
    yield f"## gemmproof {command}: {verdict}\n\n| kernel | verdict | cases | findings |\n"
    yield "|---|---|--:|--:|\n"
    for report in reports:
        cases = max((result.examples for result in report.properties), default=0)
        cells = [_plain(kernel_name(report)), report.verdict, f"{cases}", f"{len(report.findings)}"]
        yield f"| {' | '.join(cells)} |\n"
    for report in reports:
        if report.verdict == "pass" and (gaps := list_gaps(report)):
            yield f"\n{_plain(kernel_name(report))}: {_plain('; '.join(gaps))}\n"
    for number, regression in enumerate(lost):
        weight = "refused" if regression.is_refused else "incomplete"
        yield f"{'' if number else chr(10)}- **{weight}**: {_plain(regression.line)}\n"
    for report in reports:
        if report.verdict != "pass" or report.expected:
            text = "\n".join(line for line, _ in lines(report, reproduce[report.target]))
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            yield f"\n### {_plain(kernel_name(report))}\n\n{fence}text\n{text}\n{fence}\n"


def _plain(text: str) -> str:
    """Return the text with all Markdown and HTML escaped."""
    return "".join(c if c.isalnum() or c in " -." else f"&#{ord(c)};" for c in clean(text))
