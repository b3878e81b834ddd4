"""The options of `gemmproof contract`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import (
    TARGET,
    add_limits,
    add_progress,
    add_search,
    add_stated,
    positive,
)


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    widest = commands.add_parser(
        "contract",
        help="find the widest contract that a kernel keeps",
        description="Find the widest contract that f(a, b) -> c keeps, from the stated one on.",
        epilog="exit code: 0 found, 1 findings within the stated one, 2 bad usage or target,"
        " 3 incomplete",
        allow_abbrev=False,
    )
    widest.add_argument("target", metavar="TARGET", help=TARGET)
    add_stated(widest)
    add_search(widest)
    widest.add_argument("--jobs", type=positive, metavar="N", help="workers (default: CPUs)")
    add_progress(widest)
    add_limits(widest, 30)
    widest.set_defaults(device="cpu", case=None, json=None, junit=None, proof=False, premise=False)
