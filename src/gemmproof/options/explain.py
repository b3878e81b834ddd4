"""The options of `gemmproof explain`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import TARGET, add_limits, add_progress, add_stated, natural
from gemmproof.reference.gpus import TARGETS, UNMODELLED
from gemmproof.spelling import one_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    explain = commands.add_parser(
        "explain",
        help="print what a kernel reads and writes, in closed form, or what a property means",
        description="Print the address map of f(a, b) -> c: of each load and store the index along"
        " each axis, the mask, what it needs, and the condition that is missing. Or the page on a"
        " property or a fault: what it claims, how it is judged, what usually mends it.",
        epilog="exit code: 0 printed, 2 bad usage or target, 3 nothing could be followed",
        allow_abbrev=False,
    )
    explain.add_argument(
        "target", metavar="TARGET|PROPERTY", help=f"{TARGET}, or a word of a report: race"
    )
    add_stated(explain)
    explain.add_argument("--line", type=natural, metavar="N", help="only the accesses of this line")
    explain.add_argument(
        "--config", type=natural, metavar="N", help="of an autotuned kernel (default 0)"
    )
    explain.add_argument(
        "--target", dest="gpu", type=one_of(*TARGETS, *UNMODELLED), metavar="GPU",
        help="compile for this GPU (default: none in particular)",
    )  # fmt: skip
    explain.add_argument("--case", metavar="JSON", help="the sizes of the picture")
    explain.add_argument("--json", metavar="FILE", help="write the address map (- for stdout)")
    explain.add_argument("--svg", metavar="FILE", help="draw it at one case (needs matplotlib)")
    add_progress(explain)
    add_limits(explain, 60)
    explain.set_defaults(device="cpu", max_examples=1, seed=0, proof=False, premise=False)
