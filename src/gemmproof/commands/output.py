"""The output of commands: forms of the report, the console, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import util
from io import StringIO

from gemmproof.options.registered import label_registered
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.reference.provenance import format_count
from gemmproof.report import ci, github
from gemmproof.report.files import STDOUT, Writer, find_obstacle, replace_file, write_junit
from gemmproof.report.located_findings import list_placed
from gemmproof.report.record import EXIT, Regression, Report
from gemmproof.report.text import Line, Reproduce, clean
from gemmproof.spelling import write_command
from gemmproof.terminal import say, write_all
from gemmproof.worker.supervisor import Limits


# -- console -------------------------------------------------------------------------------------
def limits_of(options: argparse.Namespace) -> Limits:
    """The worker's limits that the options state."""
    return Limits(case=options.time_limit, memory=options.memory_limit << 30)


def unwritable(
    options: argparse.Namespace, reports: tuple[str, ...] = ("json", "junit")
) -> str | None:
    """One line on the first report that could not be written; asked before the run, not after.

    An empty name, of a variable that is not set, is one that could not be.
    """
    stated = [(_label(o), getattr(options, o)) for o in reports if getattr(options, o) is not None]
    taken: dict[str, str] = {}
    for option, name in stated:
        first = taken.setdefault(os.path.realpath(name), option)
        if first != option:
            return f"{option}: got {name!r} as for {first}, expected another file"
    for option, name in stated:
        if why := find_obstacle(name):
            return _explain_obstacle(option, name, why)
    return None


def _label(option: str) -> str:
    return "TABLE" if option == "table" else f"--{option}"  # the one that is no option


def _explain_obstacle(option: str, name: str, why: str) -> str:
    return f"{option}: got {name!r} ({why}), expected a file that can be written"


def undrawable(options: argparse.Namespace, extra: str = "plots") -> str | None:
    """One line on a picture that was asked for and cannot be drawn, or not in that form."""
    if options.svg and os.path.splitext(options.svg)[1].lower() not in ("", ".svg"):
        return f"--svg: got {options.svg!r}, expected a name that ends in .svg"
    if options.svg and util.find_spec("matplotlib") is None:
        return f"--svg: got no matplotlib, expected it: pip install 'gemmproof[{extra}]'"
    return None


def replay_registered(options: argparse.Namespace, name: str, *asks: str) -> str:
    """A command that judges a kernel of the conftest.py by what it `asks`, to be pasted."""
    words = ["gemmproof", "signoff", *label_registered(options, name)]
    if options.gpu:
        words += ["--target", options.gpu]
    if options.device != "cpu":
        words += ["--device", options.device]
    return write_command([*words, *asks])


def note_unpredicted(gpu: str | None) -> list[Line]:
    """A line on what a target without a model leaves open, none for the others."""
    if gpu not in UNMODELLED:
        return []
    words = "values are judged as IEEE ones, no bits are predicted"
    return [(f"note: {gpu} has no model of its matrix cores: {words}", "")]


def refuse(options: argparse.Namespace, message: str) -> int:
    """Say in one line what is wrong; the exit code for that."""
    say(f"gemmproof {options.command}: {message}")
    return EXIT["error"]


def answer(
    options: argparse.Namespace,
    code: int,
    lines: list[Line],
    reports: Mapping[str, Writer] | None = None,
    to_stderr: bool = False,
) -> int:
    """Print the answer, then write the reports that were asked for, by option; the exit code.

    That of an incomplete run where any of it could not be written, which one line says of each.
    The answer goes to stderr where a report has stdout.
    """
    named = {option: getattr(options, option) for option in reports or {}}
    if not deliver(options, lines, to_stderr or STDOUT in named.values()):
        code = EXIT["incomplete"]
    for option, write in (reports or {}).items():
        name = named[option]
        if name and (why := replace_file(name, write)):
            say(f"gemmproof {options.command}: {_explain_obstacle(_label(option), name, why)}")
            code = EXIT["incomplete"]
    return code


def show_end(options: argparse.Namespace, output: str) -> None:
    """The last output of a worker in which gemmproof itself failed: a traceback."""
    deliver(options, [(clean(line), "") for line in output.splitlines()[-10:]], to_stderr=True)


def deliver(options: argparse.Namespace, lines: list[Line], to_stderr: bool = False) -> bool:
    """Print lines; whether that worked, of which stderr is told where it did not."""
    from rich.console import Console
    from rich.text import Text

    stream = sys.stderr if to_stderr else sys.stdout
    # rich itself ends the process, with a code of its own, where a reader closed the pipe
    shown, terminal = StringIO(), stream.isatty() or None
    # of COLUMNS=0 it would make nothing; lines are not wrapped, so that the width is of no matter
    console = Console(
        file=shown, force_terminal=terminal, highlight=False, soft_wrap=True, width=100
    )
    for text, style in lines:
        console.print(Text(text, style=style))
    if why := write_all(stream, shown.getvalue()):
        expected = "a place for the answer"
        say(f"gemmproof {options.command}: stdout: got {why!r}, expected {expected}")
    return not why


# -- forms of the report -------------------------------------------------------------------------
FORMS = ("json", "junit", "sarif", "codequality")
PLACED = ("sarif", "codequality")  # which hold findings with a line only


def find_mistake(options: argparse.Namespace, *others: str) -> str | None:
    """One line on a report that could not be written, or premises of what is not predicted."""
    if problem := unwritable(options, (*FORMS, *others)):
        return problem
    if options.premise and options.gpu not in TARGETS and options.device == "cpu":
        got = options.gpu or "no --target"
        return f"--premise: got {got}, expected one that is predicted: {' '.join(TARGETS)}"
    return None


def list_forms(
    reports: Sequence[Report], reproduce: dict[str, Reproduce], lost: Sequence[Regression] = ()
) -> dict[str, Writer]:
    """What writes each form but the JSON; `reproduce` is looked up by a report's target.

    `lost` is what a baseline has against the run.
    """
    every = list(reports)
    return {
        "junit": lambda place: write_junit(place, every, reproduce, lost),
        "sarif": lambda place: ci.write_sarif(place, every, list_placed(every, reproduce), lost),
        "codequality": lambda place: ci.write_codequality(place, list_placed(every, reproduce)),
    }


def list_notes(
    options: argparse.Namespace,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
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
        of = f"without {lacking} of {format_count(len(placed), 'finding')}"
        notes.append(f"{' and '.join(asked)}: {of}, for want of a line in the repository")
    if asked and lost:
        of = f"without {format_count(len(lost), 'change')} against the baseline"
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
    lost: Sequence[Regression] = (),
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


def refuse_with_annotation(options: argparse.Namespace, message: str) -> int:
    """Say in one line what is wrong, where GitHub shows it as well; the exit code for that."""
    code = refuse(options, message)
    if github.is_wanted(options.annotations):
        title = f"gemmproof {options.command}"
        said = [(github.write_command("error", message, title=title), "")]
        deliver(options, said, to_stderr=True)
    return code
