"""Findings with the file and line that CI shows them at."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from gemmproof.properties.finding import UNEXPECTED, Finding, list_by_cause
from gemmproof.report.record import Report
from gemmproof.report.text import Reproduce, clean, kernel_name

# The variables in which CI systems give the root of the checked-out repository.
ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding on a kernel; `path`, from the repository's root, and `line` are None if unknown.

    `follows`: another finding is its cause. `fingerprint` stays the same if lines are added
    above, and is unique.
    """

    kernel: str
    finding: Finding
    follows: bool
    reproduce: str
    path: str | None
    line: int | None
    fingerprint: str

    @property
    def text(self) -> str:
        """The message, the case and the command that replays it, as clean lines."""
        cause = self.finding.cause
        if self.finding.fault == UNEXPECTED:
            return clean(self.finding.message)
        lines = [
            clean(self.finding.message),
            *([f"follows from {cause}: fix that first"] if cause else []),
            clean(f"smallest case: {self.finding.case}"),
            f"reproduce: {self.reproduce}",
        ]
        return "\n".join(lines)


def find_root() -> Path:
    """Return the root of the repository around the current folder, or that folder if none."""
    here = Path.cwd().resolve()
    declared = [Path(os.environ[name]).resolve() for name in ROOTS if os.environ.get(name)]
    above = (here, *here.parents)
    for root in declared:
        if root in above:
            return root
    return next((folder for folder in above if (folder / ".git").exists()), here)


def list_placed(reports: Iterable[Report], reproduce: dict[str, Reproduce]) -> list[PlacedFinding]:
    """Return the findings of all reports: first one root cause of each, then the others, then
    the consequences.

    `reproduce` is looked up by a report's target.
    """
    root = find_root()
    grouped = [(report, list_by_cause(report.findings)) for report in reports]
    causes = zip_longest(*([(report, f, False) for f, _ in groups] for report, groups in grouped))
    follow = ((report, f, True) for report, groups in grouped for _, under in groups for f in under)
    rows = [each for each in chain(chain.from_iterable(causes), follow) if each is not None]
    positions = [_find_place(finding, root) for _, finding, _ in rows]
    prints = _list_fingerprints([(kernel_name(r), f) for r, f, _ in rows], positions, root)
    return [
        PlacedFinding(kernel_name(r), f, follows, reproduce[r.target](f.case), *position, digest)
        for (r, f, follows), position, digest in zip(rows, positions, prints, strict=True)
    ]


def _find_place(finding: Finding, root: Path) -> tuple[str | None, int | None]:
    """Return the path and the line; both None for a file outside the repository."""
    _, _, number = (finding.where or "").rpartition(":")
    if finding.file is None or not number.isdigit():
        return None, None
    path = os.path.relpath(os.path.realpath(finding.file), root)
    outside = path.split(os.sep)[0] == os.pardir
    return (None, None) if outside else (path, int(number))


def _list_fingerprints(
    findings: Sequence[tuple[str, Finding]],
    positions: Sequence[tuple[str | None, int | None]],
    root: Path,
) -> Iterator[str]:
    """Yield for each finding a hash of its subject and of its line's text, not its number.

    Equal ones are counted in the order of their lines.
    """
    keys, sources = [], dict[str, dict[int, str]]()
    for (kernel, finding), (path, line) in zip(findings, positions, strict=True):
        text = ""
        if path is not None and line is not None:
            if path not in sources:
                sources[path] = _read_lines(root / path)
            text = sources[path].get(line, "")
        about = (finding.property, finding.fault, finding.backend, finding.operand, finding.axis)
        keys.append(repr((kernel, *about, finding.result, path, text)))
    seen = Counter[str]()
    numbers = [0] * len(keys)
    for at in sorted(range(len(keys)), key=lambda at: positions[at][1] or 0):
        numbers[at] = seen[keys[at]]
        seen[keys[at]] += 1
    for key, number in zip(keys, numbers, strict=True):
        yield hashlib.sha256(f"{key} {number}".encode(errors="surrogateescape")).hexdigest()


def _read_lines(path: Path) -> dict[int, str]:
    """Return the lines of a source file by number, without indentation; none if it is gone."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    return {number: " ".join(line.split()) for number, line in enumerate(text.splitlines(), 1)}
