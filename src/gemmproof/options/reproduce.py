"""The options of `gemmproof reproduce`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import (
    add_kept,
    add_limits,
    add_progress,
    add_search,
    add_stated,
)
from gemmproof.options.registered import add_registered


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    reproduce = commands.add_parser(
        "reproduce",
        help="write a failing case as a test that stands alone",
        description="Write a test file of a failing case of f(a, b) -> c that needs pytest, torch"
        " and triton only, with the fewest elements that are not zero.",
        epilog="exit code: 0 written, 2 bad usage or target, a file in the way, or nothing that"
        " a test shows, 3 incomplete",
        allow_abbrev=False,
    )
    add_registered(reproduce)
    reproduce.add_argument(
        "-o", "--output", default="test_bug.py", metavar="FILE",
        help="the test (default test_bug.py; - for stdout)",
    )  # fmt: skip
    reproduce.add_argument(
        "--case",
        metavar="JSON",
        help="of this case (default: one that is kept, or the first found)",
    )
    reproduce.add_argument(
        "--force", action="store_true", help="overwrite the file where it is there already"
    )
    add_stated(reproduce)
    add_search(reproduce)
    add_kept(reproduce)
    add_progress(reproduce)
    add_limits(reproduce, 30)
    reproduce.set_defaults(device="cpu", proof=False, premise=False)
