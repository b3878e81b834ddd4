"""The command `gemmproof`: its options, its answer and its exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from gemmproof import __version__
from gemmproof.options import (
    bench,
    check,
    completion,
    contract,
    drift,
    explain,
    init,
    lowering,
    mutate,
    reproduce,
    signoff,
    tune,
)
from gemmproof.options import list as listing
from gemmproof.report.record import EXIT
from gemmproof.settings import find_settings, list_words
from gemmproof.spelling import require_one, suggest
from gemmproof.terminal import (
    Interrupted,
    flush_streams,
    heed_signals,
    open_streams,
    say,
    write_all,
)

#: In the order of `gemmproof --help`; a command is named like the file of its options.
COMMANDS = (
    *(check, contract, explain, reproduce, drift, lowering, bench, tune, init, signoff, mutate),
    *(listing, completion),
)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line; argparse would print the usage before it."""

    def _print_message(self, message: str, file: Any = None) -> None:
        write_all(file or sys.stderr, message)  # writing long help may fail on a full disk

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT["error"], f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 for pass, 1 findings, 2 usage or target, 3 incomplete.

    If a signal ended it, 128 plus its number: 130 for Ctrl-C.
    """
    typed = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        with heed_signals():
            options = _parse(typed)
            command = import_module(f"gemmproof.commands.{options.command}")
            return int(command.run(options))
    except Interrupted as stop:
        say(f"{' '.join(['gemmproof', *typed[:1]])}: {stop}")
        return 128 + stop.number
    finally:
        flush_streams()


def _parse(typed: list[str]) -> argparse.Namespace:
    """Return the options: those of [tool.gemmproof] that the command has, then those typed."""
    top = parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    options_of = {name: set(command._option_string_actions) for name, command in commands.items()}
    if typed and typed[0] not in options_of and not typed[0].startswith("-"):
        try:
            require_one(typed[0], options_of)
        except ValueError as error:
            top.error(f"command: {error}")
    if typed and typed[0] in options_of:
        where = ""
        try:
            where, settings = find_settings(Path.cwd())
            known = {
                word for options in options_of.values() for word in options if word[:2] == "--"
            }
            typed[1:1] = list_words(settings, known - {"--help"}, options_of[typed[0]], typed)
        except ValueError as error:
            prefix = f"{where} [tool.gemmproof]: " if where else ""
            top.exit(EXIT["error"], f"gemmproof {typed[0]}: {prefix}{error}\n")
    options, unknown = top.parse_known_args(typed)
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        close = suggest(word.partition("=")[0], sorted(options_of[options.command] - {"-h"}))
        got = f"got {word!r}, which is no option of {options.command}{close}"
        commands[options.command].error(got)
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser of every command's options."""
    top = _Parser(prog="gemmproof", description="Says whether a Triton GEMM kernel is right.")
    top.add_argument("--version", action="version", version=f"gemmproof {__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)

    for command in COMMANDS:
        command.add(commands)
    return top
