"""The options of `gemmproof check`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import TARGET, add_common, add_progress, add_stated


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    check = commands.add_parser(
        "check",
        help="judge one kernel",
        description="Judge the wrapper f(a, b) -> c of a Triton GEMM kernel; no GPU is needed.",
        epilog="exit code: 0 every property held, 1 findings, 2 bad usage or target, 3 incomplete",
        allow_abbrev=False,
    )
    check.add_argument("target", metavar="TARGET", help=TARGET)
    add_stated(check, expects=True)
    check.add_argument(
        "--watch", action="store_true", help="judge again whenever a file of the target changes"
    )
    add_progress(check)
    add_common(check)
