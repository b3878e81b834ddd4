"""The options of `gemmproof completion`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.spelling import one_of

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    completion = commands.add_parser(
        "completion",
        help="print what makes a shell complete commands, options and their values",
        description='Print a script that completes gemmproof: eval "$(gemmproof completion bash)".',
        epilog="exit code: 0 printed, 2 bad usage",
        allow_abbrev=False,
    )
    completion.add_argument(
        "shell", metavar="SHELL", type=one_of(*SHELLS), help=f"one of: {' '.join(SHELLS)}"
    )
