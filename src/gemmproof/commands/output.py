"""The output of commands: report formats, the console, exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import util
from io import StringIO
from types import MappingProxyType
from typing import Protocol

from gemmproof.commands.groups import FormOptions, JudgeOptions, SearchOptions
from gemmproof.options import CommandOptions, iter_options
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.reference.provenance import format_count
from gemmproof.report import ci, github
from gemmproof.report.files import STDOUT, Writer, find_obstacle, replace_file, write_junit
from gemmproof.report.located_findings import list_placed
from gemmproof.report.record import EXIT, Regression, Report
from gemmproof.report.text import STYLES, Line, Reproduce, clean
from gemmproof.terminal import say, write_all
from gemmproof.worker.ends import UNKNOWN_ENDS, WorkerExit


# -- console -------------------------------------------------------------------------------------
def unwritable(options: CommandOptions) -> str | None:
    """Return one line on the first report that could not be written; checked before the run.

    An empty name, from a variable that is not set, is one that cannot be written.
    """
    requested = [
        (o.label, o.default) for o in iter_options(options) if o.is_output and o.default is not None
    ]
    options_by_path: dict[str, str] = {}
    for option, name in requested:
        first = options_by_path.setdefault(os.path.realpath(name), option)
        if first != option:
            return f"{option}: got {name!r}, the file of {first}, expected another file"
    for option, name in requested:
        if reason := find_obstacle(name):
            return _explain_obstacle(option, name, reason)
    return None


def _explain_obstacle(option: str, name: str, reason: str) -> str:
    return f"{option}: got {name!r} ({reason}), expected a file that can be written"


def undrawable(svg: str | None, extra: str = "plots") -> str | None:
    """Return one line on a requested picture that cannot be drawn, or not in that format."""
    if svg and os.path.splitext(svg)[1].lower() not in ("", ".svg"):
        return f"--svg: got {svg!r}, expected a name that ends in .svg"
    if svg and util.find_spec("matplotlib") is None:
        return f"--svg: needs matplotlib: pip install 'gemmproof[{extra}]'"
    return None


def note_unpredicted(gpu: str | None) -> list[Line]:
    """Return a line on what a target without a model leaves open, none for the others."""
    if gpu not in UNMODELLED:
        return []
    consequence = "dot products are computed in exact IEEE, no bits are predicted"
    return [(f"note: no model of the matrix cores of {gpu}: {consequence}", "")]


def refuse(options: CommandOptions, message: str) -> int:
    """Print in one line what is wrong; return the exit code for that."""
    say(f"gemmproof {options.command.name}: {message}")
    return EXIT["error"]


def answer(
    options: CommandOptions,
    code: int,
    lines: list[Line],
    reports: Mapping[str, Writer] = MappingProxyType({}),
    to_stderr: bool = False,
) -> int:
    """Print the answer, then write the requested reports, by field; return the exit code.

    It is that of an incomplete run if any of them could not be written, with a line for each.
    The answer goes to stderr if a report goes to stdout.
    """
    requested = [(o, reports[o.field]) for o in iter_options(options) if o.field in reports]
    to_stdout = any(option.default == STDOUT for option, _ in requested)
    if not deliver(options, lines, to_stderr or to_stdout):
        code = EXIT["incomplete"]
    for option, write in requested:
        if option.default and (reason := replace_file(option.default, write)):
            obstacle = _explain_obstacle(option.label, option.default, reason)
            say(f"gemmproof {options.command.name}: {obstacle}")
            code = EXIT["incomplete"]
    return code


def refuse_failure(options: CommandOptions, worker: WorkerExit, name: str) -> int | None:
    """Print why the target or gemmproof itself failed; return the exit code, None if none did."""
    if worker.is_internal:
        show_end(options, worker.output)
    failure = worker.explain_failure(name)
    return refuse(options, failure) if failure else None


def answer_death(options: CommandOptions, worker: WorkerExit, name: str, expected: str) -> int:
    """Answer for a worker without a result: a failure, or how the target died."""
    if code := refuse_failure(options, worker, name):
        return code
    died = f"{worker.where or name}: {worker.how}"
    text = clean(f"gemmproof {options.command.name}: {died}")
    code = EXIT["incomplete" if worker.end in UNKNOWN_ENDS else "error"]
    return answer(options, code, [(text, STYLES["fail"])], to_stderr=True)


def show_end(options: CommandOptions, output: str) -> None:
    """Print the last output of a worker in which gemmproof itself failed: a traceback."""
    deliver(options, [(clean(line), "") for line in output.splitlines()[-10:]], to_stderr=True)


def deliver(options: CommandOptions, lines: list[Line], to_stderr: bool = False) -> bool:
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
        expected = "to write the answer"
        say(f"gemmproof {options.command.name}: stdout: got {reason!r}, expected {expected}")
    return not reason


# -- report formats ------------------------------------------------------------------------------
class ReportOptions(CommandOptions, Protocol):
    """The options of a command that writes reports in several formats."""

    @property
    def search(self) -> SearchOptions: ...
    @property
    def judge(self) -> JudgeOptions: ...
    @property
    def forms(self) -> FormOptions: ...


def find_mistake(options: ReportOptions) -> str | None:
    """Return one line on a report that cannot be written, or a model without predictions."""
    if problem := unwritable(options):
        return problem
    gpu = options.search.gpu
    if options.judge.check_model and gpu not in TARGETS and options.judge.device == "cpu":
        expected = f"expected one that is predicted: {' '.join(TARGETS)}"
        return f"--check-model: got {gpu or 'no --target'}, {expected}"
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
    options: ReportOptions,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> list[Line]:
    """Return the answer's lines on what some formats cannot contain, and GitHub's annotations."""
    forms = {"--sarif": options.forms.sarif, "--codequality": options.forms.codequality}
    asked = [option for option, name in forms.items() if name]
    annotated = github.is_wanted(options.forms.annotations)
    if not asked and not annotated:
        return []
    located = list_placed(reports, reproduce)
    without_line = sum(item.path is None for item in located)
    notes = []
    if asked and without_line:
        of = f"{without_line} of {format_count(len(located), 'finding')} left out"
        notes.append(f"{' and '.join(asked)}: {of}, without a line in the repository")
    if asked and lost:
        of = f"{format_count(len(lost), 'change')} against the baseline left out"
        notes.append(f"{' and '.join(asked)}: {of}, without a source line")
    if annotated:
        notes += github.list_annotations(options.command.name, reports, located, lost)
    return [(note, "") for note in notes]


def summarise(
    code: int,
    verdict: str,
    options: ReportOptions,
    reports: Sequence[Report],
    reproduce: dict[str, Reproduce],
    lost: Sequence[Regression] = (),
) -> int:
    """Append to GitHub's job summary, if any; return the exit code, incomplete if it failed."""
    if not github.is_wanted(options.forms.annotations):
        return code
    name, reason = github.append_summary(options.command.name, verdict, reports, reproduce, lost)
    if reason:
        message = f"{github.SUMMARY}: got {clean(name)!r} ({reason}), expected a file to append to"
        say(f"gemmproof {options.command.name}: {message}")
        return EXIT["incomplete"]
    return code


def refuse_with_annotation(options: ReportOptions, message: str) -> int:
    """Print in one line what is wrong, also as an annotation on GitHub; return the exit code."""
    code = refuse(options, message)
    if github.is_wanted(options.forms.annotations):
        title = f"gemmproof {options.command.name}"
        lines = [(github.write_command("error", message, title=title), "")]
        deliver(options, lines, to_stderr=True)
    return code
