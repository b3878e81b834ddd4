"""The forms in which `check` and `signoff` report to CI, besides the answer and the JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gemmproof.commands import console
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.provenance import say_count
from gemmproof.report.ci import codequality, github, sarif
from gemmproof.report.ci.lost import LostSince
from gemmproof.report.ci.placed import list_placed
from gemmproof.report.files import Writer, write_junit
from gemmproof.report.report import EXIT, Report
from gemmproof.report.text import Line, Reproduce, clean
from gemmproof.streams import say

FORMS = ("json", "junit", "sarif", "codequality")
PLACED = ("sarif", "codequality")  # which hold findings with a line only


def find_mistake(options: argparse.Namespace, *others: str) -> str | None:
    """One line on a report that could not be written, or premises of what is not predicted."""
    if problem := console.unwritable(options, (*FORMS, *others)):
        return problem
    if options.premise and options.gpu not in TARGETS and options.device == "cpu":
        got = options.gpu or "no --target"
        return f"--premise: got {got}, expected one that is predicted: {' '.join(TARGETS)}"
    return None


def list_forms(
    reports: Sequence[Report], reproduce: dict[str, Reproduce], lost: Sequence[LostSince] = ()
) -> dict[str, Writer]:
    """What writes each form but the JSON; `reproduce` is looked up by a report's target.

    `lost` is what a baseline has against the run.
    """
    every = list(reports)
    return {
        "junit": lambda place: write_junit(place, every, reproduce, lost),
        "sarif": lambda place: sarif.write(place, every, list_placed(every, reproduce), lost),
        "codequality": lambda place: codequality.write(place, list_placed(every, reproduce)),
    }


def list_notes(
    options: argparse.Namespace,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[LostSince] = (),
) -> list[Line]:
    """The lines of the answer on what some form has no place for, and GitHub's annotations."""
    asked = [f"--{option}" for option in PLACED if getattr(options, option)]
    annotated = github.is_wanted(options.annotations)
    if not asked and not annotated:
        return []
    placed = list_placed(reports, reproduce)
    lacking = sum(one.path is None for one in placed)
    notes = []
    if asked and lacking:
        of = f"without {lacking} of {say_count(len(placed), 'finding')}"
        notes.append(f"{' and '.join(asked)}: {of}, for want of a line in the repository")
    if asked and lost:
        of = f"without {say_count(len(lost), 'change')} against the baseline"
        notes.append(f"{' and '.join(asked)}: {of}, of no line")
    if annotated:
        notes += github.list_annotations(options.command, reports, placed, lost)
    return [(note, "") for note in notes]


def summarise(
    code: int,
    verdict: str,
    options: argparse.Namespace,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[LostSince] = (),
) -> int:
    """Append to the job's summary where GitHub has one; the exit code, incomplete if it failed."""
    if not github.is_wanted(options.annotations):
        return code
    name, why = github.append_summary(options.command, verdict, reports, reproduce, lost)
    if why:
        said = f"{github.SUMMARY}: got {clean(name)!r} ({why}), expected a file to append to"
        say(f"gemmproof {options.command}: {said}")
        return EXIT["incomplete"]
    return code


def refuse(options: argparse.Namespace, message: str) -> int:
    """Say in one line what is wrong, where GitHub shows it as well; the exit code for that."""
    code = console.refuse(options, message)
    if github.is_wanted(options.annotations):
        title = f"gemmproof {options.command}"
        said = [(github.write_command("error", message, title=title), "")]
        console.deliver(options, said, to_stderr=True)
    return code
