"""`gemmproof completion`: a script with which a shell completes commands, options and values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from gemmproof.options import Command, argument
from gemmproof.report.record import EXIT
from gemmproof.spelling import NamesOnly, one_of
from gemmproof.terminal import say, write_all

# the metavars whose values are completed as paths
_FILES, _FOLDERS = ("FILE", "TARGET", "TABLE"), ("DIR",)
_WORDS = "TARGET|PROPERTY"
_FUNCTION = "_gemmproof_words_and_files"  # shtab completes filenames for names with "_file"


SHELLS = ("bash", "zsh", "tcsh")


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """The options of `gemmproof completion`."""

    command: ClassVar = Command(
        "completion",
        help="print a shell script that completes commands, options and their values",
        description="Print a script that completes gemmproof's commands and options in a shell.",
        examples=('eval "$(gemmproof completion bash)"',),
        exits="0 printed, 2 bad usage",
    )

    shell: str = argument("SHELL", f"one of: {' '.join(SHELLS)}", read=one_of(*SHELLS))


def run(options: CompletionOptions, top: argparse.ArgumentParser) -> int:
    """Print the script for the given shell."""
    script = write_script(options.shell, top)
    if reason := write_all(sys.stdout, script):
        say(f"gemmproof completion: stdout: got {reason!r}, expected to write the answer")
        return EXIT["incomplete"]
    return EXIT["pass"]


def write_script(shell: str, top: argparse.ArgumentParser) -> str:
    """Return the script, generated from the options of the parser."""
    import shtab

    for action in _list_actions(top):
        known: Any = action
        if isinstance(action.type, NamesOnly):
            known.choices = action.type.names
        elif action.metavar in _FILES:
            known.complete = shtab.FILE
        elif action.metavar in _FOLDERS:
            known.complete = shtab.DIRECTORY
        elif action.metavar == _WORDS:
            known.complete = {"bash": _FUNCTION, "zsh": _FUNCTION, "tcsh": "f"}
        elif action.metavar == "SHAPES":
            known.choices = _list_suites()
    return f"{shtab.complete(top, shell=shell, preamble=_write_function(shell))}\n"


def _list_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _list_actions(command)
        else:
            yield action


def _write_function(shell: str) -> str:
    """Return the shell function that completes a file, or the name of a property or a fault."""
    from gemmproof.properties.help import read_faults, read_properties

    names = " ".join([*read_properties(), *read_faults()])
    bash = f'compgen -f -- "$1"\n  compgen -W "{names}" -- "$1"'
    zsh = f"_alternative 'files:file:_files' 'words:word:({names})'"
    body = {"bash": bash, "zsh": zsh}.get(shell)
    return f"{_FUNCTION}() {{\n  {body}\n}}\n" if body else ""


def _list_suites() -> tuple[str, ...]:
    from gemmproof.bench.problems import SUITES

    return tuple(SUITES)
