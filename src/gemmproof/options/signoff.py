"""The options of `gemmproof signoff`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import add_common, add_progress, positive


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """The command."""
    signoff = commands.add_parser(
        "signoff",
        help="judge every kernel of a project",
        description="Judge every kernel that pytest_gemm_kernels() of a conftest.py registers.",
        epilog="exit code: 0 every property held, 1 findings, 2 bad usage or target, 3 incomplete",
        allow_abbrev=False,
    )
    signoff.add_argument("--conftest", default="conftest.py", metavar="FILE")
    signoff.add_argument(
        "--kernel", action="append", metavar="NAME", help="only this one, repeatable"
    )
    signoff.add_argument("--jobs", type=positive, metavar="N", help="workers (default: CPUs)")
    add_progress(signoff)
    add_common(signoff)
