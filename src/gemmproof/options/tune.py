"""The options of `gemmproof tune`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import add_limits, positive, read_seconds
from gemmproof.reference.formats import OPERANDS
from gemmproof.spelling import format_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command, whose measurements are those of bench."""
    tune = commands.add_parser(
        "tune",
        help="measure by which kernel gemm is the fastest on this GPU",
        description="Time the kernels of gemmproof.kernels.gemm on this GPU and write the table by"
        " which it chooses; b is column-major. GEMMPROOF_GEMM_TABLE=TABLE makes gemm use it.",
        epilog="exit code: 0 written, 2 bad usage, or no GPU, 3 incomplete",
        allow_abbrev=False,
    )
    tune.add_argument("table", metavar="TABLE", help="the file to write, as JSON")
    tune.add_argument("--kernel", action="append", metavar="NAME", help="only this one, repeatable")
    tune.add_argument(
        "--shapes", default="square,llama,small_k,tall,wide,decode,ragged", metavar="SHAPES",
        help="suites or MxNxK, with commas (default: the suites that are not batched)",
    )  # fmt: skip
    tune.add_argument(
        "--dtype", action="append", type=format_of(*OPERANDS), metavar="FORMAT", default=None,
        help="format of a and b, repeatable (default bf16, which serves fp16 too)",
    )  # fmt: skip
    tune.add_argument(
        "--rounds", type=positive, default=6, metavar="N", help="of four legs each (default 6)"
    )
    tune.add_argument(
        "--settle", type=read_seconds, default=0.5, metavar="S",
        help="seconds of load before the rounds, for the clocks (default 0.5)",
    )  # fmt: skip
    tune.add_argument("--json", metavar="FILE", help="write all that was measured, as bench does")
    add_limits(tune, 120)
    tune.set_defaults(
        call=None, operand=[], spec=None, out_dtype=None, accumulator="fp32", columns=True
    )
