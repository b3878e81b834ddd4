"""Scripts of several commands: a function for each, whose parameters are the command's options."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from inspect import getdoc, signature
from pathlib import Path


def run(about: str, commands: Mapping[str, Callable[..., int]]) -> int:
    """Call the function of the command that was given, and return its exit status."""
    options = vars(make_parser(about, commands).parse_args())
    function = options.pop("function")
    return function(**options)


def make_parser(about: str | None, commands: Mapping[str, Callable[..., int]]) -> ArgumentParser:
    """Return the parser of a script's commands.

    A parameter without a default is a positional path. Others are options: False is a switch, None
    an optional path, any other default has the type that is expected. The docstrings are the help.
    """
    layout = RawDescriptionHelpFormatter
    parser = ArgumentParser(description=about, formatter_class=layout)
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function in commands.items():
        text = getdoc(function) or ""
        head = text.partition("\n")[0]
        command = subparsers.add_parser(name, help=head, description=text, formatter_class=layout)
        command.set_defaults(function=function)
        for option in signature(function).parameters.values():
            default = option.default
            if default is option.empty:
                command.add_argument(option.name, type=Path)
            elif default is False:
                command.add_argument(f"--{option.name}", action="store_true")
            else:
                kind = Path if default is None else type(default)
                command.add_argument(f"--{option.name}", type=kind, default=default)
    return parser
