"""The command `gemmproof`: its options, its answer and its exit codes."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gemmproof import __version__
from gemmproof.bench import command as bench
from gemmproof.bench import tune
from gemmproof.commands import check, completion, init
from gemmproof.commands import list as listing
from gemmproof.contract_search import command as contract
from gemmproof.draft import command as draft
from gemmproof.drift import command as drift
from gemmproof.explain import command as explain
from gemmproof.lowering import command as lowering
from gemmproof.mutate import command as mutate
from gemmproof.options import CommandOptions, add_options, explain_renamed, make_record
from gemmproof.record_calls import command as record_calls
from gemmproof.report.record import EXIT
from gemmproof.reproduce import command as reproduce
from gemmproof.settings import find_settings, list_words
from gemmproof.signoff import command as signoff
from gemmproof.spelling import require_one, suggest
from gemmproof.terminal import (
    Interrupted,
    flush_streams,
    heed_signals,
    open_streams,
    say,
    write_all,
)

#: The options of each command and what runs it, in the order of `gemmproof --help`.
COMMANDS: dict[type[CommandOptions], Callable[[Any], int]] = {
    check.CheckOptions: check.run,
    draft.DraftOptions: draft.run,
    record_calls.RecordOptions: record_calls.run,
    contract.ContractSearchOptions: contract.run,
    explain.ExplainOptions: explain.run,
    reproduce.ReproduceOptions: reproduce.run,
    drift.DriftOptions: drift.run,
    lowering.LoweringOptions: lowering.run,
    bench.BenchOptions: bench.run,
    tune.TuneOptions: tune.run,
    init.InitOptions: init.run,
    signoff.SignoffOptions: signoff.run,
    mutate.MutateOptions: mutate.run,
    listing.ListOptions: listing.run,
    completion.CompletionOptions: lambda options: completion.run(options, parser()),
}


class _HelpFormatter(argparse.HelpFormatter):
    """A formatter that keeps the lines of a text, and wraps those that are not indented."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            line if line.startswith(" ") else textwrap.fill(line, width)
            for line in text.splitlines()
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
            options = parse_options(typed)
            return COMMANDS[type(options)](options)
    except Interrupted as stop:
        say(f"{' '.join(['gemmproof', *typed[:1]])}: {stop}")
        return 128 + stop.number
    finally:
        flush_streams()


def parse_options(typed: list[str]) -> CommandOptions:
    """Return the options: those of [tool.gemmproof] that the command has, then those typed."""
    top = parser()
    commands = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices
    options_of = {
        name: {word for word in command._option_string_actions if word.startswith("--")}
        for name, command in commands.items()
    }
    if typed and typed[0] not in options_of and not typed[0].startswith("-"):
        try:
            require_one(typed[0], options_of)
        except ValueError as error:
            top.error(f"command: {error}")
    if typed and typed[0] in options_of:
        where = ""
        try:
            where, settings = find_settings(Path.cwd())
            known = set[str]().union(*options_of.values()) - {"--help"}
            typed[1:1] = list_words(settings, known, options_of[typed[0]], typed)
        except ValueError as error:
            prefix = f"{where} [tool.gemmproof]: " if where else ""
            top.exit(EXIT["error"], f"gemmproof {typed[0]}: {prefix}{error}\n")
    values, unknown = top.parse_known_args(typed)
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        option = word.partition("=")[0]
        close = suggest(option, sorted(options_of[values.command]))
        reason = explain_renamed(option) or f"which is not an option of {values.command}{close}"
        commands[values.command].error(f"got {word!r}, {reason}")
    options: CommandOptions = make_record(values.record, vars(values))
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser of every command's options."""
    top = _Parser(
        prog="gemmproof", description="Check Triton GEMM kernels for correctness and numerics."
    )
    top.add_argument("--version", action="version", version=f"gemmproof {__version__}")
    commands = top.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for record in COMMANDS:
        texts = record.command
        command = commands.add_parser(
            texts.name,
            help=texts.help,
            description=texts.description,
            epilog=texts.epilog,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(record=record)
        add_options(command, record)
    return top
