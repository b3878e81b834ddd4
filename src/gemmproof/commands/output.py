"""The output of commands: report formats, the console, exit codes."""

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
    """Return the worker's limits of the options."""
    return Limits(case=options.time_limit, memory=options.memory_limit << 30)


def unwritable(
    options: argparse.Namespace, reports: tuple[str, ...] = ("json", "junit")
) -> str | None:
    """Return one line on the first report that could not be written; checked before the run.

    An empty name, from a variable that is not set, is one that cannot be written.
    """
    requested = [
        (_label(o), getattr(options, o)) for o in reports if getattr(options, o) is not None
    ]
    options_by_path: dict[str, str] = {}
    for option, name in requested:
        first = options_by_path.setdefault(os.path.realpath(name), option)
        if first != option:
            return f"{option}: got {name!r} as for {first}, expected another file"
    for option, name in requested:
        if reason := find_obstacle(name):
            return _explain_obstacle(option, name, reason)
    return None


def _label(option: str) -> str:
    return "TABLE" if option == "table" else f"--{option}"  # the only positional argument


def _explain_obstacle(option: str, name: str, reason: str) -> str:
    return f"{option}: got {name!r} ({reason}), expected a file that can be written"


def undrawable(options: argparse.Namespace, extra: str = "plots") -> str | None:
    """Return one line on a requested picture that cannot be drawn, or not in that format."""
    if options.svg and os.path.splitext(options.svg)[1].lower() not in ("", ".svg"):
        return f"--svg: got {options.svg!r}, expected a name that ends in .svg"
    if options.svg and util.find_spec("matplotlib") is None:
        return f"--svg: got no matplotlib, expected it: pip install 'gemmproof[{extra}]'"
    return None


def replay_registered(options: argparse.Namespace, name: str, *asks: str) -> str:
    """Return a command to paste that judges a kernel of the conftest.py by what it `asks`."""
    argv = ["gemmproof", "signoff", *label_registered(options, name)]
    if options.gpu:
        argv += ["--target", options.gpu]
    if options.device != "cpu":
        argv += ["--device", options.device]
    return write_command([*argv, *asks])


def note_unpredicted(gpu: str | None) -> list[Line]:
    """Return a line on what a target without a model leaves open, none for the others."""
    if gpu not in UNMODELLED:
        return []
    consequence = "values are judged as IEEE ones, no bits are predicted"
    return [(f"note: {gpu} has no model of its matrix cores: {consequence}", "")]


def refuse(options: argparse.Namespace, message: str) -> int:
    """Print in one line what is wrong; return the exit code for that."""
    say(f"gemmproof {options.command}: {message}")
    return EXIT["error"]


def answer(
    options: argparse.Namespace,
    code: int,
    lines: list[Line],
    reports: Mapping[str, Writer] | None = None,
    to_stderr: bool = False,
) -> int:
    """Print the answer, then write the requested reports, by option; return the exit code.

    It is that of an incomplete run if any of them could not be written, with a line for each.
    The answer goes to stderr if a report goes to stdout.
    """
    named = {option: getattr(options, option) for option in reports or {}}
    if not deliver(options, lines, to_stderr or STDOUT in named.values()):
        code = EXIT["incomplete"]
    for option, write in (reports or {}).items():
        name = named[option]
        if name and (reason := replace_file(name, write)):
            say(f"gemmproof {options.command}: {_explain_obstacle(_label(option), name, reason)}")
            code = EXIT["incomplete"]
    return code


def show_end(options: argparse.Namespace, output: str) -> None:
    """Print the last output of a worker in which gemmproof itself failed: a traceback."""
    deliver(options, [(clean(line), "") for line in output.splitlines()[-10:]], to_stderr=True)


def deliver(options: argparse.Namespace, lines: list[Line], to_stderr: bool = False) -> bool:
    """Print lines; return whether that worked, with a line on stderr if not."""
    from rich.console import Console
    from rich.text import Text

    stream = sys.stderr if to_stderr else sys.stdout
    # rich would end the process, with its own exit code, if a reader closed the pipe
    shown, terminal = StringIO(), stream.isatty() or None
    # with COLUMNS=0 it would print nothing; lines are not wrapped, so the width does not matter
    console = Console(
        file=shown, force_terminal=terminal, highlight=False, soft_wrap=True, width=100
    )
    for text, style in lines:
        console.print(Text(text, style=style))
    if reason := write_all(stream, shown.getvalue()):
        expected = "a place for the answer"
        say(f"gemmproof {options.command}: stdout: got {reason!r}, expected {expected}")
    return not reason


# -- report formats ------------------------------------------------------------------------------
FORMS = ("json", "junit", "sarif", "codequality")
PLACED = ("sarif", "codequality")  # which contain only findings with a line


def find_mistake(options: argparse.Namespace, *others: str) -> str | None:
    """Return one line on a report that could not be written, or premises without predictions."""
    if problem := unwritable(options, (*FORMS, *others)):
        return problem
    if options.premise and options.gpu not in TARGETS and options.device == "cpu":
        got = options.gpu or "no --target"
        return f"--premise: got {got}, expected one that is predicted: {' '.join(TARGETS)}"
    return None


def list_forms(
    reports: Sequence[Report], reproduce: dict[str, Reproduce], lost: Sequence[Regression] = ()
) -> dict[str, Writer]:
    """Return the writer of each format but JSON; `reproduce` is looked up by a report's target.

    `lost` are the regressions against a baseline.
    """
    every = list(reports)
    return {
        "junit": lambda path: write_junit(path, every, reproduce, lost),
        "sarif": lambda path: ci.write_sarif(path, every, list_placed(every, reproduce), lost),
        "codequality": lambda path: ci.write_codequality(path, list_placed(every, reproduce)),
    }


def list_notes(
    options: argparse.Namespace,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> list[Line]:
    """Return the answer's lines on what some formats cannot contain, and GitHub's annotations."""
    asked = [f"--{option}" for option in PLACED if getattr(options, option)]
    annotated = github.is_wanted(options.annotations)
    if not asked and not annotated:
        return []
    located = list_placed(reports, reproduce)
    without_line = sum(item.path is None for item in located)
    notes = []
    if asked and without_line:
        of = f"without {without_line} of {format_count(len(located), 'finding')}"
        notes.append(f"{' and '.join(asked)}: {of}, for want of a line in the repository")
    if asked and lost:
        of = f"without {format_count(len(lost), 'change')} against the baseline"
        notes.append(f"{' and '.join(asked)}: {of}, of no line")
    if annotated:
        notes += github.list_annotations(options.command, reports, located, lost)
    return [(note, "") for note in notes]


def summarise(
    code: int,
    verdict: str,
    options: argparse.Namespace,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> int:
    """Append to GitHub's job summary, if any; return the exit code, incomplete if it failed."""
    if not github.is_wanted(options.annotations):
        return code
    name, reason = github.append_summary(options.command, verdict, reports, reproduce, lost)
    if reason:
        message = f"{github.SUMMARY}: got {clean(name)!r} ({reason}), expected a file to append to"
        say(f"gemmproof {options.command}: {message}")
        return EXIT["incomplete"]
    return code


def refuse_with_annotation(options: argparse.Namespace, message: str) -> int:
    """Print in one line what is wrong, also as an annotation on GitHub; return the exit code."""
    code = refuse(options, message)
    if github.is_wanted(options.annotations):
        title = f"gemmproof {options.command}"
        lines = [(github.write_command("error", message, title=title), "")]
        deliver(options, lines, to_stderr=True)
    return code
