"""The options of `gemmproof bench`."""

from __future__ import annotations

import argparse
from typing import Any

from gemmproof.options.groups import TARGET, add_calling, add_limits, positive, read_seconds
from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
from gemmproof.spelling import format_of


def add(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command."""
    bench = commands.add_parser(
        "bench",
        help="how fast kernels are on this GPU, beside torch",
        description="Verify f(a, b) -> c, or a formula of further operands, and time it on the GPU"
        " beside a peer, in turns with it."
        " A kernel that takes out= is given the tensor to write to.",
        epilog="exit code: 0 timed, 1 a wrong result, 2 bad usage or target, or no GPU,"
        " 3 incomplete",
        allow_abbrev=False,
    )
    bench.add_argument("targets", nargs="+", metavar="TARGET", help=TARGET)
    bench.add_argument(
        "--against", metavar="PEER",
        help="a TARGET, or one of torch's: matmul bmm scaled_mm scaled_mm_fast int_mm addmm"
        " addmm_relu addmm_gelu compile compile_relu compile_gelu compile_gelu_tanh compile_silu"
        " int4pack_mm (default: matmul, scaled_mm for fp8, int_mm for int8)",
    )  # fmt: skip
    bench.add_argument(
        "--shapes", default="square", metavar="SHAPES",
        help="suites or MxNxK or batchxMxNxK, with commas (default square): llama,16x8192x8192",
    )  # fmt: skip
    bench.add_argument(
        "--dtype", action="append", type=format_of(*OPERANDS), metavar="FORMAT", default=None,
        help=f"format of a and b, repeatable (default fp16): {' '.join(OPERANDS)}",
    )  # fmt: skip
    bench.add_argument(
        "--out-dtype", type=format_of(*RESULTS), metavar="FORMAT",
        help="of c (default: whatever the first TARGET gives)",
    )  # fmt: skip
    bench.add_argument(
        "--accumulator", type=format_of(*ACCUMULATORS), metavar="FORMAT", default="fp32",
        help="the format that sums are kept in, for the bound of a formula (default fp32)",
    )  # fmt: skip
    add_calling(bench)
    bench.add_argument(
        "--columns", action="store_true", help="b in column-major memory, as x @ w.T has it"
    )
    bench.add_argument(
        "--rounds", type=positive, default=20, metavar="N",
        help="of four legs each, ABBA or BAAB (default 20)",
    )  # fmt: skip
    bench.add_argument(
        "--settle", type=read_seconds, default=2.0, metavar="S",
        help="seconds of load before the rounds, for the clocks (default 2)",
    )  # fmt: skip
    bench.add_argument("--json", metavar="FILE", help="write the report (- for stdout)")
    bench.add_argument("--svg", metavar="FILE", help="draw it (needs matplotlib)")
    add_limits(bench, 120)
