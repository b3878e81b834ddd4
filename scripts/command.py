"""Scripts of several commands: a function for each, whose docstring is the command's help."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from inspect import getdoc
from typing import Any


def script(about: str) -> tuple[ArgumentParser, Callable[..., ArgumentParser]]:
    """A parser, and what adds a command to it: from a name and a function, the command's parser."""
    parser = ArgumentParser(description=about.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Callable[..., int]) -> ArgumentParser:
        text = getdoc(function) or ""
        command = commands.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            formatter_class=RawDescriptionHelpFormatter,
        )
        command.set_defaults(function=function)
        return command

    return parser, add


def run(parser: ArgumentParser) -> int:
    """Call the function of the command that was given, with its options by name."""
    options: dict[str, Any] = vars(parser.parse_args())
    return int(options.pop("function")(**options))
