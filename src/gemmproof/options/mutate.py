"""The options of `gemmproof mutate`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import add_limits, add_search, add_stated, positive
from gemmproof.options.registered import add_registered
from gemmproof.settings import PROVES


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    mutate = commands.add_parser(
        "mutate",
        help="change a kernel in small ways, and see which changes its check notices",
        description="Change the source and the launch of a kernel that passes, one place at a"
        " time, and see which of the changes its check notices.",
        epilog="exit code: 0 every mutant was judged, 1 a score is too low, 2 bad usage or target,"
        " 3 some mutants were not judged",
        allow_abbrev=False,
    )
    add_registered(mutate, several=True)
    mutate.add_argument("--jobs", type=positive, metavar="N", help="workers (default: CPUs)")
    mutate.add_argument(
        "--max-mutants", type=positive, metavar="N", help="a sample, drawn by the seed"
    )
    mutate.add_argument(
        "--operator", action="append", default=[], metavar="NAME",
        help="only this change, as the table names it, repeatable",
    )  # fmt: skip
    mutate.add_argument(
        "--min-score", type=_read_score, metavar="X", help="of 0..1: exit code 1 below it"
    )
    mutate.add_argument(
        "--baseline", metavar="FILE", help="a JSON of an earlier run: exit code 1 below its score"
    )
    mutate.add_argument("--json", metavar="FILE", help="write all of it (- for stdout)")
    add_stated(mutate)
    add_search(mutate)
    mutate.add_argument(
        "--proof", action=argparse.BooleanOptionalAction, default=PROVES,
        help="try to decide for every size what a solver can, of mutants that no case kills"
        " (default)",
    )  # fmt: skip
    add_limits(mutate, 30)


def _read_score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:  # NaN is not within either
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number of 0..1")
    return score
