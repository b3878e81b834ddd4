"""The options of `gemmproof bench` and `gemmproof tune`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gemmproof.reference.formats import ACCUMULATORS, OPERANDS, RESULTS
from gemmproof.spelling import format_of

MOST_SECONDS = 60.0


def add_bench(
    commands: argparse._SubParsersAction[Any],
    add_calling: Callable[[Any], None],
    positive: Callable[[str], int],
    add_limits: Callable[[Any, int], None],
) -> None:
    """The command with the forms of a call and the limits that it shares with check."""
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
    bench.add_argument(
        "targets", nargs="+", metavar="TARGET", help="file.py:function or module:function"
    )
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
        "--settle", type=_read_seconds, default=2.0, metavar="S",
        help="seconds of load before the rounds, for the clocks (default 2)",
    )  # fmt: skip
    bench.add_argument("--json", metavar="FILE", help="write the report (- for stdout)")
    bench.add_argument("--svg", metavar="FILE", help="draw it (needs matplotlib)")
    add_limits(bench, 120)


def add_tune(
    commands: argparse._SubParsersAction[Any],
    positive: Callable[[str], int],
    add_limits: Callable[[Any, int], None],
) -> None:
    """The command, whose measurements are those of bench."""
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
        "--settle", type=_read_seconds, default=0.5, metavar="S",
        help="seconds of load before the rounds, for the clocks (default 0.5)",
    )  # fmt: skip
    tune.add_argument("--json", metavar="FILE", help="write all that was measured, as bench does")
    add_limits(tune, 120)
    tune.set_defaults(
        call=None, operand=[], spec=None, out_dtype=None, accumulator="fp32", columns=True
    )


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:  # NaN is not within either
        raise argparse.ArgumentTypeError(f"got {text!r}, expected seconds of 0..{MOST_SECONDS:g}")
    return seconds
