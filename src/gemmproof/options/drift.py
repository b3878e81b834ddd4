"""The options of `gemmproof drift`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import TARGET, add_limits, add_progress
from gemmproof.reference.formats import ACCUMULATORS, FLOAT_OPERANDS
from gemmproof.reference.gpus import DEFAULT, TARGETS, UNMODELLED
from gemmproof.spelling import format_of, one_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    drift = commands.add_parser(
        "drift",
        help="errors against K, and the accumulator behind them",
        description="Tell which accumulator f(a, b) -> c has, and how its errors grow with K.",
        epilog="exit code: 0 as declared, 1 findings, 2 bad usage or target, 3 incomplete",
        allow_abbrev=False,
    )
    drift.add_argument("target", metavar="TARGET", help=TARGET)
    drift.add_argument(
        "--dtype", type=format_of(*FLOAT_OPERANDS), metavar="FORMAT", default="fp16",
        help=f"format of a and b (default fp16): {' '.join(FLOAT_OPERANDS)}",
    )  # fmt: skip
    drift.add_argument(
        "--batched", action="store_true", help="3-D operands (the default for a function bmm)"
    )
    drift.add_argument(
        "--accumulator", type=format_of(*ACCUMULATORS), metavar="FORMAT", default="fp32",
        help="what the kernel promises to sum in (default fp32; e8m13: fp8 units, unpromoted)",
    )  # fmt: skip
    drift.add_argument(
        "--target", dest="gpu", type=one_of(*TARGETS, *UNMODELLED, "ieee"), metavar="GPU",
        default=DEFAULT,
        help=f"whose dot products to predict (default {DEFAULT}): {' '.join(TARGETS)} ieee",
    )  # fmt: skip
    drift.add_argument(
        "--K", dest="sizes", type=_sizes, default="512..16384", metavar="LOW..HIGH",
        help="the powers of two to measure at (default 512..16384)",
    )  # fmt: skip
    drift.add_argument(
        "--device", type=one_of("cpu", "cuda"), metavar="DEVICE", default="cpu",
        help="cuda: launch on the GPU (default cpu: simulate)",
    )  # fmt: skip
    drift.add_argument("--json", metavar="FILE", help="write the report (- for stdout)")
    drift.add_argument("--svg", metavar="FILE", help="draw it (needs matplotlib)")
    add_progress(drift)
    add_limits(drift, 120)


def _sizes(text: str) -> tuple[int, ...]:
    low, dots, high = text.partition("..")
    powers = {str(1 << n): n for n in range(5, 17)}
    first, last = powers.get(low, 1), powers.get(high if dots else low, 0)
    if first > last:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected LOW..HIGH, powers of two from 32 to 65536"
        )
    return tuple(1 << n for n in range(first, last + 1))
