"""The options of `gemmproof init`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import TARGET, add_stated


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    init = commands.add_parser(
        "init",
        help="write the files by which pytest judges a kernel",
        description="Write conftest.py and test_gemm.py for the wrapper f(a, b) -> c of a kernel.",
        epilog="exit code: 0 written, 2 bad usage or target, or a file in the way",
        allow_abbrev=False,
    )
    init.add_argument("target", metavar="TARGET", help=TARGET)
    add_stated(init, expects=True)
    init.add_argument(
        "--directory", default=".", metavar="DIR", help="where to (default: the current folder)"
    )
    init.add_argument(
        "--force", action="store_true", help="overwrite either file where it is there already"
    )
