"""The options of `gemmproof list`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import add_limits


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    listing = commands.add_parser(
        "list",
        help="what there is: properties, kernels, targets, formats; or the wrappers in a file",
        description="List the properties, the kernels that conftest.py registers, the targets,"
        " formats and suites of shapes. Or the wrappers in a file, which is read and not run.",
        epilog="exit code: 0 listed, 2 bad usage, or a file that cannot be read",
        allow_abbrev=False,
    )
    listing.add_argument("file", nargs="?", metavar="FILE", help="list the wrappers in this file")
    listing.add_argument(
        "--conftest", default="conftest.py", metavar="FILE",
        help="the file that registers kernels (default conftest.py)",
    )  # fmt: skip
    listing.add_argument("--json", metavar="FILE", help="write it as JSON too (- for stdout)")
    add_limits(listing, 30)
